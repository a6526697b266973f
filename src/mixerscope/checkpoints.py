"""Trainings that are interrupted go on where they were: what is kept of a cohort, how often, and whose it is.

A checkpoint belongs to one cohort: the runs in their order, the machine as far as it changes bits, and the code. Any
other is left alone. When a training has ended it is kept once more, so that a kill while it is being written to its
folders loses nothing.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mixerscope.artifacts.checkpoint import Checkpoint
from mixerscope.errors import CannotWrite, CorruptFile, remark
from mixerscope.machine import Machine
from mixerscope.provenance import own_source, provenance
from mixerscope.results import run_folder
from mixerscope.spec import RunSpec
from mixerscope.stages.looking import Looking
from mixerscope.store import CheckpointFolder, RunFolder
from mixerscope.training import Kept, Member

FORMAT = 2


def is_begun(specs: Sequence[RunSpec], root: Path) -> bool:
    """Whether there is a checkpoint of these runs as one cohort."""
    return CheckpointFolder(root).file(_names(specs, root)).is_file()


class CohortCheckpoint:
    """The checkpoint of one cohort in the making; a `Keeper` for its training."""

    def __init__(self, specs: Sequence[RunSpec], root: Path, machine: Machine, looking: Looking) -> None:
        self.specs, self.root, self.machine, self.looking = list(specs), root, machine, looking
        self.names = _names(specs, root)
        self.folder = CheckpointFolder(root)
        self.path = self.folder.file(self.names)
        self.used: Callable[[], dict[str, str]] = dict
        """What operators have run as in this call."""
        self.used_before: dict[str, str] = {}
        self.last = time.monotonic()
        self.replaces = any(run_folder(spec, root).sealed for spec in specs)
        """Whether there are results that stay until this training has ended."""
        self.chosen = list(range(len(specs)))
        """Of the members of what was found: which are the runs that were asked for."""

    def found(self) -> Kept | None:
        """What there is of this cohort: of all of it, or of one that has ended, of which these runs are a part that was
        not written yet."""
        for path, header in self.folder.headers():
            kept = self._usable(path, header) if set(self.names) & set(header["runs"]) else None
            if kept is not None:
                return kept
        return None

    def due(self) -> bool:
        return time.monotonic() - self.last >= self.machine.checkpoint_seconds

    def keep(self, kept: Kept) -> None:
        """Writes it down. Where that cannot be done, training goes on all the same."""
        try:
            self._write(kept)
        except CannotWrite as error:
            remark(f"no checkpoint: {error}")
        self.last = time.monotonic()

    def keep_ended(self, members: list[Member]) -> None:
        """The same of a training that has ended; where that cannot be written, its results cannot be either."""
        self._write(Kept(members, []))

    def all_used(self) -> dict[str, str]:
        """What operators ran as, in this call and those before."""
        return {**self.used_before, **self.used()}

    def remove(self) -> None:
        """Removes the checkpoint, and others of which every run is finished."""
        self.folder.remove(self.path)
        for path, header in self.folder.headers():
            if not header.get("replaces") and all(RunFolder(self.root / name).sealed for name in header["runs"]):
                self.folder.remove(path)

    def _write(self, kept: Kept) -> None:
        looked = self.looking.kept()
        if looked is None:
            return  # something watches that could not go on
        training, tensors = kept.written()
        header = {
            "format": FORMAT,
            "runs": self.names,
            "steps": self.specs[0].train.steps,
            "replaces": self.replaces,
            "made_by": _made_by(self.specs[0], self.machine),
            "training": training,
            "looking": looked,
            "watching": self._watching(),
            "used": self.all_used(),
        }
        self.folder.write(self.path, Checkpoint(header, tensors))

    def _watching(self) -> dict[str, str]:
        """What watches, with its settings: what others have seen is nothing to go on with."""
        return {name: self.specs[0].stage_id(name) for name in self.looking.watches}

    def _usable(self, path: Path, header: dict[str, Any]) -> Kept | None:
        reason = self._objection(header)
        if not reason:
            try:
                return self._read(self.folder.read(path))
            except CorruptFile as error:
                reason = str(error)
            except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
                reason = f"it makes no sense: {error!r}"
        remark(f"the checkpoint {path} is not used: {reason}")
        return None

    def _objection(self, header: dict[str, Any]) -> str:
        """Why a checkpoint that has one of these runs cannot be gone on from; empty if it can."""
        if header.get("format") != FORMAT:
            return "it is of another version"
        if header.get("made_by") != (made_by := _made_by(self.specs[0], self.machine)):
            theirs = header.get("made_by")
            theirs = theirs if isinstance(theirs, dict) else {}
            return f"it was made with another {' and '.join(k for k in made_by if theirs.get(k) != made_by[k])}"
        there = header.get("watching")
        other = [n for n, id in self._watching().items() if not isinstance(there, dict) or there.get(n) != id]
        if other:
            return f"it was not watched by this {' and '.join(other)}"
        if header["runs"] == self.names:
            return ""
        if not set(self.names) <= set(header["runs"]) or header["training"]["waiting"]:
            return "it is of another cohort, and a model's last bits depend on those it is trained with"
        return ""

    def _read(self, checkpoint: Checkpoint) -> Kept:
        header = checkpoint.header
        specs = dict(zip(self.names, self.specs, strict=True))
        # Of runs that are not asked for nothing is written; they stand in for their part of what was computed together.
        members = [specs.get(name, self.specs[0]) for name in header["runs"]]
        kept = Kept.read(members, header["training"], checkpoint.tensors)
        self.looking.restore(header["looking"])
        self.chosen = [header["runs"].index(name) for name in self.names]
        self.used_before = dict(header["used"])
        return kept


def _names(specs: Sequence[RunSpec], root: Path) -> list[str]:
    return [run_folder(spec, root).path.name for spec in specs]


def _made_by(spec: RunSpec, machine: Machine) -> dict[str, Any]:
    """All that bits depend on beside the runs themselves, by name."""
    made = asdict(provenance(spec, machine, spec.train.precision, "", 0, {}))
    for name in ("git", "data_sha256", "stack", "kernels_used"):
        del made[name]  # code is told by its hash, the others are not known yet
    return {**made, "source": own_source()}
