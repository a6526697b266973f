"""What varies is the label: every line about a cohort says what tells it from the others."""

import re

import pytest

import mixerscope as ms
from mixerscope.machine import CPU
from mixerscope.sweep.cohorts import group
from mixerscope.sweep.execute import execute
from mixerscope.sweep.plan import make_plan
from mixerscope.sweep.table import read_rows
from mixerscope.sweep.text import Lines, ended_line, outcome_lines, plan_lines
from tests.sweep.conftest import BASE

TWELVE = list(range(2, 14))


@pytest.fixture(scope="module")
def convolutions():
    """Twelve cohorts that differ in the length of a convolution alone."""
    base = {**BASE, "train": {**BASE["train"], "steps": 1}, "stages": {}}
    vary = {"model.architecture": ["mamba"], "model.options.d_conv": TWELVE, "train.lr": [1e-3, 1e-2], "seed": [0, 1]}
    return ms.Sweep(base=base, vary=vary).runs()


def test_cohorts_are_named_by_the_settings_in_which_they_differ():
    vary = {"model.architecture": ["attention", "mamba"], "model.width": [8, 16], "train.lr": [1e-3, 1e-2]}
    assert [str(cohort) for cohort in group(ms.Sweep(base=BASE, vary=vary).runs())] == [
        "attention d=8 x2",
        "attention d=16 x2",
        "mamba d=8 x2",
        "mamba d=16 x2",
    ]
    vary = {"train.weight_decay": [0.0, 0.1], "seed": [0, 1], "data_seed": [3, 4]}
    assert [str(cohort) for cohort in group(ms.Sweep(base=BASE, vary=vary).runs())] == [
        "attention d=8 data_seed=3 x4",
        "attention d=8 data_seed=4 x4",
    ]


def test_twelve_cohorts_print_twelve_different_lines(convolutions, tmp_path, capsys):
    names = [f"mamba d=8 d_conv={d_conv} x4" for d_conv in TWELVE]
    plan = make_plan(convolutions, tmp_path, CPU)
    assert sorted(map(str, plan.cohorts)) == sorted(names)
    planned = plan_lines(plan)[1:13]
    assert sorted(re.findall(r"mamba d=8 d_conv=\d+", line)[0] for line in planned) == sorted(
        name.removesuffix(" x4") for name in names
    )
    outcome = execute(plan, tmp_path, CPU, listener=Lines())
    said = capsys.readouterr().err
    for name in names:
        assert said.count(f" {name}: started\n") == 1
        assert said.count(f" {name}: finished after ") == 1
    assert len({ended_line(row).partition(":")[0] for row in outcome.cohorts}) == 12
    assert len({line.split("d_conv=")[1].split()[0] for line in outcome_lines(outcome, [])[1:13]}) == 12
    kept = [row["label"] for row in read_rows(tmp_path) if row["kind"] == "cohort"]
    assert sorted(kept) == sorted(name.removesuffix(" x4") for name in names)


def test_a_cohort_keeps_its_name_when_the_others_are_finished(convolutions, tmp_path):
    last = group(convolutions)[-1]
    plan = make_plan(
        convolutions, tmp_path, CPU, skip={run.run_id: None for run in convolutions if run not in last.runs[1:]}
    )
    assert [str(cohort) for cohort in plan.cohorts] == ["mamba d=8 d_conv=13 x3"]
