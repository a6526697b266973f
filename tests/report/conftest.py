"""Real runs, as small as they come; where a test needs a certain verdict, it is written into a copy and sealed anew."""

import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import mixerscope.stages.patch
from mixerscope.artifacts import Estimate, Record, RouteMove, Scores, Verdicts
from mixerscope.artifacts.effects import EffectTable
from mixerscope.errors import SelfTestFailed
from mixerscope.registry import MIXERS
from mixerscope.runs import run, run_cohort
from mixerscope.spec import RunSpec
from mixerscope.store import RunFolder
from mixerscope.store.folder import SealedFolder, StageFolder
from mixerscope.tasks import AR

TASK = {"name": "ar", "num_pairs": 2, "num_keys": 4, "num_values": 4}
STATE_STAGES = {
    "lengths": {"documents": 16, "times": [1, 2]},
    "probes": {"documents": 60, "sites": ["blocks.0.resid_pre", "blocks.1.resid_pre", "blocks.1.resid_post"]},
    "erase": {"documents": 60, "damaged_documents": 16, "draws": 1},
    "interchange": {"documents": 200, "pairs": 16, "singly": False},
    "recover": {"pairs": 16},
    "track": {},
}
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
MINE = '''from mixerscope.mixers.attention import Attention


class Mine(Attention):
    """Attention by another name."""
'''


def tiny_spec(architecture="attention", *, width=8, task=TASK, seed=0, lr=1e-3, slots=(), options=None, **stages):
    """The usual stages on few documents, unless others are given."""
    return RunSpec(
        task=task,
        model={"architecture": architecture, "width": width, "layers": 2, "options": options or {}},
        train={"steps": 2, "batch_size": 4, "documents": 8, "lr": lr, "eval_every": 1, "eval_documents": 8},
        stages=stages or {"patch": {"documents": 6, "slots": slots}, "judge": {}},
        seed=seed,
    )


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """One folder with a run of each kind."""
    root = tmp_path_factory.mktemp("runs")

    def make(*words, **settings):
        return run(tiny_spec(*words, **settings), root, progress=False).folder.path

    return {
        "based": make("based"),
        "wide based": make("based", width=16),
        "attention": make("attention"),
        "attention seed 1": make("attention", seed=1),
        "two slots": make("attention", slots=("key", "value"), lr=2e-3),
        "other task": make("attention", task=TASK | {"num_pairs": 3}),
        "diverged": make("attention", lr=1e30),
        "not judged": make("attention", lr=5e-3, patch={"documents": 6}),
        "watched": make("based", lr=3e-3, patch={"documents": 6}, judge={}, emergence={"documents": 6, "looks": 2}),
        "attends": make("attention", lr=6e-3, patch={"documents": 6}, judge={}, patterns={"documents": 6}),
        "holds": make("gru", patch={"documents": 6}, judge={}, patterns={"documents": 6}),
        "tracks": make("gru", task={"name": "parity", "length": 6}, **STATE_STAGES),
        "tracks, seed 1": make("gru", task={"name": "parity", "length": 6}, seed=1, **STATE_STAGES),
        "unpatchable": _unpatchable(root),
        "mine": _from_a_file(root, tmp_path_factory.mktemp("lab") / "mine.py"),
    }


def _unpatchable(root: Path) -> Path:
    def fails(models, *_):
        return [SelfTestFailed("noise changes earlier logits") for _ in models]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixerscope.stages.patch, "grids_or_failures", fails)
        return run(tiny_spec("attention", lr=4e-3), root, progress=False).folder.path


def _from_a_file(root: Path, file: Path) -> Path:
    """A run of a mixer that nobody knows any more when it is over."""
    file.write_text(MINE)
    with pytest.MonkeyPatch.context() as patch:
        for table in ("_entries", "_loaded", "_adopted"):
            patch.setattr(MIXERS, table, dict(getattr(MIXERS, table)))
        return run(tiny_spec(MIXERS.adopt(f"{file}:Mine")), root, progress=False).folder.path


@pytest.fixture(scope="session")
def kernels(tmp_path_factory):
    """A sweep: two kernel sizes, two widths, two learning rates, two seeds."""
    root = tmp_path_factory.mktemp("kernels")
    for d_conv in (2, 4):
        for width in (8, 16):
            settings = [(lr, seed) for lr in (1e-3, 1e-2) for seed in (0, 1)]
            options = {"d_conv": d_conv, "d_state": 2}
            specs = [tiny_spec("mamba", width=width, options=options, lr=lr, seed=seed) for lr, seed in settings]
            run_cohort(specs, root)
    return root


@pytest.fixture
def folder(made, tmp_path):
    """A folder with copies of the runs asked for, which a test may change."""

    def copy(*names: str) -> Path:
        for name in names:
            shutil.copytree(made[name], tmp_path / "runs" / made[name].name)
        return tmp_path / "runs"

    return copy


def find_run(root: Path, architecture: str) -> RunFolder:
    [path] = [p for p in root.iterdir() if p.name.startswith(f"{architecture}-")]
    return RunFolder(path)


def find_stage(run_folder: RunFolder, name: str) -> StageFolder:
    [found] = [stage for stage in run_folder.stages() if stage.name == name]
    return found


def rewrite(folder: SealedFolder, *artifacts) -> None:
    """Puts artifacts in the place of those that a folder has, as if they had been its own."""
    names, identity = list(folder.seal().files), folder.read(folder.record).identity
    folder.write(*artifacts)
    folder.close(identity, names)


def give_verdict(run_folder: RunFolder, mechanism: str, route: list[str], accuracy: float = 1.0, **facts) -> None:
    """Writes a verdict and an accuracy into a run, as if they had been measured."""
    share = Estimate(0.912345, 0.812345, 0.987654, 6)
    moves = tuple(RouteMove(i, f"part {i}", a, b, share) for i, (a, b) in enumerate(pairwise(route)))
    changes = {"mechanism": mechanism, "route": tuple(route), "moves": moves, "share": share, "reason": ""} | facts
    judge, patch = find_stage(run_folder, "judge"), find_stage(run_folder, "patch")
    rewrite(judge, Verdicts(tuple(replace(verdict, **changes) for verdict in judge.read(Verdicts))))
    estimates = patch.read(Scores).estimates | {"original.accuracy": Estimate(accuracy, accuracy, accuracy, 6)}
    rewrite(patch, Scores(estimates))


def make_hostile(root: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Gives the run of based hostile names wherever a run can have names; the name of its folder."""
    run_folder = find_run(root, "based")
    renamed = run_folder.path.with_name(f"<script>alert(3)<script>-{run_folder.seal().id}")
    run_folder = RunFolder(run_folder.path.rename(renamed))
    record = run_folder.read(Record)
    model = {**record.spec["model"], "architecture": "<script>alert(3)<script>"}
    rewrite(run_folder, replace(record, spec={**record.spec, "model": model}))
    patch = find_stage(run_folder, "patch")
    effects = patch.read(EffectTable)
    cells = tuple(replace(cell, role=cell.role + HOSTILE) for cell in effects.cells)
    facts = replace(effects.facts, mechanisms=(replace(effects.facts.mechanisms[0], meaning=HOSTILE),))
    rewrite(patch, replace(effects, cells=cells, reasons=(HOSTILE,) * len(cells), facts=facts))
    monkeypatch.setattr(AR, "symbol", lambda self, token: f"{HOSTILE}{token}")
    return renamed.name
