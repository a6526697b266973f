"""Right answers of fixed documents of several lengths, counted with and without edits."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from mixerscope.interventions.members import Members
from mixerscope.interventions.tagging import Change, right_answers, right_with_each
from mixerscope.tasks import UNSCORED, Batch

LEAST_KNOWN = 0.2
"""Accuracy above guessing that a model must have for damage to mean anything."""
DIGITS = 5


@dataclass
class Counting:
    """Documents of each length, and what the models get right of them."""

    members: Members
    seen: list[Batch]

    def __post_init__(self) -> None:
        right = [self.share(at, lambda batch: right_answers(self.members, batch)) for at in range(len(self.seen))]
        self.clean = [tuple(row) for row in zip(*right, strict=True)]
        self.guessing = tuple(most_frequent(batch.targets) for batch in self.seen)

    def share(self, at: int, answering: Callable[[Batch], Tensor]) -> list[float]:
        """By model: the accuracy at one of the lengths, of any way of answering that gives [k, n, t] what is right."""
        batch = self.seen[at]
        right = answering(batch).sum((1, 2)).double() / (batch.targets != UNSCORED).sum()
        return rounded(right.tolist())

    def with_each(self, at: int, site: str, change: Change, *each: Tensor) -> list[list[float]]:
        """By model: the accuracies at one of the lengths with each of several edits of a site."""
        right = right_with_each(self.members, self.seen[at], site, change, *each).sum(-1).double()
        return [rounded(row) for row in (right / (self.seen[at].targets != UNSCORED).sum()).tolist()]

    def erasing(self, at: int, site: str, mean: Tensor, matrices: Tensor) -> list[list[float]]:
        """The same with each of the maps [k, v, d, d] of what is about a mean [k, 1, d] erased."""
        return self.with_each(at, site, without, matrices, mean[:, None].expand(-1, matrices.shape[1], -1, -1))

    def known(self, k: int, at: int) -> bool:
        """Whether a model knows enough at a length for damage to mean anything."""
        return self.clean[k][at] - self.guessing[at] >= LEAST_KNOWN

    def damage(self, k: int, at: int, accuracy: float) -> float | None:
        """The share of what a model knows beyond guessing that is lost."""
        return lost(self.clean[k][at], accuracy, self.guessing[at])


def without(x: Tensor, matrix: Tensor, mean: Tensor) -> Tensor:
    """x [v, b, t, d] less what maps [v, d, d] make of it about a mean [v, 1, d]."""
    flat = x.flatten(1, 2)
    return (flat - (flat - mean.to(x.dtype)) @ matrix.to(x.dtype)).view_as(x)


def lost(clean: float, left: float, guessing: float) -> float | None:
    """None where there is too little to lose."""
    return None if clean - guessing < LEAST_KNOWN else round((clean - left) / (clean - guessing), DIGITS)


def most_frequent(targets: Tensor) -> float:
    """Accuracy of the answer that is right most often."""
    asked = targets[targets != UNSCORED]
    return float((asked == asked.mode().values).double().mean())


def rounded(values: list[float]) -> list[float]:
    return [round(value, DIGITS) for value in values]
