"""Real runs, as small as they come; where a test needs a certain verdict, it is written into a copy and sealed anew."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from mixerscope.runs import run
from mixerscope.spec import RunSpec
from mixerscope.store import RunFolder, read_json, write_json

TASK = {"name": "ar", "num_pairs": 2, "num_keys": 4, "num_values": 4}


def tiny_spec(architecture="attention", *, width=8, task=TASK, seed=0, lr=1e-3, slots=("key",)):
    return RunSpec(
        task=task,
        model={"architecture": architecture, "width": width, "layers": 2},
        train={"steps": 2, "batch_size": 4, "documents": 8, "lr": lr, "eval_every": 1, "eval_documents": 8},
        interventions={"documents": 6, "slots": slots},
        seed=seed,
    )


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """One folder with a run of each kind."""
    root = tmp_path_factory.mktemp("runs")
    return {
        "based": run(tiny_spec("based"), root).folder.path,
        "wide based": run(tiny_spec("based", width=16), root).folder.path,
        "attention": run(tiny_spec("attention"), root).folder.path,
        "attention seed 1": run(tiny_spec("attention", seed=1), root).folder.path,
        "two slots": run(tiny_spec("attention", slots=("key", "value")), root).folder.path,
        "other task": run(tiny_spec("attention", task=TASK | {"num_pairs": 3}), root).folder.path,
        "diverged": run(tiny_spec("attention", lr=1e30), root).folder.path,
    }


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


def give_verdict(run_folder: RunFolder, mechanism: str, route: list[str], accuracy: float = 1.0) -> None:
    """Writes a verdict and an accuracy into a run, as if they had been measured."""
    verdicts = read_json(run_folder.path / "verdicts.json")
    share = {"value": 0.912345, "low": 0.812345, "high": 0.987654, "n": 6}
    moves = [
        {"block": i, "component": f"part {i}", "source": a, "target": b, "share": share}
        for i, (a, b) in enumerate(pairwise(route))
    ]
    for verdict in verdicts.values():
        verdict.update(mechanism=mechanism, route=route, moves=moves, share=share, reason="")
    write_json(run_folder.path / "verdicts.json", verdicts)
    evaluation = read_json(run_folder.path / "evaluation.json")
    evaluation["estimates"]["original.accuracy"] = {"value": accuracy, "low": accuracy, "high": accuracy, "n": 6}
    write_json(run_folder.path / "evaluation.json", evaluation)
    run_folder.seal()


def change_rows(path: Path, change) -> None:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(change(row)) + "\n" for row in rows))
