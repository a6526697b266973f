"""Sweeps that come with the package are what they say."""

from collections import Counter

import pytest

from mixerscope.artifacts import Erasures, Interchanges, Lengths, Probes
from mixerscope.artifacts.alignments import Alignments
from mixerscope.artifacts.recoveries import Recoveries
from mixerscope.artifacts.state_verdict import StateVerdict
from mixerscope.experiments.task_flip.study import architecture_name, settings, task_name
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
    "task_flip_delta": ({"Parity", "Dyck", "GroupWord"}, {"deltanet", "gated_deltanet", "deltaproduct"}, 4),
    "task_flip_eight": ({"Parity", "Dyck", "GroupWord"}, FIVE, 8),
}
SMALL = (
    *("seed=0", "train.lr=0.001", "model.width=16", "model.layers=2", "train.steps=5", "train.documents=64"),
    *("train.batch_size=8", "train.eval_every=5", "stages.lengths.documents=16", "stages.probes.documents=100"),
    *("stages.erase.documents=100", "stages.erase.damaged_documents=16", "stages.erase.draws=1"),
    *("stages.interchange.documents=256", "stages.interchange.pairs=16", "stages.recover.pairs=16"),
    *("stages.align.documents=128", "stages.align.learned_on=16", "stages.align.pairs=16", "stages.align.steps=2"),
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


@pytest.mark.parametrize(
    ("part", "names"),
    [
        ("positions", {"Transformer, no positions", "Transformer, learned positions"}),
        ("plain", {"LSTM, plain", "GRU, plain"}),
        ("convolutions", {"Mamba, no convolution", "Transformer, short convolution"}),
        ("delta", {"DeltaNet, signed", "Gated DeltaNet, signed", "DeltaProduct, signed"}),
        ("contrasts", {"Transformer", "Mamba", "Mamba-2", "LSTM", "GRU"}),
    ],
)
def test_controls_and_contrasts_are_cells_of_their_own(part, names):
    cells = Counter()
    for run in load_runs(f"task_flip_{part}"):
        said = run.training()
        cells[task_name(said["task"]), architecture_name(said["model"])] += 1
        if cells.total() % 15 == 1:
            check_runnable(run)
    assert set(cells.values()) == {15}
    assert {name for _, name in cells} == names
    tasks = {"counter", "flip-flop", "A5", "S5"} if part == "contrasts" else {"parity", "Dyck", "S3"}
    assert {task for task, _ in cells} == tasks
    assert f"task_flip_{part}" in settings()["parts"].values()


def test_what_the_stages_of_the_task_flip_found_travels(tmp_path):
    words = [word for setting in SMALL for word in ("--set", setting)]
    pack = tmp_path / "some.pack"
    assert main(["task_flip", "--shard", "12/15", "--out", str(tmp_path / "runs"), "--pack", str(pack), *words]) == 0
    [folder] = unpack(pack, tmp_path / "elsewhere")
    result = load_run(folder.path)
    for artifact in (Lengths, Probes, Erasures, Interchanges, Alignments, Recoveries, StateVerdict):
        assert result.find(artifact) is not None, artifact.file
