"""What activation patching measured, as it is kept: every cell's means and intervals, and the numbers of each document
where judging needs them. Judging reads this and nothing else, so it needs no model.

On disk: one safetensors file. Likelihoods and logit differences of documents are half-precision numbers, whether the
answer was right is a bit; runs that several cells share are kept once.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from mixerscope.artifacts.base import Frames
from mixerscope.artifacts.effect_columns import (  # noqa: F401 - named here for those who read effects
    BEST,
    COLUMNS,
    METRICS,
    NO_GAP,
    SHARE,
    header_of,
    place_of,
)
from mixerscope.artifacts.estimate import Estimate
from mixerscope.errors import CorruptFile

Direction = Literal["restore", "break"]
DIRECTIONS: tuple[Direction, ...] = ("restore", "break")
CellStatus = Literal["measured", "no path", "same", "invalid"]
SWAP = "swap"
"""The edit that writes the other document's activation: the patch."""
JOINT = "&"
"""Between roles that are edited together: `key&value`."""
ANYWHERE = "*"
"""In a route, at a station that says nothing: what passes there is left alone."""

ORIGINAL = "original"
MOST_HALF = 65504.0
"""The largest half-precision number."""


def corrupted(slot: str) -> str:
    """The name of the unedited run over the documents with this slot corrupted."""
    return f"corrupted {slot}"


def against(slot: str) -> str:
    """The name of the unedited run over the original documents, its logit difference that of the slot's corruption."""
    return f"original against {slot}"


def read_at(run: str, read: str) -> str:
    """The name of an unedited run as measured at a read, of a table of several; empty is the first."""
    return f"{run} at {read}" if read else run


@dataclass(frozen=True, order=True)
class Cell:
    """One intervention: an edit of the activation at one site and one role.

    restore: the corrupted document runs and receives (swap) the original's activation. break: the reverse. A role is
    a name (`key`), an offset (`key+2`), a position (`pos:7`), or several of them edited together (`key&value`).
    """

    slot: str
    direction: Direction
    site: str
    role: str
    edit: str = SWAP
    head: int = -1
    """Which head alone is edited, of a site that has heads; -1 for the whole activation."""
    read: str = ""
    """Where the effect was measured, of a table of several reads; empty for the first, which verdicts look at."""


@dataclass(frozen=True)
class Part:
    """A part of a block that can move information between positions, and the site just after it."""

    component: str
    site: str
    heads: int = 1


@dataclass(frozen=True)
class Mechanism:
    """A route that has a name."""

    route: tuple[str, ...]
    name: str
    meaning: str = ""
    """In plain words."""
    beside: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Slots that belong together with the route's first, and the route that each of them takes."""


@dataclass(frozen=True)
class Facts:
    """What judging must know of the documents and the model beside the numbers."""

    documents: int
    roles: tuple[str, ...]
    """Without those that stand where an earlier one stands in every document."""
    read: tuple[str, ...]
    """Roles that stand where the answer is read, in every document."""
    boundaries: tuple[str, ...]
    """Sites of the residual stream: before each block, and after the last."""
    blocks: tuple[tuple[Part, ...], ...]
    """Per block its parts that move information, in order."""
    mechanisms: tuple[Mechanism, ...] = ()
    together: tuple[str, ...] = ()
    """Slots that a model which retrieves reads all of; a model that ignores one of them does something else."""
    first_read: str = "answer"
    """The name of the read that cells without one were measured at."""
    guessing: float | None = None
    """The accuracy that is had without solving the task; None where nobody knows."""
    patched: tuple[str, ...] = ()
    """Slots of the grid; the others were patched only where judging looks. Empty: all."""

    @property
    def sites(self) -> tuple[str, ...]:
        """Where judging looks."""
        return tuple(dict.fromkeys([*self.boundaries, *(part.site for block in self.blocks for part in block)]))

    @property
    def one_block(self) -> bool:
        """Whether routes can be told apart inside a block alone, where information may pass by a station."""
        return len(self.boundaries) < 3

    @property
    def stations(self) -> tuple[str, ...]:
        """Where a route can be told from others: between the blocks, or inside the only one. What enters the first
        block and what leaves the last are no question: only one position can matter there."""
        if not self.one_block or not self.blocks:
            return self.boundaries[1:-1]
        return tuple(dict.fromkeys(part.site for part in self.blocks[0][:-1]))


@dataclass(frozen=True)
class Documents:
    """Numbers of each document of some runs, [runs, n] each."""

    likelihood: Tensor
    logit_difference: Tensor
    correct: Tensor


