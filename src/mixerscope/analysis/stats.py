"""Numbers with their intervals, over documents and over seeds; `intervals.py` says how these are made. The same numbers
give the same interval, and a table of thousands of cells takes no time."""

from collections.abc import Sequence
from math import isfinite, sqrt

import torch
from torch import Tensor

from mixerscope.analysis.intervals import (
    demand_documents,
    hall,
    linearised,
    room_near_ends,
    same_scale,
    score,
    share_interval,
    widened,
    wilson,
    worth,
)
from mixerscope.analysis.quantiles import exact_interval, normal_quantile, t_quantile
from mixerscope.artifacts.estimate import Estimate

ALL_OR_NOTHING = 0.01
"""Seeds whose share lies this close to 0 or to 1, all of them, are counted and not averaged."""


def mean_estimate(values: Tensor) -> Estimate:
    """Mean over documents [n]."""
    return mean_estimates(values[None])[0]


def mean_estimates(values: Tensor) -> list[Estimate]:
    """One for each row [c, n]."""
    return _estimates(*hall(values.double()), values.shape[1])


def likelihood_estimate(values: Tensor) -> Estimate:
    """Mean over documents [n] of numbers between 0 and 1."""
    return likelihood_estimates(values[None])[0]


def likelihood_estimates(values: Tensor) -> list[Estimate]:
    """One for each row [c, n]."""
    value, low, high = share_interval(values.double(), values.shape[1])
    return _estimates(value, low.clamp(min=0), high.clamp(max=1), values.shape[1])


def proportion_estimate(values: Tensor) -> Estimate:
    """Share of ones among zeros and ones [n], such as an accuracy, with the score interval."""
    return proportion_estimates(values[None])[0]


def proportion_estimates(values: Tensor) -> list[Estimate]:
    """One for each row [c, n]."""
    demand_documents(values)
    share = values.double().mean(1)
    return _estimates(share, *wilson(share, torch.full_like(share, values.shape[1])), values.shape[1])


def ratio_estimate(numerator: Tensor, denominator: Tensor) -> Estimate | None:
    """Ratio of two means over the same documents [n]; None where the lower mean cannot be told from zero."""
    return ratio_estimates(numerator[None], denominator)[0]


def ratio_estimates(numerators: Tensor, denominator: Tensor) -> Sequence[Estimate | None]:
    """One for each row [c, n], all over the same denominator [n]."""
    top, bottom = same_scale(numerators.double(), denominator.double())
    n, values = len(bottom), linearised(top, bottom)
    if values is None:
        return [None] * len(top)
    value, low, high = share_interval(values, worth(bottom))
    exact = (top == 0).all(1) | (top == bottom).all(1)  # nothing was sampled: the runs are the same, bit by bit
    found = _estimates(value, value.where(exact, low), value.where(exact, high), n)
    return [estimate if isfinite(estimate.value) else None for estimate in found]


def seeds_estimate(values: Sequence[float]) -> Estimate:
    """Mean of shares over at least three seeds, each counting once, however many documents measured it.

    The score interval of a proportion, with Student's t for the normal quantile and as many seeds as give the scatter
    that was seen: it cannot leave [0, 1], and it is longer towards the middle. Seeds that are all or nothing are
    counted."""
    found = torch.tensor(values, dtype=torch.float64)
    n, mean = len(found), found.mean().item()
    if bool(((found <= ALL_OR_NOTHING) | (found >= 1 - ALL_OR_NOTHING)).all()):
        low, high = exact_interval(int((found > 0.5).sum()), n)
    else:
        scatter = found.var().item() / (mean * (1 - mean))  # 1 where each seed were all or nothing
        low, high = (end.item() for end in score(found.mean(), t_quantile(n - 1) ** 2 * scatter / n))
    return Estimate(mean, min(mean, low), max(mean, high), n)


def proportion_difference(first: Tensor, second: Tensor) -> Estimate:
    """Share of ones in the first minus that in the second, of the same documents [n], zeros and ones both.

    One document more that speaks for each side keeps the interval honest where they hardly ever differ (Bonett and
    Price 2012)."""
    n = len(first)
    ones, others = int((first > second).sum()), int((second > first).sum())
    centre = (ones - others) / (n + 2)
    half = normal_quantile() * sqrt(max(0.0, (ones + others + 2) / (n + 2) - centre**2) / (n + 2))
    value = (ones - others) / n
    return Estimate(value, max(-1.0, min(value, centre - half)), min(1.0, max(value, centre + half)), n)


def likelihood_difference(first: Tensor, second: Tensor) -> Estimate:
    """Mean over documents [n] minus another over the same ones, of numbers no further from zero than 1."""
    n, ends = len(first), torch.stack([first, second]).double()
    value, low, high = hall((ends[0] - ends[1])[None])
    low, high = widened(room_near_ends(ends.mean(1), n).max(), value, low, high)
    return _estimates(value, low.clamp(min=-1), high.clamp(max=1), n)[0]


def ratio_difference(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> Estimate | None:
    """Ratio of two means minus another such ratio, all over the same documents [n]; None where one of them could be
    anything."""
    sides = [same_scale(top[None].double(), bottom.double()) for top, bottom in (first, second)]
    values = [value for side in sides if (value := linearised(*side)) is not None]
    if len(values) < 2:
        return None
    value, low, high = hall(values[0] - values[1])
    rooms = [room_near_ends(own.mean(1), worth(bottom)) for own, (_, bottom) in zip(values, sides, strict=True)]
    [found] = _estimates(value, *widened(torch.maximum(*rooms), value, low, high), len(first[1]))
    return found if isfinite(found.value) else None


def seeds_difference(first: Sequence[float], second: Sequence[float], within: float | None = None) -> Estimate:
    """Mean difference over at least three pairs of seeds: Student's t, no further from zero than `within`. Seeds that
    differ by all or nothing are counted."""
    found = torch.tensor(first, dtype=torch.float64) - torch.tensor(second, dtype=torch.float64)
    n, mean = len(found), found.mean().item()
    if within == 1 and bool(((found - found.round()).abs() <= ALL_OR_NOTHING).all()):
        counted = proportion_difference(found.round() > 0, found.round() < 0)
        return Estimate(mean, min(mean, counted.low), max(mean, counted.high), n)
    half = t_quantile(n - 1) * found.std().item() / sqrt(n)
    low, high = mean - half, mean + half
    return Estimate(mean, low, high, n) if within is None else Estimate(mean, max(-within, low), min(within, high), n)


def _estimates(value: Tensor, low: Tensor, high: Tensor, n: int) -> list[Estimate]:
    return [Estimate(*numbers, n) for numbers in zip(value.tolist(), low.tolist(), high.tolist(), strict=True)]
