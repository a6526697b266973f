"""Sweeps that come with the package are what they say."""

from collections import Counter

from mixerscope.runnable import check_runnable
from mixerscope.sweep.source import load_runs


def test_the_task_flip_is_fifteen_cohorts_of_fifteen():
    runs = load_runs("task_flip")
    cells = Counter((type(run.task).__name__, run.model.architecture) for run in runs)
    assert set(cells.values()) == {15}
    assert {task for task, _ in cells} == {"Parity", "Dyck", "GroupWord"}
    assert {mixer for _, mixer in cells} == {"attention", "mamba", "mamba2", "lstm", "gru"}
    assert len(cells) == 15
    assert {(run.model.layers, run.model.width, run.task.length) for run in runs} == {(4, 128, 12)}
    firsts = {(type(run.task), run.model.architecture): run for run in reversed(runs)}
    for run in firsts.values():
        check_runnable(run)
