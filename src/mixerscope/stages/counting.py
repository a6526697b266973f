"""Right answers of fixed documents of several lengths, counted with and without edits."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from mixerscope.analysis import ratio_estimate
from mixerscope.interventions.members import Members
from mixerscope.interventions.tagging import Change, right_answers, right_with_each
from mixerscope.tasks import UNSCORED, Batch

LEAST_KNOWN = 0.2
"""Accuracy above guessing that a model must have for damage to mean anything."""
DIGITS = 5
Ends = tuple[float | None, float | None]
"""Of an interval; None where nothing is known."""


@dataclass
class Counting:
    """Documents of each length, and what the models get right of them."""

    members: Members
    seen: list[Batch]

    def __post_init__(self) -> None:
        self._right = [self.right(at, lambda batch: right_answers(self.members, batch)) for at in range(len(self.seen))]
        right = [self.accuracies(at, right) for at, right in enumerate(self._right)]
        self.clean = [tuple(row) for row in zip(*([own for [own] in found] for found in right), strict=True)]
        self.guessing = tuple(most_frequent(batch.targets) for batch in self.seen)

    def right(self, at: int, answering: Callable[[Batch], Tensor]) -> Tensor:
        """[k, 1, n] right answers of each document of a length, of any way of answering that gives [k, n, t] what is
        right."""
        return answering(self.seen[at]).sum(-1)[:, None]

    def with_each(self, at: int, site: str, change: Change, *each: Tensor) -> Tensor:
        """[k, v, n] the same with each of several edits of a site."""
        return right_with_each(self.members, self.seen[at], site, change, *each).sum(-1)

    def erasing(self, at: int, site: str, mean: Tensor, matrices: Tensor) -> Tensor:
        """The same with each of the maps [k, v, d, d] of what is about a mean [k, 1, d] erased."""
        return self.with_each(at, site, without, matrices, mean[:, None].expand(-1, matrices.shape[1], -1, -1))

    def accuracies(self, at: int, right: Tensor) -> list[list[float]]:
        """By model and edit, of right answers [k, v, n]."""
        asked = (self.seen[at].targets != UNSCORED).sum()
        return [rounded(row) for row in (right.sum(-1).double() / asked).tolist()]

    def known(self, k: int, at: int) -> bool:
        """Whether a model knows enough at a length for damage to mean anything."""
        return self.clean[k][at] - self.guessing[at] >= LEAST_KNOWN

    def damage(self, k: int, at: int, accuracy: float) -> float | None:
        """The share of what a model knows beyond guessing that is lost."""
        return lost(self.clean[k][at], accuracy, self.guessing[at])

    def damage_ends(self, k: int, at: int, right: Tensor) -> Ends:
        """The interval of that share over documents, of the right answers [n] that are left."""
        [[accuracy]] = self.accuracies(at, right[None, None])
        value, clean = self.damage(k, at, accuracy), self._right[at][k, 0]
        found = ratio_estimate(clean - right, clean - usual(self.seen[at].targets).sum(1))
        if value is None or found is None:
            return None, None
        # The share itself is among them, however accuracies are rounded.
        return min(value, round(found.low, DIGITS)), max(value, round(found.high, DIGITS))


def without(x: Tensor, matrix: Tensor, mean: Tensor) -> Tensor:
    """x [v, b, t, d] less what maps [v, d, d] make of it about a mean [v, 1, d]."""
    flat = x.flatten(1, 2)
    return (flat - (flat - mean.to(x.dtype)) @ matrix.to(x.dtype)).view_as(x)


def lost(clean: float, left: float, guessing: float) -> float | None:
    """None where there is too little to lose."""
    return None if clean - guessing < LEAST_KNOWN else round((clean - left) / (clean - guessing), DIGITS)


def usual(targets: Tensor) -> Tensor:
    """Where [n, t] the answer that is right most often is right."""
    return targets == targets[targets != UNSCORED].mode().values


def most_frequent(targets: Tensor) -> float:
    """Accuracy of that answer."""
    return float(usual(targets).sum().double() / (targets != UNSCORED).sum())


def rounded(values: list[float]) -> list[float]:
    return [round(value, DIGITS) for value in values]