@dataclass(frozen=True, eq=False, repr=False)
class EffectTable(Frames):
    """A patching grid: per cell its means with intervals, and where judging needs them the documents one by one."""

    file: ClassVar[str] = "effects.safetensors"
    cells: tuple[Cell, ...]
    statuses: tuple[CellStatus, ...]
    reasons: tuple[str, ...]
    summary: Mapping[str, Tensor]
    """Metric to [cells, 3]: value, low and high; not a number where there is none."""
    unedited: Mapping[str, int]
    """'original' and 'corrupted SLOT', or these 'at READ': their rows in `documents`."""
    kept: Tensor
    """[cells] the row in `documents`, -1 where those numbers were not kept."""
    documents: Documents
    facts: Facts = field(repr=False)
    positions: Mapping[str, Tensor] = field(default_factory=dict)
    """Single place of a cell to [n] where it stands: several may be one and the same in a document. Empty in tables of
    before this was kept."""

    def sentence(self) -> str:
        """One line for people."""
        slots = ", ".join(self.slots)
        sites, n = len({cell.site for cell in self.cells}), self.facts.documents
        return f"{len(self.cells)} cells at {sites} sites, {slots} corrupted, {n} documents"

    def shaded(self) -> tuple[str, ...]:
        """The columns of shares."""
        return self.facts.roles

    def shown(self) -> Iterator[dict[str, Any]]:
        """The share that each role restores between the blocks, for a notebook; why it is none where there is none."""
        for slot in self.slots:
            for site in self.facts.boundaries or dict.fromkeys(cell.site for cell in self.cells):
                found = {role: self._shown(Cell(slot, "restore", site, role)) for role in self.facts.roles}
                if any(value is not None for value in found.values()):
                    yield {"restored": site, "corrupted": slot, **found}

    def _shown(self, cell: Cell) -> float | str | None:
        if cell not in self.index:
            return None
        found = self.estimate(cell, SHARE)
        status = self.statuses[self.index[cell]]
        return found.value if found else status if status != "measured" else "no gap"

    @property
    def slots(self) -> tuple[str, ...]:
        """Those of the grid, in order."""
        return self.facts.patched or tuple(dict.fromkeys(cell.slot for cell in self.cells))

    @cached_property
    def index(self) -> dict[Cell, int]:
        return {cell: i for i, cell in enumerate(self.cells)}

    def likelihood(self, name: Cell | str) -> Tensor:
        """[n] of a cell, or of an unedited run."""
        return self.documents.likelihood[self._row(name)].double()

    def has_documents(self, cell: Cell) -> bool:
        """Whether the numbers of single documents were kept for a cell."""
        return cell in self.index and int(self.kept[self.index[cell]]) >= 0

    def _row(self, name: Cell | str) -> int:
        row = self.unedited[name] if isinstance(name, str) else int(self.kept[self.index[name]])
        if row < 0:
            raise KeyError(name)
        return row

    def logit_difference(self, name: Cell | str) -> Tensor:
        """[n] of a cell, or of an unedited run."""
        return self.documents.logit_difference[self._row(name)].double()

    def correct(self, name: Cell | str) -> Tensor:
        """[n] whether the run of a cell, or an unedited one, answers rightly."""
        return self.documents.correct[self._row(name)]

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row per cell and metric. A cell that is not a number has the reason and no value."""
        columns = {metric: values.tolist() for metric, values in self.summary.items()}
        for i, cell in enumerate(self.cells):
            layer, component = place_of(cell.site)
            for metric in COLUMNS:
                value, low, high = columns[metric][i]
                known = value == value
                alone = JOINT not in cell.role and cell.head < 0
                if metric == BEST and not known and not (alone and self.statuses[i] == "invalid"):
                    continue
                yield {
                    "site": cell.site,
                    "layer": layer,
                    "component": component,
                    "slot": cell.slot,
                    "role": cell.role,
                    "read": cell.read or self.facts.first_read,
                    "head": cell.head if cell.head >= 0 else None,
                    "direction": cell.direction,
                    "edit": cell.edit,
                    "metric": metric,
                    "value": value if known else None,
                    "low": low if known else None,
                    "high": high if known else None,
                    "n": self.facts.documents,
                    "status": self.statuses[i],
                    "reason": self.reasons[i] if known or self.reasons[i] else NO_GAP,
                }

    def estimate(self, cell: Cell, metric: str) -> Estimate | None:
        """One number of the table."""
        value, low, high = self.summary[metric][self.index[cell]].tolist()
        return Estimate(value, low, high, self.facts.documents) if value == value else None

    def to_bytes(self) -> bytes:
        kinds = ("slot", "direction", "site", "role", "edit", "read")
        words = {kind: _each_once([getattr(cell, kind) for cell in self.cells]) for kind in kinds}
        words |= {"status": _each_once(self.statuses), "reason": _each_once(self.reasons)}
        columns = {kind: [words[kind].index(getattr(cell, kind)) for cell in self.cells] for kind in kinds}
        columns["status"] = [words["status"].index(status) for status in self.statuses]
        columns["reason"] = [words["reason"].index(reason) for reason in self.reasons]
        columns["head"] = [cell.head for cell in self.cells]
        tensors = {f"cells.{name}": torch.tensor(column, dtype=torch.int16) for name, column in columns.items()}
        tensors |= {f"summary.{name}": values.to(torch.float32).contiguous() for name, values in self.summary.items()}
        bits = np.packbits(self.documents.correct.numpy().astype(bool), axis=1)
        tensors |= {
            "cells.kept": self.kept.to(torch.int32),
            "documents.likelihood": self.documents.likelihood.contiguous(),
            "documents.logit_difference": self.documents.logit_difference.contiguous(),
            "documents.correct": torch.from_numpy(bits),
        }
        header = {"version": 1, "words": words, "unedited": dict(self.unedited), "facts": asdict(self.facts)}
        if self.positions:
            header["places"] = list(self.positions)
            tensors["positions"] = torch.stack([at.to(torch.int32) for at in self.positions.values()])
        # One entry: the order of several is not always the same.
        return safetensors.torch.save(tensors, metadata={"effects": json.dumps(header)})

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        try:
            return cls._of(header_of(data), safetensors.torch.load(data))
        except (safetensors.SafetensorError, ValueError, KeyError, IndexError, TypeError) as error:
            raise CorruptFile(f"this is no table of effects: {type(error).__name__}: {error}") from error

    @classmethod
    def _of(cls, header: dict[str, Any], tensors: dict[str, Tensor]) -> Self:
        words = header["words"]
        columns = {name.removeprefix("cells."): t.tolist() for name, t in tensors.items() if name.startswith("cells.")}
        said = {name: [words[name][i] for i in columns[name]] for name in words}
        reads = said.get("read", [""] * len(columns["head"]))  # tables from before there were several have none
        kinds = [said[kind] for kind in ("slot", "direction", "site", "role", "edit")]
        parts = zip(*kinds, columns["head"], reads, strict=True)
        likelihood = tensors["documents.likelihood"]
        bits = np.unpackbits(tensors["documents.correct"].numpy(), axis=1, count=likelihood.shape[1])
        facts = header["facts"]
        summary = {name.removeprefix("summary."): t for name, t in tensors.items() if name.startswith("summary.")}
        each = [*columns.values(), *(summary[metric] for metric in COLUMNS)]
        rows = [*header["unedited"].values(), *columns["kept"]]
        if len({len(column) for column in each}) > 1 or not all(-1 <= row < len(likelihood) for row in rows):
            raise ValueError("its parts do not fit together")
        return cls(
            cells=tuple(Cell(*part) for part in parts),
            statuses=tuple(said["status"]),
            reasons=tuple(said["reason"]),
            summary=summary,
            unedited=header["unedited"],
            kept=tensors["cells.kept"],
            documents=Documents(likelihood, tensors["documents.logit_difference"], torch.from_numpy(bits.astype(bool))),
            facts=Facts(
                documents=facts["documents"],
                roles=tuple(facts["roles"]),
                read=tuple(facts["read"]),
                boundaries=tuple(facts["boundaries"]),
                blocks=tuple(tuple(Part(**part) for part in block) for block in facts["blocks"]),
                mechanisms=tuple(_mechanism(m) for m in facts["mechanisms"]),
                together=tuple(facts["together"]),
                first_read=facts.get("first_read", "answer"),
                guessing=facts.get("guessing"),
                patched=tuple(facts.get("patched", ())),
            ),
            positions=dict(zip(header.get("places", ()), tensors.get("positions", ()), strict=True)),
        )


def _mechanism(said: dict[str, Any]) -> Mechanism:
    beside = tuple((slot, tuple(route)) for slot, route in said.get("beside", ()))
    return Mechanism(tuple(said["route"]), said["name"], said["meaning"], beside)


def half(values: Tensor) -> Tensor:
    """Half precision; what is larger than that can say becomes the largest."""
    return values.clamp(-MOST_HALF, MOST_HALF).to(torch.float16)


def _each_once(values: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(values))
