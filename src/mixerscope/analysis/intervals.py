"""Intervals, in closed form: the same numbers give the same interval, and a table of thousands of cells takes no time.

A mean over documents has Student's t interval, corrected for skewness by Hall's cubic transformation (Hall 1992, On the
removal of skewness by transformation). What is counted has the score interval of a proportion (Wilson 1927), and so has
a share in the middle of the range, with the documents' own scatter: Hall's is too long for documents that are all or
nothing. A share is a ratio of two means over the same documents, and the mean of the linearised values
r + (top - r bottom) / mean(bottom), which makes comparisons paired. Near 0 and 1 few documents decide, and no moment of
those that were drawn tells how many were missed: there the interval leaves room for as many as n draws may miss, by the
rule of three.
`docs/statistics.md` has the coverage that was measured and simulated.
"""

from math import sqrt

import torch
from torch import Tensor

from mixerscope.analysis.quantiles import normal_quantile, t_quantile
from mixerscope.errors import UserError

MISSED = 0.05
"""The chance that n documents miss all of a kind that is as common as the room that is left for it: 3 / n, about."""
MOST_SCATTER = 2.0
"""Times the variance of documents that are all or nothing and have these gaps. More has other reasons, and such shares
need not lie between 0 and 1."""
NEAR, FAR = 0.1, 0.2
"""Distances from 0 or 1 up to which there is such room, and from which on there is none; in between it shrinks."""


def linearised(top: Tensor, bottom: Tensor) -> Tensor | None:
    """[c, n] values whose mean is the ratio of the means, and which scatter as it does; None where the interval of the
    lower mean holds zero, so that the ratio could be anything."""
    if not has_mean(bottom):
        return None
    below = bottom.mean()
    ratio = top.mean(1, keepdim=True) / below
    return ratio + (top - ratio * bottom) / below


def share_interval(values: Tensor, n: Tensor | int) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and the ends of its interval for each row [c, documents] of shares, worth n documents."""
    value, low, high = hall(values)
    degrees = max(1, values.shape[1] - 1)
    most = value * (1 - value)  # the variance of documents that are all or nothing
    variance = ((values - value[:, None]) ** 2).mean(1)
    in_middle = (value > FAR) & (value < 1 - FAR) & (variance <= MOST_SCATTER * most * values.shape[1] / n)
    scatter = (variance / most).where(in_middle, torch.zeros_like(value))
    ends = score(value.clamp(0, 1), t_quantile(degrees) ** 2 * scatter / degrees)
    low, high = ends[0].where(in_middle, low), ends[1].where(in_middle, high)
    return value, *widened(room_near_ends(value, n), value, low, high)


def room_near_ends(share: Tensor, n: Tensor | int) -> Tensor:
    """How far from shares [c] the truth may lie at least: near 0 and 1 as many unlike documents as n draws may miss."""
    away = torch.minimum(share.abs(), (1 - share).abs())
    return ((FAR - away) / (FAR - NEAR)).clamp(0, 1) * (1 - MISSED ** (1 / n))


def widened(room: Tensor, value: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Both ends, no closer to the value than the room that it needs."""
    return torch.minimum(low, value - room), torch.maximum(high, value + room)


def worth(gaps: Tensor) -> Tensor:
    """How many documents gaps [n] are worth; fewer than n, if few of them have most of it."""
    return gaps.sum() ** 2 / (gaps**2).sum()


def has_mean(values: Tensor) -> bool:
    """Whether the mean over documents [n] can be told from zero: what a share is a share of must."""
    if not len(values):
        return False
    _, low, high = hall(values[None].double())
    return bool(low > 0) or bool(high < 0)


def same_scale(top: Tensor, bottom: Tensor) -> tuple[Tensor, Tensor]:
    """Both times the same power of two, which changes no ratio and no rounding: sums and squares stay finite."""
    exponent = _exponent(bottom)
    return torch.ldexp(top, -exponent), torch.ldexp(bottom, -exponent)


def _exponent(values: Tensor) -> Tensor:
    """[...] of the largest of values [..., n], as a power of two."""
    return torch.frexp(values.abs().amax(-1) if values.shape[-1] else values.sum(-1)).exponent


def demand_documents(values: Tensor) -> None:
    if not values.shape[1]:
        raise UserError("there are no documents to average, so there is no mean; measure at least one")


def hall(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and the ends of its interval for each row [c, n]."""
    demand_documents(values)
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
    return score(share, normal_quantile() ** 2 / n)


def score(share: Tensor, width: Tensor | float) -> tuple[Tensor, Tensor]:
    """The true shares p with (share - p)^2 <= width p (1 - p)."""
    centre = (share + width / 2) / (1 + width)
    half = (width * (share * (1 - share) + width / 4)) ** 0.5 / (1 + width)
    # The share itself is always among them, however the ends are rounded.
    return torch.minimum(share, centre - half).clamp(min=0), torch.maximum(share, centre + half).clamp(max=1)
