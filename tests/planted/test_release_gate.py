"""The recorded release gate: every verdict was the planted one, and the docs show what was recorded."""

import json
from pathlib import Path

import pytest
from benchmarks import intervals, verdicts
from benchmarks.paste import DOCS, pasted

from mixerscope.planted.zoo import ALL


def recorded(path: Path):
    return json.loads(path.read_text())


def test_every_recorded_verdict_is_the_planted_one():
    result = recorded(verdicts.RESULTS)
    assert result["seeds"] >= 20
    assert [row["planted"] for row in result["models"]] == [planted.name for planted in ALL]
    assert all(row["solved"] == result["seeds"] for row in result["models"])
    good, total = verdicts.right(result)
    assert good == total == 3 * result["seeds"] * len(ALL)
    assert all("wrong" not in row["found"] for row in result["noise"])


def test_expectations_have_not_changed_since():
    for row, planted in zip(recorded(verdicts.RESULTS)["models"], ALL, strict=True):
        assert row["expected"] == {slot: planted.expected(slot) for slot in verdicts.SLOTS}


@pytest.mark.parametrize("benchmark", [verdicts, intervals], ids=["verdicts", "intervals"])
def test_the_page_shows_what_was_recorded(benchmark):
    page = (DOCS / "verdicts.md").read_text()
    for name, text in benchmark.tables(recorded(benchmark.RESULTS)).items():
        assert pasted(page, name, text) == page, f"run python -m {benchmark.__name__}"


def test_a_page_without_the_place_is_refused():
    with pytest.raises(ValueError, match="no place for 'x'"):
        pasted("nothing", "x", "text")
