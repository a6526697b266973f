"""Sweeps that come with the package are what they say."""

from collections import Counter

import pytest

from mixerscope.artifacts import Erasures, Interchanges, Lengths, Probes
from mixerscope.artifacts.recoveries import Recoveries
from mixerscope.artifacts.state_verdict import StateVerdict
from mixerscope.packs import unpack
from mixerscope.results import load_run
from mixerscope.runnable import check_runnable
from mixerscope.sweep.source import load_runs
from mixerscope.sweep.worker import main

FIVE = {"attention", "mamba", "mamba2", "lstm", "gru"}
STUDY = {
    "task_flip": ({"Parity", "Dyck", "GroupWord"}, FIVE, 4),
    "task_flip_z6": ({"GroupWord"}, FIVE, 4),
    "task_flip_resets": ({"GroupWord"}, FIVE, 4),
    "task_flip_after_close": ({"Dyck"}, FIVE, 4),
    "task_flip_signed": ({"Parity", "Dyck", "GroupWord"}, {"mamba"}, 4),
    "task_flip_eight": ({"Parity", "Dyck", "GroupWord"}, FIVE, 8),
}
SMALL = (
    *("seed=0", "train.lr=0.001", "model.width=16", "model.layers=2", "train.steps=5", "train.documents=64"),
    *("train.batch_size=8", "train.eval_every=5", "stages.lengths.documents=16", "stages.probes.documents=100"),
    *("stages.erase.documents=100", "stages.erase.damaged_documents=16", "stages.erase.draws=1"),
    *("stages.interchange.documents=256", "stages.interchange.pairs=16", "stages.recover.pairs=16"),
)


@pytest.mark.parametrize("name", STUDY)
def test_every_cohort_of_the_task_flip_is_a_stack_of_fifteen(name):
    tasks, architectures, layers = STUDY[name]
    runs = load_runs(name)
    cells = Counter((type(run.task).__name__, run.model.architecture) for run in runs)
    assert set(cells.values()) == {15}
    assert {task for task, _ in cells} == tasks
    assert {mixer for _, mixer in cells} == architectures
    assert len(cells) == len(tasks) * len(architectures)
    assert {(run.model.layers, run.model.width, run.task.length) for run in runs} == {(layers, 128, 12)}
    firsts = {(type(run.task), run.model.architecture): run for run in reversed(runs)}
    for run in firsts.values():
        check_runnable(run)


def test_what_the_stages_of_the_task_flip_found_travels(tmp_path):
    words = [word for setting in SMALL for word in ("--set", setting)]
    pack = tmp_path / "some.pack"
    assert main(["task_flip", "--shard", "12/15", "--out", str(tmp_path / "runs"), "--pack", str(pack), *words]) == 0
    [folder] = unpack(pack, tmp_path / "elsewhere")
    result = load_run(folder.path)
    for artifact in (Lengths, Probes, Erasures, Interchanges, Recoveries, StateVerdict):
        assert result.find(artifact) is not None, artifact.file
