"""The table of seconds: what each cohort and each job took, kept beside the runs and printed at the end."""

import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import torch

from mixerscope.errors import CorruptFile
from mixerscope.machine import Machine
from mixerscope.signals import refuse_signals
from mixerscope.store import append_jsonl, locked, make_folder, read_jsonl
from mixerscope.sweep.cohorts import Cohort
from mixerscope.sweep.cost import Timed

NAME = "sweep.jsonl"
Ending = Literal["finished", "failed", "out of time", "interrupted"]


@dataclass(frozen=True)
class Conditions:
    """How a call computes: only times taken under the same ones are compared."""

    device: str
    threads: int
    kernels: str
    compiled: bool
    in_flight: int

    @staticmethod
    def of(machine: Machine, in_flight: int) -> "Conditions":
        here = machine.device == "cuda" and torch.cuda.is_available()
        device = torch.cuda.get_device_name(machine.device) if here else machine.device
        return Conditions(device, machine.threads, machine.kernels, machine.compile, in_flight)


@dataclass(frozen=True)
class CohortRow:
    """One attempt at one cohort."""

    job: int
    cohort: str
    label: str
    """What tells it from the other cohorts of its sweep, for people."""
    architecture: str
    width: int
    layers: int
    precision: str
    members: int
    steps: int
    """Of training; none where the models were trained before and only stages were missing."""
    ending: Ending
    reason: str
    """Why it failed, or what was foreseen when it was left for the next call."""
    finished: int
    """Members with all stages that did not diverge."""
    diverged: int
    unpatched: int
    """Of the finished: those of which some stage could not be had."""
    expected_s: float
    """By the uncorrected estimate, with the machine to itself."""
    alone_s: float | None
    """What it took, less what it lent to cohorts beside it; foreseen, where it ran out of time; None where unknown, or
    where nothing was trained."""
    build_s: float
    train_s: float
    stages_s: float
    """The rest: stages, reading and writing."""
    wall_s: float
    steps_per_s: float | None
    runs: tuple[str, ...]
    by_stage: dict[str, float] = field(default_factory=dict)
    """Seconds of each stage; nothing in rows from before they were kept."""


@dataclass(frozen=True)
class JobRow:
    """One job of one call."""

    job: int
    precision: str
    cohorts: int
    expected_s: float
    wall_s: float


class SweepTable:
    """The rows below a folder; each is added, by whichever process, and none is ever changed."""

    def __init__(self, root: Path, conditions: Conditions) -> None:
        self.root, self.conditions = root, conditions
        read_rows(root)  # what is no table of ours is refused before anything is trained

    def add(self, row: CohortRow | JobRow, call: str = "") -> None:
        kind = "cohort" if isinstance(row, CohortRow) else "job"
        make_folder(self.root)
        named = {"at": time.time(), **({"call": call} if call else {})}
        named |= {"command": typed_command()} if kind == "job" else {}
        with locked(self.root, [NAME], True, refuse_signals):
            append_jsonl(self.root / NAME, {"kind": kind, **asdict(row), **asdict(self.conditions), **named})

    def has_failed(self, cohort: str, call: str) -> bool:
        """Whether another process of this call has tried a cohort, and it failed."""
        return bool(call) and any(
            row["kind"] == "cohort"
            and row.get("call") == call
            and row["cohort"] == cohort
            and row["ending"] == "failed"
            for row in read_rows(self.root)
        )


def typed_command() -> str:
    """How this process was called; of files that were given from the root of the disk, as words or behind options and
    `=`, the name alone, since where they lay is nobody's business."""
    words = [re.sub(r"^((?:[\w.-]+=)*)(/.*)", lambda at: at[1] + Path(at[2]).name, word) for word in sys.orig_argv]
    script = len(words) > 1 and Path(words[1]).name == "mixerscope"
    return shlex.join(["mixerscope", *words[2:]] if script else words)


def timed_rows(rows: Sequence[dict[str, Any]], conditions: Conditions) -> list[Timed]:
    """What cohorts took under the same conditions, for the next estimate."""
    found: list[Timed] = []
    for row in rows:
        # A row of an earlier version may not know a condition, and then says nothing about it.
        same = all(row.get(key) == value for key, value in asdict(conditions).items())
        if row["kind"] == "cohort" and same and row["alone_s"] is not None:
            found.append(Timed(row["architecture"], row["expected_s"], row["alone_s"]))
    return found


def read_rows(root: Path) -> list[dict[str, Any]]:
    """All rows kept below a folder, of all calls."""
    path = root / NAME
    if not path.is_file():
        return []
    rows = read_jsonl(path)
    if any(row.get("kind") not in ("cohort", "job") for row in rows):
        raise CorruptFile(f"{path} is not a table of cohorts and jobs; move it away to start a new one")
    return rows


def row_of(row: Mapping[str, Any]) -> CohortRow | JobRow:
    """A row as it was before it was written."""
    kind = CohortRow if row["kind"] == "cohort" else JobRow
    known = {one.name: row[one.name] for one in fields(kind) if one.name in row}
    if kind is CohortRow:
        known["runs"] = tuple(known["runs"])
    return kind(**known)


def describe(cohort: Cohort) -> dict[str, Any]:
    """The columns of a row that say which cohort it is."""
    spec = cohort.first
    return {
        "cohort": cohort.id,
        "label": cohort.label,
        "architecture": spec.model.architecture,
        "width": spec.model.width,
        "layers": spec.model.layers,
        "precision": cohort.precision,
        "members": len(cohort),
        "steps": 0 if cohort.trained else spec.train.steps,
        "runs": tuple(run.run_id for run in cohort.runs),
    }
