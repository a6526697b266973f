"""The same runs as a table in the terminal."""

import io
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from mixerscope.artifacts import Estimate, Lengths
from mixerscope.cli.verdicts import accuracy, diverged, verdict_table
from mixerscope.listing import listed_runs
from mixerscope.report.tracking import reason_of
from mixerscope.results import load_run, load_runs
from mixerscope.sweep.best import best_lines

from .conftest import find_run, find_stage, give_verdict, rewrite


def printed(results) -> list[str]:
    console = Console(file=io.StringIO(), width=160, highlight=False)
    console.print(verdict_table(results))
    return console.file.getvalue().splitlines()


def row_of(lines, name) -> str:
    [found] = [line for line in lines if line.startswith(f"{name} ")]
    return found


def test_runs_are_named_by_what_differs_and_verdicts_explained_below(folder):
    root = folder("based", "wide based", "attention")
    [wide] = [path for path in root.iterdir() if load_run(path).training["model"]["width"] == 16]
    give_verdict(load_run(wide).folder, "induction", ["key", "value", "query"], accuracy=0.75)
    lines = printed(list(load_runs(root)))
    row = row_of(lines, "based d=16")
    for text in ("75.0%", "induction", "key → value → query", "0.91 [0.81, 0.99]"):
        assert text in row
    assert "not above guessing" in row_of(lines, "based d=8")
    assert "based d=16: block 0 part 0: key → value; block 1 part 1: value → query" in lines
    assert any(line.startswith("attention: accuracy 0.00 ") for line in lines)


@pytest.mark.parametrize(
    ("name", "said", "reason"),
    [
        ("diverged", "diverged", "training diverged by step"),
        ("unpatchable", "cannot be patched", "the model cannot be patched: noise changes earlier logits"),
        ("not judged", "not judged", None),
    ],
)
def test_a_run_without_a_verdict_has_its_accuracy_and_the_reason(folder, name, said, reason):
    [result] = load_runs(folder(name))
    lines = printed([result])
    reached = accuracy(result)
    assert reached == (result.curve.points[-1].accuracy if name == "diverged" else result.scores.accuracy.value)
    assert diverged(result) == (name == "diverged")
    assert said in row_of(lines, "attention")
    assert f"{reached:.1%}" in row_of(lines, "attention")
    reasons = [line for line in lines if line.startswith("attention: ")]
    assert len(reasons) == (reason is not None)
    assert reason is None or reason in reasons[0]


def test_several_slots_have_a_row_each(folder):
    root = folder("two slots")
    lines = printed([load_run(find_run(root, "attention").path)])
    rows = [line.split() for line in lines if line.startswith("attention ")]
    assert [row[1] for row in rows] == ["key", "value"]


def test_two_runs_of_the_same_settings_in_other_code_have_two_names(folder):
    [result] = load_runs(folder("attention"))
    [again] = load_runs(result.folder.path.parent)
    again.folder = SimpleNamespace(seal=lambda: SimpleNamespace(id="0" * 12))
    again.__dict__ |= {name: getattr(result, name) for name in ("record", "stages", "curve", "status")}
    lines = printed([result, again])
    assert row_of(lines, f"attention {result.run_id}")
    assert row_of(lines, f"attention {'0' * 12}")


def test_a_state_has_its_verdict_in_tables_and_lists_too(folder):
    root = folder("tracks", "tracks, seed 1")
    results = load_runs(root)
    said = results[0].state_verdict
    assert said is not None
    lines = printed(results[:1])
    assert said.name in row_of(lines, "gru")
    assert any(reason_of(said) in line for line in lines)
    assert re.split(r"  +", lines[0].strip()) == ["model", "all answers", "last answer", "verdict", "seed"]
    assert {row["mechanism"] for row in results.rows()} == {run.state_verdict.name for run in results}
    assert {run.mechanism for run in listed_runs(root, []).values()} == {run.state_verdict.name for run in results}
    assert said.name in best_lines(results[:1])[1]


def test_states_and_routes_have_a_table_each(folder):
    lines = printed(list(load_runs(folder("tracks", "based"))))
    [routes] = [line for line in lines if line.startswith("model") and "route" in line]
    [states] = [line for line in lines if line.startswith("model") and "all answers" in line]
    assert "mechanism" in routes
    assert "mechanism" not in states
    assert [line.split()[0] for line in lines if line.endswith(" 0   ")] == ["based", "gru"]


def test_a_tracked_state_has_all_of_its_answers_and_the_last_one(folder):
    root = folder("tracks")
    stage = find_stage(find_run(root, "gru"), "lengths")
    [trained, longer] = stage.read(Lengths).lengths
    rewrite(stage, Lengths((replace(trained, accuracy=Estimate(0.75, 0.7, 0.8, 16)), longer)))
    row = row_of(printed(list(load_runs(root))), "gru").split()
    assert row[1:3] == ["75.0%", f"{trained.last.value:.1%}"] != ["75.0%", "75.0%"]
