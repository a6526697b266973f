"""Documents on the device: those a model is scored on, and those it is trained on, cut into batches once."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mixerscope.errors import UserError
from mixerscope.spec import TrainSpec
from mixerscope.tasks import UNSCORED, Batch

SHORTEST = 16
"""Batches are not cut shorter than this: a step would not become cheaper."""
WORTH = 0.75
"""Of the positions of whole batches: batches are parted if that leaves at most this, since each part is launched."""
LENGTHS_OF_A_PART = 3
"""A step is captured for each pair of lengths that it meets, and compiled for each length of a part."""
CANDIDATES = 32
"""Lengths among which those of a part are chosen, at most: the longest has so many steps."""


_Part = tuple[int, list[int]]
"""How many documents of each batch, and how long they are computed in each."""


@dataclass(frozen=True)
class Documents:
    """What scoring needs of a batch, on the device: tokens [n, t], scored positions and targets [n, q]."""

    tokens: Tensor
    read: Tensor
    targets: Tensor

    @staticmethod
    def of(batch: Batch, device: torch.device) -> "Documents":
        read, targets = batch.scored()
        return Documents(batch.tokens.to(device), read.to(device), targets.to(device))


@dataclass(frozen=True)
class Batches:
    """The training batches in their order: step i reads batch i, and after the last the first again.

    A batch is one part, or two: first its longest documents, then the others, which need fewer positions.
    """

    tokens: Tensor
    """[p, b, t]"""
    read: Tensor
    """[p, b, q]"""
    targets: Tensor
    """[p, b, q]"""
    sizes: tuple[int, ...]
    """Documents in each part of a batch, the same for all batches."""
    lengths: tuple[tuple[int, ...], ...]
    """Of each batch and its parts, on the host: how many positions a step must compute."""
    order: Tensor
    """[p, b t]: of each part, one after the other, the n * length positions, laid end to end, sorted by token."""
    more: Mapping[str, Tensor] = field(default_factory=dict)
    """Name to [p, b, ...]: what the objective wants to know of each document."""

    @property
    def count(self) -> int:
        return len(self.lengths)

    @property
    def positions(self) -> float:
        """That a step computes, on average over the batches."""
        computed = [size * length for lengths in self.lengths for size, length in zip(self.sizes, lengths, strict=True)]
        return sum(computed) / self.count

    @property
    def covering(self) -> list[tuple[int, ...]]:
        """A few of the `lengths` in which every part has each length that it ever has: what is compiled for one part
        does not depend on how long the others are."""
        kinds = sorted(set(self.lengths))
        left = {own for lengths in kinds for own in enumerate(lengths)}
        found: list[tuple[int, ...]] = []
        while left:
            found.append(max(kinds, key=lambda lengths: len(left.intersection(enumerate(lengths)))))
            left.difference_update(enumerate(found[-1]))
        return found

    @property
    def shares(self) -> tuple[float, ...]:
        """Of each part in the loss of its batch, which is a mean over documents that are scored equally often."""
        return tuple(size / sum(self.sizes) for size in self.sizes)

    @staticmethod
    def of(
        batch: Batch,
        train: TrainSpec,
        device: torch.device,
        multiple: int = 1,
        columns: Mapping[str, Tensor] | None = None,
        *,
        in_parts: bool = False,
    ) -> "Batches":
        """With lengths that are multiples of `multiple` where documents are that long: no model has to read more.

        `in_parts`: the order of documents inside a batch is free, so that the longest can be a part of their own.
        """
        size = train.batch_size
        # Where the documents are not a multiple of the batch, the batches repeat only after several rounds.
        count = min(train.steps, len(batch) // math.gcd(len(batch), size))
        rows = (torch.arange(count)[:, None] * size + torch.arange(size)) % len(batch)
        read, targets = batch.scored()
        scored = (targets != UNSCORED).sum(1)
        needed = (read.where(targets != UNSCORED, 0).amax(1) + 1)[rows]  # [p, b]
        offered = _offered(int(needed.max()), multiple, batch.tokens.shape[1])
        parts = [(size, _rounded(needed.amax(1), offered))]
        if in_parts and bool((scored == scored[0]).all()):
            needed, order = needed.sort(stable=True, dim=1, descending=True)
            parted = _parted(needed, multiple, batch.tokens.shape[1])
            if _positions(parted) <= WORTH * _positions(parts):
                parts, rows = parted, rows.gather(1, order)
        sizes = tuple(number for number, _ in parts)
        lengths = tuple(zip(*(own for _, own in parts), strict=True))
        tokens, read, targets = batch.tokens[rows].to(device), read[rows].to(device), targets[rows].to(device)
        for name, column in (columns or {}).items():
            if len(column) != len(batch):
                raise UserError(f"the objective's column {name!r} has {len(column)} rows for {len(batch)} documents")
        more = {name: column[rows].to(device) for name, column in (columns or {}).items()}
        return Batches(tokens, read, targets, sizes, lengths, _by_token(tokens, sizes, lengths), more)


def _offered(needed: int, multiple: int, most: int) -> list[int]:
    """The lengths that batches may have, ascending: the longest that is needed, a half of it, a quarter of it, ...

    Nothing after the last scored position can matter to a causal model, and a step is captured or compiled for each
    length it meets, so there must not be many.
    """
    offered = [min(most, _up(needed, multiple))]
    while (half := _up(-(-offered[-1] // 2), multiple)) >= SHORTEST and half < offered[-1]:
        offered.append(half)
    return offered[::-1]


def _rounded(needed: Tensor, offered: list[int]) -> list[int]:
    """Each number of positions rounded up to one that is offered."""
    known = torch.tensor(offered)
    return known[torch.searchsorted(known, needed.contiguous())].tolist()


def _parted(needed: Tensor, multiple: int, most: int) -> list[_Part]:
    """Of batches whose documents' needs [p, b] descend, so many of the first, and the others: those that leave the
    fewest positions to compute."""
    size = needed.shape[1]

    def parts(first: int) -> list[_Part]:
        own = [part[:, 0] for part in needed.split([first, size - first], 1)]
        fitted = [_rounded(longest, _fitting(longest, multiple, most)) for longest in own]
        return list(zip((first, size - first), fitted, strict=True))

    return min(map(parts, range(2, size, 2)), key=_positions, default=[(size, [most] * len(needed))])


def _positions(parts: list[_Part]) -> int:
    return sum(documents * sum(lengths) for documents, lengths in parts)


def _fitting(needed: Tensor, multiple: int, most: int) -> list[int]:
    """Up to three lengths, ascending, that leave the fewest positions if each number is rounded up to one of them."""
    step = _up(max(multiple, int(needed.max()) // CANDIDATES), multiple)
    rounded = ((needed.clamp(min=SHORTEST) + step - 1) // step * step).clamp(max=most)
    lengths, counts = (found.tolist() for found in rounded.unique(return_counts=True))
    before = [0, *itertools.accumulate(counts)]
    # By how many of the shortest lengths are covered: the positions of these, and the lengths that cover them.
    best: list[tuple[int, list[int]]] = [
        (0, []),
        *((length * before[i + 1], [length]) for i, length in enumerate(lengths)),
    ]
    for _ in range(LENGTHS_OF_A_PART - 1):
        best = [best[0]] + [
            min((best[j][0] + length * (before[i + 1] - before[j]), [*best[j][1], length]) for j in range(i + 1))
            for i, length in enumerate(lengths)
        ]
    return best[-1][1]


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _by_token(tokens: Tensor, sizes: tuple[int, ...], lengths: tuple[tuple[int, ...], ...]) -> Tensor:
    order = torch.zeros(tokens.shape[0], tokens[0].numel(), dtype=torch.int32, device=tokens.device)
    for kind in set(lengths):
        here = torch.tensor([i for i, other in enumerate(lengths) if other == kind], device=tokens.device)
        start = 0
        for part, length in zip(tokens[here].split(sizes, 1), kind, strict=True):
            flat = part[:, :, :length].flatten(1)
            order[here, start : start + flat.shape[1]] = flat.argsort(dim=1, stable=True).to(torch.int32)
            start += flat.shape[1]
    return order
