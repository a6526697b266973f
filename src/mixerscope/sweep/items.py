"""A work item: a sweep, or a shard of one, as JSON. All that a process elsewhere needs; results go to the store."""

import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from pydantic import field_validator

from mixerscope.errors import CannotWrite, UserError
from mixerscope.machine import Machine
from mixerscope.registry import use
from mixerscope.spec import RunSpec, Spec, digest, parse, read_data_file
from mixerscope.store import write_bytes
from mixerscope.store.checkpoints import WORKSHOP
from mixerscope.sweep.ahead import adopted


class Item(Spec):
    """What is to be made where and how. Processes that are given the same item share its cohorts."""

    format: int = 1
    call: str
    """The call that made it: what fails in one is not tried again by others of the same call."""
    root: str
    runs: list[dict[str, Any]]
    """All runs of the sweep, as specs: which of them form a cohort depends on all."""
    machine: dict[str, Any] = {}
    keep_weights: bool = False
    in_flight: int | None = None
    largest: int | None = None
    shard: tuple[int, int] | None = None
    stop_after: float | None = None
    skip: dict[str, list[str] | None] = {}
    """Runs that are finished elsewhere, by id: the folders of their analyses there, or None where all is done."""
    leave: bool = False
    """Whether a process ends when others are making all that is left; else it waits, to take up what they may drop."""
    use: list[str] = []
    """Classes outside that a person named, as they were named."""

    @field_validator("format")
    @classmethod
    def _known(cls, number: int) -> int:
        if number != 1:
            raise ValueError(f"this version reads items of format 1, got {number}")
        return number

    @classmethod
    def of(cls, runs: Sequence[RunSpec], root: Path, machine: Machine, **settings: Any) -> Self:
        return cls(
            call=uuid.uuid4().hex[:12],
            root=str(root.resolve()),
            runs=[run.model_dump(mode="json") for run in runs],
            machine=asdict(machine),
            use=[_from_anywhere(reference) for reference in adopted()],
            **settings,
        )

    @property
    def asks(self) -> str:
        """What is to be made and how, as a hash: the same for every call that asks for the same."""
        return digest(self.model_dump(mode="json", exclude={"call"}))

    def write(self) -> Path:
        """Into the root, where every process that works there can read it."""
        path = Path(self.root) / WORKSHOP / "items" / f"{self.call}.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotWrite(path, error) from error
        write_bytes(path, json.dumps(self.model_dump(mode="json")).encode())
        return path

    def specs(self) -> list[RunSpec]:
        for reference in self.use:
            use(reference)
        return [parse(RunSpec, run) for run in self.runs]

    def on(self) -> Machine:
        try:
            return Machine(**self.machine)
        except TypeError as error:
            raise UserError(f"the item's machine makes no sense: {error}") from error


def _from_anywhere(reference: str) -> str:
    """A class as somebody named it, whatever folder it is looked for from."""
    place, _, name = reference.rpartition(":")
    return f"{Path(place).resolve()}:{name}" if place.endswith(".py") else reference


def read_item(path: Path) -> Item:
    item: Item = parse(Item, read_data_file(path, "work item"))
    return item
