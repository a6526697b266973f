"""Where the effect of an edit is measured: positions of the documents, and the symbols asked for there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from mixerscope.errors import UserError
from mixerscope.showing import Shown, counted
from mixerscope.tasks import UNSCORED, Batch

ANSWER = "answer"
"""The read of a document that asks for one thing."""
SCORED = "scored"
"""Every scored position, first to last: `scored:0`, `scored:1`, ..."""
OF_COUNTERFACTUAL = "counterfactual:"
"""`counterfactual:value` asks, where the answer is read, for the one that corrupting the value makes true."""


@dataclass(frozen=True, repr=False)
class Reads(Shown):
    """q positions of every document at which logits are read, each with a name."""

    names: tuple[str, ...]
    positions: Tensor
    """[n, q]"""
    targets: Tensor
    """[n, q] the symbols asked for."""
    others: Mapping[str, Tensor] = field(default_factory=dict)
    """By slot: [n, q] what they are compared with, the answer that the corrupted document has there; `UNSCORED` where
    it has none."""

    def sentence(self) -> str:
        """One line for people."""
        return f"{', '.join(self.names)} in {counted(len(self.targets), 'document')}"

    def __post_init__(self) -> None:
        shape = (len(self.targets), len(self.names))
        if self.positions.shape != shape or self.targets.shape != shape or len(set(self.names)) < len(self.names):
            raise UserError(f"reads need a position and a target for each of their names, got {', '.join(self.names)}")
        if not self.names:
            raise UserError("name at least one read, such as 'answer': nothing is measured without")

    def demand_within(self, batch: Batch) -> None:
        """Refuses reads that these documents do not have."""
        if len(self.targets) != len(batch):
            raise UserError(f"there are reads of {len(self.targets)} documents, and {len(batch)} documents")
        length = batch.tokens.shape[1]
        for name, at, asked in zip(self.names, self.positions.T, self.targets.T, strict=True):
            outside = int(((at < 0) | (at >= length)).sum())
            if outside:
                raise UserError(f"read {name!r} lies outside the document in {outside} of {len(batch)} documents")
            if bool((asked < 0).any()):
                raise UserError(f"nothing is asked at {name!r} in {int((asked < 0).sum())} of {len(batch)} documents")

    @classmethod
    def answer(cls, batch: Batch) -> Self:
        """The one answer of each document."""
        positions, targets = batch.answers()
        return cls((ANSWER,), positions[:, None], targets[:, None])

    @classmethod
    def at(cls, batch: Batch, positions: Mapping[str, Tensor]) -> Self:
        """Scored positions [n] of the documents, by name."""
        columns = torch.stack([*positions.values()], 1)
        targets = batch.targets.gather(1, columns)
        for name, unasked in zip(positions, (targets == UNSCORED).sum(0).tolist(), strict=True):
            if unasked:
                raise UserError(f"nothing is asked at {name!r} in {unasked} of {len(batch)} documents")
        return cls(tuple(positions), columns, targets)

    @classmethod
    def scored(cls, batch: Batch) -> Self:
        """Every scored position of documents that have equally many."""
        positions, targets = batch.scored()
        if bool((targets == UNSCORED).any()):
            raise UserError("these documents are not asked at equally many positions, so those cannot be read as one")
        return cls(tuple(f"{SCORED}:{number}" for number in range(positions.shape[1])), positions, targets)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def last(self) -> Tensor:
        """[n] the last position that is read."""
        return self.positions.amax(1)

    def compared_with(self, slot: str, became: Tensor, original: Batch) -> Self:
        """The same, given what corrupting a slot makes true at every position, [n, t]. A read that asks for it already
        is compared with the answer of the original."""
        found, asked = became.gather(1, self.positions), original.targets.gather(1, self.positions)
        return replace(self, others={**self.others, slot: found.where(self.targets == asked, asked)})

    def of_counterfactual(self, name: str, became: Tensor) -> Self:
        """The one read, asking for what corrupting a slot makes true [n, t]."""
        targets = became.gather(1, self.positions)
        missing = int(((targets == UNSCORED) | (targets == self.targets)).sum())
        if missing:
            raise UserError(f"{name}: {missing} of {len(targets)} corrupted documents have no other answer to ask for")
        return replace(self, names=(name,), targets=targets)

    @classmethod
    def joined(cls, parts: Sequence["Reads"]) -> Self:
        """All of them; what they are compared with is left to be said."""
        names = tuple(name for part in parts for name in part.names)
        return cls(names, torch.cat([p.positions for p in parts], 1), torch.cat([p.targets for p in parts], 1))

    def only(self, names: Sequence[str]) -> "Reads":
        """Those with these names."""
        kept = [self.names.index(name) for name in names]
        others = {slot: symbols[:, kept] for slot, symbols in self.others.items()}
        return Reads(tuple(names), self.positions[:, kept], self.targets[:, kept], others)

    def rows(self, part: slice) -> "Reads":
        """Those of some documents."""
        others = {slot: symbols[part] for slot, symbols in self.others.items()}
        return Reads(self.names, self.positions[part], self.targets[part], others)

    def to(self, device: torch.device) -> "Reads":
        """The same on a device."""
        others = {slot: symbols.to(device) for slot, symbols in self.others.items()}
        return Reads(self.names, self.positions.to(device), self.targets.to(device), others)
