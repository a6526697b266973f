"""Documents on the device: those a model is scored on, and those it is trained on, cut into batches once."""

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
    """The training batches in their order: step i reads batch i, and after the last the first again."""

    tokens: Tensor
    """[p, b, t]"""
    read: Tensor
    """[p, b, q]"""
    targets: Tensor
    """[p, b, q]"""
    lengths: tuple[int, ...]
    """Of each batch, on the host: how many positions a step must compute."""
    order: Tensor
    """[p, b t]: the batch's first b * length positions, laid end to end, sorted by their token."""
    more: Mapping[str, Tensor] = field(default_factory=dict)
    """Name to [p, b, ...]: what the objective wants to know of each document."""

    @property
    def count(self) -> int:
        return len(self.lengths)

    @staticmethod
    def of(
        batch: Batch,
        train: TrainSpec,
        device: torch.device,
        multiple: int = 1,
        columns: Mapping[str, Tensor] | None = None,
    ) -> "Batches":
        """With lengths that are multiples of `multiple` where documents are that long: no model has to read more."""
        size = train.batch_size
        # Where the documents are not a multiple of the batch, the batches repeat only after several rounds.
        count = min(train.steps, len(batch) // math.gcd(len(batch), size))
        rows = (torch.arange(count)[:, None] * size + torch.arange(size)) % len(batch)
        read, targets = batch.scored()
        tokens, read, targets = batch.tokens[rows].to(device), read[rows].to(device), targets[rows].to(device)
        lengths = _rounded(read.where(targets != UNSCORED, 0).amax((1, 2)) + 1, multiple, tokens.shape[2])
        for name, column in (columns or {}).items():
            if len(column) != len(batch):
                raise UserError(f"the objective's column {name!r} has {len(column)} rows for {len(batch)} documents")
        more = {name: column[rows].to(device) for name, column in (columns or {}).items()}
        return Batches(tokens, read, targets, lengths, _by_token(tokens, lengths), more)


def _rounded(needed: Tensor, multiple: int, most: int) -> tuple[int, ...]:
    """Each number of positions rounded up to one of a few: the largest, a half of it, a quarter of it, ...

    Nothing after the last scored position can matter to a causal model, and a step is captured or compiled for each
    length it meets, so there must not be many.
    """
    offered = [min(most, _up(int(needed.max()), multiple))]
    while (half := _up(-(-offered[-1] // 2), multiple)) >= SHORTEST and half < offered[-1]:
        offered.append(half)
    return tuple(min(length for length in offered if length >= need) for need in needed.tolist())


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _by_token(tokens: Tensor, lengths: tuple[int, ...]) -> Tensor:
    order = torch.zeros(tokens.shape[0], tokens[0].numel(), dtype=torch.int32, device=tokens.device)
    for length in set(lengths):
        here = torch.tensor([i for i, other in enumerate(lengths) if other == length], device=tokens.device)
        flat = tokens[here, :, :length].flatten(1)
        order[here, : flat.shape[1]] = flat.argsort(dim=1, stable=True).to(torch.int32)
    return order
