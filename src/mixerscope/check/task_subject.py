"""A task that is under test, and what its properties are seen with."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from mixerscope.check.outcome import demand
from mixerscope.randomness import stream
from mixerscope.spec.base import parse
from mixerscope.tasks.base import PAD, UNSCORED, Batch, Split, Task

DOCUMENTS = 200


@dataclass(frozen=True)
class TaskSubject:
    """A task class with the settings it is tried with."""

    cls: type[Task]
    given: Mapping[str, Any] = field(default_factory=dict)
    """Fields that differ from the defaults."""

    @cached_property
    def task(self) -> Task:
        return parse(self.cls, dict(self.given))

    @cached_property
    def single(self) -> Task:
        return self.task.single_query()

    def sample(self, split: Split = "train", seed: int = 0, n: int = DOCUMENTS) -> Batch:
        return self.task.sample(n, stream(seed, "check", "documents"), split)

    @cached_property
    def asked_once(self) -> Batch:
        """Documents with one query each."""
        return self.single.sample(DOCUMENTS, stream(0, "check", "single query"))


def fingerprint(batch: Batch) -> str:
    """Hash of everything in a batch, labels included."""
    labels = {f"label {name}": label for name, label in batch.labels.items()}
    return replace(batch, roles={**batch.roles, **labels}).sha256()


def unanswered(batch: Batch) -> Batch:
    """The same questions without the answers: neither in the targets nor behind the last question."""
    scored = batch.targets != UNSCORED
    at = torch.arange(batch.tokens.shape[1])
    last = torch.where(scored, at, -1).amax(1, keepdim=True)
    tokens = batch.tokens.where(at <= last, PAD)
    return replace(batch, tokens=tokens, targets=torch.where(scored, PAD, UNSCORED))


def untold(batch: Batch) -> Batch:
    """The same documents, each with the roles and labels of its neighbour: a solver that reads what it was told about
    where things stand is wrong in them. What holds for all documents stays as it is, and so do labels of single tokens,
    which are part of some documents, as trees are."""
    roles = {name: place.roll(1, 0) for name, place in batch.roles.items()}
    labels = {name: label.roll(1, 0) if label.dim() == 1 else label for name, label in batch.labels.items()}
    return replace(batch, roles=roles, labels=labels)


def same_answers(found: Tensor, expected: Tensor, otherwise: str) -> None:
    demand(found.shape == expected.shape, f"`solve` gives {list(found.shape)}, asked are {list(expected.shape)}")
    wrong = (found != expected).any(1)
    demand(not wrong.any(), f"{otherwise} {counted(wrong)}")


def counted(bad: Tensor) -> str:
    return f"in {int(bad.sum())} of {len(bad)} documents"
