"""Numbers that the claims are tested with, of the models of each cell that passed the gate."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple, TypeVar

from mixerscope.analysis.prediction import resampled
from mixerscope.analysis.readability import distance, flip, goes_with, profile
from mixerscope.experiments.task_flip.models import Cell, Erasure, Model
from mixerscope.experiments.task_flip.pretrained import Tuned
from mixerscope.experiments.task_flip.study import BRACKETS, PARITY, S3, TRANSFORMER

LAYERS = 4
REFITTED = ("leace", "iterated projection")
"""Erasures that go on until a fresh probe should read nothing."""
LEAST_DAMAGE = 0.05
"""Share of what a model knows beyond guessing; less is none."""
Controls = Literal["variance", "rank"]
VARIANCE, RANK = "variance", "rank"
"""What random subspaces have in common with an erasure."""
DRAWS = 4_000
"""Of seeds: with 500 the ends of intervals moved by 0.006 (a standard deviation) with the draws, and some outcomes are
decided within that."""
Key = TypeVar("Key")
Item = TypeVar("Item")
Name = tuple[str, str]
"""Task and architecture."""


@dataclass(frozen=True)
class Cells:
    """The models of every cell."""

    models: Mapping[Cell, Sequence[Model]]
    tuned: Sequence[Tuned] = ()
    """Pretrained ones that were fine-tuned."""
    hard: bool = False
    """Whether curves are of positions where the last token does not tell the answer."""

    def of(self, task: str, architecture: str, layers: int = LAYERS) -> Sequence[Model]:
        return self.models.get((task, architecture, layers), ())

    def curves(self, task: str, architecture: str, layers: int = LAYERS) -> list[list[float]]:
        """Readability of the answer over the boundaries, a curve a seed."""
        models = self.of(task, architecture, layers)
        found = (model.hard_curve if self.hard else model.curve for model in models)
        return [curve for curve in found if curve is not None]

    def fewest(self, names: Sequence[Name]) -> int:
        """Curves of the cell that has fewest."""
        return min((len(self.curves(*name)) for name in names), default=0)

    def mean_curve(self, task: str, architecture: str) -> list[float] | None:
        curves = self.curves(task, architecture)
        return [statistics.fmean(values) for values in zip(*curves, strict=True)] if curves else None

    def interval(
        self, names: Sequence[Name], statistic: "Callable[[Cells], float | None]"
    ) -> tuple[float | None, float | None]:
        """Of a statistic of some cells, over seeds."""
        own = {(*name, LAYERS): self.of(*name) for name in names}
        return resampled(own, lambda again: statistic(Cells(again, hard=self.hard)), DRAWS)

    @staticmethod
    def interval_of(
        numbers: Mapping[Key, Sequence[Item]], statistic: Callable[[Mapping[Key, Sequence[Item]]], float | None]
    ) -> tuple[float | None, float | None]:
        """The same of numbers, or whatever else there is one of a seed."""
        return resampled(numbers, statistic, DRAWS)


def lateness(cells: Cells, task: str, architecture: str) -> float | None:
    """Mean over seeds of the depth at which readability is gained."""
    found = [late for curve in cells.curves(task, architecture) if (late := _lateness_of(tuple(curve))) is not None]
    return statistics.fmean(found) if found else None


@cache
def _lateness_of(curve: tuple[float, ...]) -> float | None:
    """The same curves are drawn again and again."""
    return profile(curve).lateness


def flip_of(cells: Cells, others: Sequence[str]) -> float | None:
    """Mean of the flip over recurrent architectures; None where some curve never rises."""
    found: list[float] = []
    attention = lateness(cells, PARITY, TRANSFORMER), lateness(cells, BRACKETS, TRANSFORMER)
    for name in others:
        recurrent = lateness(cells, PARITY, name), lateness(cells, BRACKETS, name)
        if None in recurrent or None in attention:
            return None
        found.append(flip(recurrent, attention))  # type: ignore[arg-type]
    return statistics.fmean(found)


Curve = Sequence[float]


def grouping_of(
    cells: Cells,
    task: str,
    architectures: Sequence[str],
    how: Callable[[Curve, Curve, Curve], float] = goes_with,
) -> float | None:
    """Mean over architectures of whether a task's curve goes with parity's; above 0 it does."""
    found: list[float] = []
    for name in architectures:
        asked, parity, brackets = (cells.mean_curve(each, name) for each in (task, PARITY, BRACKETS))
        if asked is None or parity is None or brackets is None:
            return None
        found.append(how(asked, parity, brackets))
    return statistics.fmean(found) if found else None


def apart_of(cells: Cells, task: str, other: str, architectures: Sequence[str]) -> float:
    """Mean over architectures, which have both, of the distance between the curves of two tasks."""
    curves = [(cells.mean_curve(task, name), cells.mean_curve(other, name)) for name in architectures]
    return statistics.fmean(distance(one, two) for one, two in curves if one is not None and two is not None)


def convolution_grouping(
    cells: Cells, architectures: Sequence[str], blocks: Callable[[Model], list[float]]
) -> float | None:
    """The same of numbers about short convolutions, block by block; None where they were not measured."""
    found: list[float] = []
    for name in architectures:
        asked, parity, brackets = (_mean_of_blocks(cells.of(task, name), blocks) for task in (S3, PARITY, BRACKETS))
        if not asked or not parity or not brackets:
            return None
        found.append(goes_with(asked, parity, brackets))
    return statistics.fmean(found) if found else None


def _mean_of_blocks(models: Sequence[Model], blocks: Callable[[Model], list[float]]) -> list[float]:
    known = [own for own in map(blocks, models) if own]
    return [statistics.fmean(values) for values in zip(*known, strict=True)]


def inner(model: Model, method: str) -> list[Erasure]:
    """Erasures at boundaries with a block before and behind them: at the first there is but the token, and behind the
    last the head reads what is there, whatever came before."""
    last = model.cell[2]
    return [one for one in model.erasures if one.method == method and 0 < one.boundary < last]


def damages(
    models: Sequence[Model], method: str | None, longer: bool = False, controls: Controls = VARIANCE
) -> list[float]:
    """A number a model: the damage at the inner boundary that reads best. Without a method, at the one that reads best
    of those where a refit says that an erasure took the label, the milder of them, beyond that of random subspaces; in
    longer documents of those of the same variance alone."""
    return [one.damage for one in missed(models, method, longer, controls)]


class Missed(NamedTuple):
    """What erasing costs one model."""

    damage: float
    readability: float | None
    """Of the answer, where it was erased; None where it could not be measured."""
    best: bool
    """Whether no other inner boundary reads more."""


def missed(
    models: Sequence[Model], method: str | None, longer: bool = False, controls: Controls = VARIANCE
) -> list[Missed]:
    """`damages`, and where they are."""
    found: list[Missed] = []
    for model in models:
        if method is not None:
            known = inner(model, method)
        else:
            # In longer documents too a fresh probe must read nothing any more.
            whole = [one for way in REFITTED for one in inner(model, way)]
            known = [one for one in whole if (not one.longer_left if longer else one.speaks)]
        values = [
            (-one.before, value, one.boundary)
            for one in known
            if (value := _damage(one, method is None, longer, controls)) is not None
        ]
        if values:
            before, value, at = min(values)
            most = max(one.before for way in REFITTED for one in inner(model, way)) if method is None else -before
            found.append(Missed(value, None if model.curve is None else model.curve[at], -before >= most))
    return found


def refitted_damages(models: Sequence[Model], beyond: bool = True) -> list[float]:
    """A number a model: in longer documents, the damage by what was found there, at the inner boundary that reads best,
    the milder of two ways, beyond that of the random subspaces that the training length's erasure is compared with, or
    as it is. The same models either way."""
    found: list[float] = []
    for model in models:
        known = [one for way in REFITTED for one in inner(model, way)]
        values = [
            (one.before, one.refitted - (one.longer_controls if beyond else 0.0))
            for one in known
            if one.refitted is not None and one.longer_controls is not None
        ]
        if values:
            best = max(before for before, _ in values)
            found.append(min(value for before, value in values if before == best))
    return found


def where_it_reads_best(models: Sequence[Model], method: str) -> list[Erasure]:
    """The erasure at the inner boundary that reads best, one a model."""
    known = [inner(model, method) for model in models]
    return [max(own, key=lambda one: one.before) for own in known if own]


def _damage(one: Erasure, beyond: bool, longer: bool, controls: Controls) -> float | None:
    damage = one.longer if longer else one.damage
    if not beyond:
        return damage
    drawn = one.longer_controls if longer else one.controls if controls == VARIANCE else one.by_rank
    return None if damage is None or drawn is None else damage - drawn


class Compared(NamedTuple):
    """The boundaries of one model."""

    differ: bool
    """Whether the one that reads best is another than that where erasing hurts most."""
    among: int
    """Boundaries of which both were told."""


def compared_boundaries(models: Sequence[Model], method: str | None = None) -> list[Compared]:
    """The inner boundary that reads best, and that where erasing hurts most. Without a method, by erasures of which a
    refit says that they took the label, the milder of them. Of models in which two boundaries can be compared, and one
    of them is missed at all."""
    found: list[Compared] = []
    for model in models:
        hurt: dict[int, tuple[float, float]] = {}
        for way in REFITTED if method is None else (method,):
            for one in inner(model, way):
                if one.damage is not None and (method is not None or one.speaks):
                    _, damage = hurt.get(one.boundary, (0.0, one.damage))
                    hurt[one.boundary] = one.before, min(damage, one.damage)
        if len(hurt) > 1 and max(damage for _, damage in hurt.values()) >= LEAST_DAMAGE:
            reads = max(hurt, key=lambda at: (hurt[at][0], at))
            hurts = max(hurt, key=lambda at: (hurt[at][1], at))
            found.append(Compared(reads != hurts, len(hurt)))
    return found


def rank_agreement(models: Sequence[Model], method: str, refitted: bool = False) -> list[float]:
    """Rank correlation, a number a model, of readability and the damage by a way of erasing over all boundaries; or
    over those alone where a refit says that it took the label."""
    found: list[float] = []
    for model in models:
        own = (one for one in model.erasures if one.speaks or not refitted)
        known = [one for one in own if one.method == method and one.damage is not None]
        if len(known) > 2:
            value = rank_correlation([one.before for one in known], [one.damage or 0.0 for one in known])
            if value is not None:
                found.append(value)
    return found


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's; None where all numbers of one are the same."""
    first, second = _ranks(one), _ranks(other)
    if len(set(first)) < 2 or len(set(second)) < 2:
        return None
    return statistics.correlation(first, second)


def _ranks(values: Sequence[float]) -> list[float]:
    return [sum(other < value for other in values) + sum(other == value for other in values) / 2 for value in values]
