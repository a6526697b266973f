"""The recorded release gate: every verdict was the planted one, and the docs show what was recorded."""

import json
from pathlib import Path

import pytest
from benchmarks import intervals, verdicts
from benchmarks.paste import DOCS, pasted

from mixerscope.planted import EVERY


def recorded(path: Path):
    return json.loads(path.read_text())


def test_the_recorded_gate_holds():
    result = recorded(verdicts.RESULTS)
    assert result["seeds"] >= 20
    assert [row["planted"] for row in result["models"]] == [planted.name for planted in EVERY]
    assert verdicts.failures(result) == []
    assert verdicts.totals(result)["wrong"] == 0
    assert {row["kind"] for row in result["models"]} == {planted.kind for planted in EVERY}


def test_a_wrong_name_or_a_missed_one_fails_the_gate():
    result = recorded(verdicts.RESULTS)
    row = result["models"][0]
    assert row["kind"] == "one route"
    row["outcomes"]["key"] = {"right": 18, "without a name": 2}
    assert len(verdicts.failures(result)) == 1
    row["outcomes"]["key"] = {"right": 19, "wrong": 1}
    assert len(verdicts.failures(result)) == 1
    row["outcomes"]["key"] = {"right": 19, "without a name": 1}
    assert verdicts.failures(result) == []


def test_rows_by_other_rules_than_todays_are_marked():
    result = recorded(verdicts.RESULTS)
    row = result["models"][0]
    name = row["planted"]
    assert verdicts.of_today(row)
    assert f"| {name} |" in verdicts.planted_table(result)
    row["judged_by"] = {**row["judged_by"], "judge": 0}
    assert name in verdicts.older(result)
    assert f"| {name} \\* |" in verdicts.planted_table(result)


def test_expectations_have_not_changed_since():
    for row, planted in zip(recorded(verdicts.RESULTS)["models"], EVERY, strict=True):
        assert (row["kind"], row["acceptable"]) == (planted.kind, list(planted.acceptable))


@pytest.mark.parametrize(("benchmark", "page"), [(verdicts, "verdicts.md"), (intervals, "statistics.md")])
def test_the_page_shows_what_was_recorded(benchmark, page: str):
    page = (DOCS / page).read_text()
    for name, text in benchmark.tables(recorded(benchmark.RESULTS)).items():
        assert pasted(page, name, text) == page, f"run python -m {benchmark.__name__}"


def test_a_page_without_the_place_is_refused():
    with pytest.raises(ValueError, match="no place for 'x'"):
        pasted("nothing", "x", "text")
