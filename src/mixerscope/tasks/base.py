"""What a task is: documents, the counterfactuals made of them, and an independent solver."""

import hashlib
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from mixerscope.errors import UnknownName
from mixerscope.spec.base import Spec

UNSCORED = -100
"""Target of a position that is not scored."""

Split = Literal["train", "dev", "test"]
Symbols = Literal["query-class", "slot-class"]


@dataclass(frozen=True)
class Batch:
    """Documents as tensors. `targets[i, t]` is what the logits at position t of document i should predict."""

    tokens: Tensor
    """[n, t] token ids."""
    targets: Tensor
    """[n, t] token ids, `UNSCORED` where nothing is asked."""
    roles: Mapping[str, Tensor] = field(default_factory=dict)
    """Name to [n] positions: where in each document the key, the value, the query, ... stand."""
    labels: Mapping[str, Tensor] = field(default_factory=dict)
    """Name to [n] facts about each document, for grouping results."""

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def __getitem__(self, index: slice | Tensor) -> "Batch":
        return Batch(
            self.tokens[index],
            self.targets[index],
            {name: at[index] for name, at in self.roles.items()},
            {name: label[index] for name, label in self.labels.items()},
        )

    def role(self, name: str) -> Tensor:
        """[n] positions of a role."""
        if name not in self.roles:
            raise UnknownName("role", name, self.roles)
        return self.roles[name]

    def scored(self) -> tuple[Tensor, Tensor]:
        """[n, q] scored positions and their targets. A document with fewer than q repeats position 0, unscored."""
        asked = self.targets != UNSCORED
        count = int(asked.sum(1).max()) if len(self) else 0
        # A stable sort on "not asked" brings the asked positions to the front, in their order.
        positions = torch.argsort((~asked).to(torch.int8), dim=1, stable=True)[:, :count]
        targets = self.targets.gather(1, positions)
        return positions.where(targets != UNSCORED, torch.zeros_like(positions)), targets

    def answers(self) -> tuple[Tensor, Tensor]:
        """[n] position and token of the one answer of each document; for documents with a single query."""
        positions, targets = self.scored()
        if positions.shape[1] != 1 or bool((targets == UNSCORED).any()):
            raise ValueError("these documents do not have exactly one scored position each")
        return positions[:, 0], targets[:, 0]

    def sha256(self) -> str:
        """Hash of tokens, targets and roles."""
        sha = hashlib.sha256()
        for name, tensor in [("tokens", self.tokens), ("targets", self.targets), *sorted(self.roles.items())]:
            sha.update(f"{name}{tuple(tensor.shape)}".encode())
            sha.update(tensor.to(torch.int64).contiguous().numpy().tobytes())
        return sha.hexdigest()


class Task(Spec):
    """A synthetic task. Fields are its only configuration; all randomness comes from the generator passed in."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Rows of the model's embedding."""

    @property
    @abstractmethod
    def max_length(self) -> int:
        """Tokens of the longest document."""

    @property
    @abstractmethod
    def slots(self) -> tuple[str, ...]:
        """Roles whose token `corrupt` can change."""

    @abstractmethod
    def sample(self, n: int, rng: torch.Generator, split: Split = "train") -> Batch:
        """n documents."""

    @abstractmethod
    def corrupt(
        self,
        batch: Batch,
        slot: str,
        rng: torch.Generator,
        symbols: Symbols = "query-class",
        avoid_present: bool = False,
    ) -> Batch:
        """The counterfactual: the same documents with the token at `slot` changed, targets as they were."""

    @abstractmethod
    def solve(self, batch: Batch) -> Tensor:
        """[n, q] answers to the scored positions, found from the documents alone, not from how they were made."""

    @abstractmethod
    def symbol(self, token: int) -> str:
        """A token as people write it."""

    def single_query(self) -> "Task":
        """The same task with one query per document, on which models are evaluated and taken apart."""
        return self


def other_symbol(original: Tensor, first: int, count: int, rng: torch.Generator) -> Tensor:
    """[n] tokens uniform over [first, first + count) without the original one."""
    inside = (original >= first) & (original < first + count)
    draw = torch.rand(original.shape, generator=rng)
    index = (draw * (count - inside.to(draw.dtype))).long()
    return first + index + (inside & (index >= original - first)).long()


def redraw_present(tokens: Tensor, drawn: Tensor, first: int, count: int, rng: torch.Generator) -> Tensor:
    """`drawn`, with symbols that stand in their document replaced by uniform ones of the class that do not."""
    free = torch.ones(len(tokens), count, dtype=torch.bool)
    at = tokens - first
    of_class = (at >= 0) & (at < count)
    # Tokens of other classes are sent to a spare column that is cut off again.
    free = torch.cat([free, torch.ones(len(tokens), 1, dtype=torch.bool)], 1)
    free.scatter_(1, at.where(of_class, torch.full_like(at, count)), False)
    free = free[:, :count]
    if not bool(free.any(1).all()):
        raise ValueError(f"avoid_present: some documents already hold all {count} symbols of the class")
    present = ~free.gather(1, (drawn - first)[:, None])[:, 0]
    if bool(present.any()):
        weights = free[present].to(torch.float32)
        drawn = drawn.clone()
        drawn[present] = first + torch.multinomial(weights, 1, generator=rng)[:, 0]
    return drawn


def distinct_rows(n: int, count: int, of: int, rng: torch.Generator) -> Tensor:
    """[n, count] ids below `of`, distinct within each row, uniform over all ordered choices."""
    if count * (count - 1) / 2 > 2 * of:  # rejection would repeat often; sort random keys, some rows at a time
        chunk = max(1, 2**22 // of)
        parts = [
            torch.rand(min(chunk, n - start), of, generator=rng).argsort(1)[:, :count] for start in range(0, n, chunk)
        ]
        return torch.cat(parts) if parts else torch.empty(0, count, dtype=torch.int64)
    rows = torch.randint(of, (n, count), generator=rng)
    while True:
        ordered = rows.sort(1).values
        clash = (ordered[:, 1:] == ordered[:, :-1]).any(1).nonzero()[:, 0]
        if len(clash) == 0:
            return rows
        rows[clash] = torch.randint(of, (len(clash), count), generator=rng)
