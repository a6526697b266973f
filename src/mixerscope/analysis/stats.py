"""Intervals, in closed form: the same numbers give the same interval, and a table of thousands of cells takes no time.

Over documents: the t interval of a mean, corrected for skewness by Hall's cubic transformation (Hall 1992, On the
removal of skewness by transformation). A share is a ratio of two means over the same documents; it is the mean of the
linearised values r + (top - r bottom) / mean(bottom), which makes comparisons paired. Where every document is all or
nothing, few documents decide and no moment can tell how many were missed: there it is the score interval of a
proportion (Wilson 1927). `docs/statistics.md` has the coverage that was simulated.
"""

from collections.abc import Sequence
from math import isfinite, sqrt

import torch
from torch import Tensor

from mixerscope.analysis.quantiles import exact_interval, normal_quantile, t_quantile
from mixerscope.artifacts.estimate import Estimate
from mixerscope.errors import UserError

ALL_OR_NOTHING = 0.01
"""Documents whose share lies this close to 0 or to 1, all of them, are counted and not averaged."""


def mean_estimate(values: Tensor) -> Estimate:
    """Mean over documents [n]."""
    return mean_estimates(values[None])[0]


def mean_estimates(values: Tensor) -> list[Estimate]:
    """One for each row [c, n]."""
    return _estimates(*_hall(values.double()), values.shape[1])


def proportion_estimate(values: Tensor) -> Estimate:
    """Share of ones among zeros and ones [n], such as an accuracy, with the score interval."""
    return proportion_estimates(values[None])[0]


def proportion_estimates(values: Tensor) -> list[Estimate]:
    """One for each row [c, n]."""
    _demand_documents(values)
    share = values.double().mean(1)
    return _estimates(share, *wilson(share, torch.full_like(share, values.shape[1])), values.shape[1])


def ratio_estimate(numerator: Tensor, denominator: Tensor) -> Estimate | None:
    """Ratio of two means over the same documents [n]; None where the lower mean cannot be told from zero."""
    return ratio_estimates(numerator[None], denominator)[0]


def ratio_estimates(numerators: Tensor, denominator: Tensor) -> Sequence[Estimate | None]:
    """One for each row [c, n], all over the same denominator [n]."""
    top, bottom = _same_scale(numerators.double(), denominator.double())
    n, below = len(bottom), bottom.mean()
    linearised = _linearised(top, bottom)
    if linearised is None:
        return [None] * len(top)
    value, low, high = _hall(linearised)

    whole = top > bottom / 2
    nearest = bottom.where(whole, torch.zeros_like(bottom))
    counted = ((top - nearest).abs() <= ALL_OR_NOTHING * below.abs()).all(1)
    exact = (top == 0).all(1) | (top == bottom).all(1)  # nothing was sampled: the runs are the same, bit by bit
    effective = bottom.sum() ** 2 / (bottom**2).sum()
    wilson_low, wilson_high = wilson((nearest.mean(1) / below).clamp(0, 1), effective.expand(len(top)))
    counted &= ~exact
    low = torch.minimum(value, wilson_low).where(counted, low)
    high = torch.maximum(value, wilson_high).where(counted, high)
    found = _estimates(value, low, high, n)
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
        low, high = (end.item() for end in _score(found.mean(), t_quantile(n - 1) ** 2 * scatter / n))
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


def ratio_difference(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> Estimate | None:
    """Ratio of two means minus another such ratio, all over the same documents [n]; None where one of them could be
    anything."""
    values = [_linearised(*_same_scale(top[None].double(), bottom.double())) for top, bottom in (first, second)]
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return None
    found = mean_estimate((known[0] - known[1])[0])
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


def _linearised(top: Tensor, bottom: Tensor) -> Tensor | None:
    """[c, n] values whose mean is the ratio of the means, and which scatter as it does; None where the interval of the
    lower mean holds zero, so that the ratio could be anything."""
    if not has_mean(bottom):
        return None
    below = bottom.mean()
    ratio = top.mean(1, keepdim=True) / below
    return ratio + (top - ratio * bottom) / below


def has_mean(values: Tensor) -> bool:
    """Whether the mean over documents [n] can be told from zero: what a share is a share of must."""
    if not len(values):
        return False
    _, low, high = _hall(values[None].double())
    return bool(low > 0) or bool(high < 0)


def _same_scale(top: Tensor, bottom: Tensor) -> tuple[Tensor, Tensor]:
    """Both times the same power of two, which changes no ratio and no rounding: sums and squares stay finite."""
    exponent = _exponent(bottom)
    return torch.ldexp(top, -exponent), torch.ldexp(bottom, -exponent)


def _exponent(values: Tensor) -> Tensor:
    """[...] of the largest of values [..., n], as a power of two."""
    return torch.frexp(values.abs().amax(-1) if values.shape[-1] else values.sum(-1)).exponent


def _demand_documents(values: Tensor) -> None:
    if not values.shape[1]:
        raise UserError("there are no documents to average, so there is no mean; measure at least one")


def _hall(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and the ends of its interval for each row [c, n]."""
    _demand_documents(values)
    exponent = _exponent(values)
    ends = _hall_scaled(torch.ldexp(values, -exponent[:, None]))
    largest = torch.finfo(values.dtype).max
    mean, low, high = (torch.ldexp(end, exponent) for end in ends)
    return mean, low.clamp(min=-largest), high.clamp(max=largest)


def _hall_scaled(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    n = values.shape[1]
    mean = values.mean(1)
    if n == 1:
        return mean, mean, mean
    off = values - mean[:, None]
    variance = (off**2).mean(1)
    # Rounding alone gives equal values a variance; it must not turn into a skewness.
    flat = variance <= (1e-12 * (mean.abs() + off.abs().amax(1))) ** 2
    variance = variance.where(~flat, torch.ones_like(variance))
    skewness = ((off**3).mean(1) / variance**1.5).where(~flat, torch.zeros_like(variance))
    error = (variance / (n - 1)).sqrt().where(~flat, torch.zeros_like(variance))
    t = t_quantile(n - 1)
    return mean, mean - error * _unskewed(t, skewness, n), mean - error * _unskewed(-t, skewness, n)


def _unskewed(quantile: float, skewness: Tensor, n: int) -> Tensor:
    """The studentised mean T at which T + s T^2 / 3 + s^2 T^3 / 27 + s / 6, s = skewness / sqrt(n), is `quantile`."""
    small = skewness.abs() < 1e-6
    s = skewness.where(~small, torch.ones_like(skewness)) / sqrt(n)
    cube = 1 + s * (quantile - s / 6)
    root = cube.sign() * cube.abs() ** (1 / 3)
    return (3 / s * (root - 1)).where(~small, torch.full_like(skewness, quantile))


def wilson(share: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """Both ends of the score interval of shares that were counted among n."""
    return _score(share, normal_quantile() ** 2 / n)


def _score(share: Tensor, width: Tensor | float) -> tuple[Tensor, Tensor]:
    """The true shares p with (share - p)^2 <= width p (1 - p)."""
    centre = (share + width / 2) / (1 + width)
    half = (width * (share * (1 - share) + width / 4)) ** 0.5 / (1 + width)
    # The share itself is always among them, however the ends are rounded.
    return torch.minimum(share, centre - half).clamp(min=0), torch.maximum(share, centre + half).clamp(max=1)


def _estimates(value: Tensor, low: Tensor, high: Tensor, n: int) -> list[Estimate]:
    return [Estimate(*numbers, n) for numbers in zip(value.tolist(), low.tolist(), high.tolist(), strict=True)]
