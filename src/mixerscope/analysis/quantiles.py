"""Quantiles and tails of the normal, Student's and the binomial distribution, without a library for them."""

from collections.abc import Callable
from functools import cache
from math import atan, comb, cos, exp, lgamma, log, log1p, pi, sin, sqrt
from statistics import NormalDist

LEVEL = 0.95
"""Of every interval."""


def normal_quantile() -> float:
    """The two-sided quantile of the normal distribution at LEVEL."""
    return NormalDist().inv_cdf((1 + LEVEL) / 2)


@cache
def t_quantile(degrees: int) -> float:
    """The two-sided quantile of Student's t at LEVEL, by bisection; past 1000 degrees it is that of 1000."""
    low, high = 0.0, 1000.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_within(middle, min(degrees, 1000)) < LEVEL else (low, middle)
    return (low + high) / 2


def _t_within(t: float, degrees: int) -> float:
    """P(|T| <= t) for whole degrees of freedom, as a finite sum (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = atan(t / sqrt(degrees))
    if degrees % 2 == 0:
        terms = (comb(2 * k, k) / 4**k * cos(angle) ** (2 * k) for k in range(degrees // 2))
        return sin(angle) * sum(terms)
    terms = (4**k / ((2 * k + 1) * comb(2 * k, k)) * cos(angle) ** (2 * k + 1) for k in range(degrees // 2))
    return 2 / pi * (angle + sin(angle) * sum(terms))


def at_least(count: int, n: int, share: float) -> float:
    """P(X >= count) for the number X of n independent documents, or seeds, each counting with probability `share`."""
    if count <= 0 or share >= 1:
        return float(count <= n)
    if share <= 0:
        return 0.0
    terms = (
        lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * log(share) + (n - k) * log1p(-share)
        for k in range(count, n + 1)
    )
    return min(1.0, sum(map(exp, terms)))


def exact_interval(count: int, n: int) -> tuple[float, float]:
    """Of a proportion, from few that were counted: it holds the truth at least as often as LEVEL (Clopper and Pearson
    1934)."""
    tail = (1 - LEVEL) / 2
    low, high = 0.0, 1.0
    if count > 0:
        low = _crossing(lambda share: at_least(count, n, share) < tail)
    if count < n:
        high = _crossing(lambda share: 1 - at_least(count + 1, n, share) > tail)
    return low, high


def _crossing(still: Callable[[float], bool]) -> float:
    """The share up to which something holds."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if still(middle) else (low, middle)
    return low
