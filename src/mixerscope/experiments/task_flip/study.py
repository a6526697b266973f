"""The runs of the study: parts, each a sweep that is shipped, and a toy of them; and what cells are called."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from mixerscope.errors import UnknownName, UserError
from mixerscope.spec import parse, read_data_file
from mixerscope.sweep.expand import Sweep
from mixerscope.sweep.source import SHIPPED

NAME = "task-flip"
PARITY, BRACKETS, S3, Z6 = "parity", "Dyck", "S3", "Z6"
RESETS, AFTER_CLOSE = "S3 with resets", "Dyck after closing"
TRANSFORMER, SIGNED = "Transformer", "Mamba, signed"


@cache
def settings() -> dict[str, Any]:
    return json.loads((Path(__file__).parent / "study.json").read_text(encoding="utf-8"))


RECURRENT = tuple(name for name in settings()["architectures"].values() if name != TRANSFORMER)
MAIN = (TRANSFORMER, *RECURRENT)
"""The five that are compared; all others are controls."""


@dataclass(frozen=True)
class Asked:
    """How much of the study, and how."""

    toy: bool = False
    only: tuple[str, ...] = ()
    """Parts; none means the main one."""
    seeds: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Path to value, over everything."""

    def __post_init__(self) -> None:
        for word in self.only:
            if word not in settings()["parts"]:
                raise UnknownName(f"part of {NAME}", word, settings()["parts"])
        if self.seeds is not None and self.seeds < 1:
            raise UserError(f"--seeds is how many, at least 1, got {self.seeds}")


def sweeps(asked: Asked) -> list[Sweep]:
    """What is to be run."""
    chosen = asked.only or (settings()["toy"]["part"],)
    return [_asked(sweep, asked) for part in chosen for sweep in _shipped(settings()["parts"][part])]


def _shipped(name: str) -> list[Sweep]:
    return [parse(Sweep, part) for part in read_data_file(SHIPPED / f"{name}.json", "sweep file")]


def _asked(sweep: Sweep, asked: Asked) -> Sweep:
    vary = dict(sweep.vary)
    over = dict(asked.settings)
    if asked.toy:
        vary |= settings()["toy"]["vary"]
        over = {**settings()["toy"]["set"], **over}
    if asked.seeds is not None:
        vary["seed"] = list(range(asked.seeds))
    return Sweep(base=sweep.base, vary={**vary, **{path: [value] for path, value in over.items()}}, note=sweep.note)


def task_name(task: Mapping[str, Any]) -> str:
    """What a task is called in tables, by its settings as JSON."""
    if task["name"] == "dyck":
        if task.get("types") == 1:
            return "counter"
        return AFTER_CLOSE if task.get("after_close") else BRACKETS
    if task["name"] == "group":
        group = task.get("group", S3)
        return f"{group} with resets" if task.get("resets") else group
    return task["name"].replace("_", "-")


def architecture_name(model: Mapping[str, Any]) -> str:
    """What an architecture is called in tables: the mixer, and how it differs from what it usually is here."""
    mixer, options, more = model["architecture"], model["options"], list[str]()
    if mixer == "pattern":
        layer = options["layers"][0]
        mixer, options = layer["mixer"], layer["options"]
        more += [] if layer["residual"] else ["plain"]
        more += ["short convolution"] if layer["short_conv"] else []
    if options.get("signed") or options.get("negative_eigenvalues"):
        more.append("signed")
    if options.get("d_conv") == 0:
        more.append("no convolution")
    if options.get("relative") == "none":
        more.append("learned positions" if model.get("positions") == "learned" else "no positions")
    names = {**settings()["architectures"], **settings()["controls"]}
    return ", ".join([names.get(mixer, mixer), *more])


def not_run(there: Sequence[tuple[str, str, int]]) -> list[str]:
    """Cells of the study, (task, architecture, blocks), that are not `there`, in words."""
    left: list[str] = []
    for part, name in settings()["parts"].items():
        cells: dict[tuple[str, str, int], None] = {}
        for sweep in _shipped(name):
            one = {path: values[:1] if path in ("seed", "train.lr") else values for path, values in sweep.vary.items()}
            for run in Sweep(base=sweep.base, vary=one).runs():
                said = run.training()
                cell = task_name(said["task"]), architecture_name(said["model"]), run.model.layers
                cells[cell] = None
        lacks = [f"{task} {mixer}" for task, mixer, layers in cells if (task, mixer, layers) not in there]
        if lacks:
            left.append(f"{part}: {'everything' if len(lacks) == len(cells) else ', '.join(lacks)}")
    return left
