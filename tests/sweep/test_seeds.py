"""What runs that differ in their seed alone say together."""

from dataclasses import replace
from pathlib import Path

import pytest

from mixerscope.artifacts import Estimate, Verdict
from mixerscope.results import RunResult
from mixerscope.sweep.best import finished_runs
from mixerscope.sweep.run import run_sweep
from mixerscope.sweep.seeds import seed_lines
from mixerscope.sweep.source import load_runs

VERDICT = Verdict("induction", ("key", "value", "query"), (), Estimate(0.9, 0.85, 0.95, 64), None, ())


@pytest.fixture
def runs(sweep_file, tmp_path: Path) -> list[RunResult]:
    """Two rates, two seeds."""
    specs = load_runs(str(sweep_file({"train.lr": [1e-3, 1e-2], "seed": [0, 1]})))
    run_sweep(specs, tmp_path / "out", progress=False)
    return finished_runs(specs, tmp_path / "out")


def test_seeds_are_put_together_by_what_else_differs(runs):
    several = [[VERDICT], [VERDICT], [VERDICT], [replace(VERDICT, mechanism="undetermined", route=())]]
    assert [run.training["seed"] for run in runs] == [0, 1, 0, 1]
    assert seed_lines(list(zip(runs, several, strict=True))) == [
        "attention lr=0.001: induction in 2 of 2 seeds; share 0.90; 2 seeds: no interval under 3",
        "attention lr=0.01: induction in 1 of 2 seeds, undetermined in 1; 2 seeds: no interval under 3",
    ]


def test_seeds_may_have_a_rate_of_their_own(runs):
    lines = seed_lines([(runs[0], [VERDICT]), (runs[3], [VERDICT])], tuned=True)
    assert lines == ["attention: induction in 2 of 2 seeds; share 0.90; 2 seeds: no interval under 3"]
    assert seed_lines([(runs[0], [VERDICT]), (runs[3], [VERDICT])]) == []


def test_a_run_without_a_verdict_is_a_seed_and_one_that_is_there_twice_is_not(runs):
    assert seed_lines([(runs[0], [VERDICT]), (runs[1], [])]) == [
        "attention: induction in 1 of 2 seeds, no verdict in 1; 2 seeds: no interval under 3"
    ]
    assert seed_lines([(runs[0], [VERDICT]), (runs[0], [VERDICT])]) == []
    assert seed_lines([(runs[0], []), (runs[1], [])]) == []


def test_each_slot_has_its_line(runs):
    both = [VERDICT, replace(VERDICT, slot="value", mechanism="value copy")]
    first, second = seed_lines([(runs[0], both), (runs[1], both)])
    assert first.startswith("attention, key corrupted: induction in 2 of 2 seeds")
    assert second.startswith("attention, value corrupted: value copy in 2 of 2 seeds")
