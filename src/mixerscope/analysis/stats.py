"""Intervals. Documents are the unit, resampled together for all cells, so that comparisons are paired."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mixerscope.randomness import stream

RESAMPLES = 2000
LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval over n documents."""

    value: float
    low: float
    high: float
    n: int


def resampling_counts(n: int) -> Tensor:
    """[RESAMPLES, n]: how often each document is drawn in each bootstrap sample; the same for every cell and call."""
    draws = torch.randint(n, (RESAMPLES, n), generator=stream(0, "bootstrap", n))
    return torch.zeros(RESAMPLES, n, dtype=torch.float64).scatter_add_(1, draws, torch.ones_like(draws).double())


def mean_estimate(values: Tensor, counts: Tensor) -> Estimate:
    """Mean over documents."""
    values = values.double()
    return _estimate(values.mean().item(), counts @ values / len(values), len(values))


def ratio_estimate(numerator: Tensor, denominator: Tensor, counts: Tensor) -> Estimate | None:
    """Ratio of two means over the same documents; None where the lower one is zero in some resample."""
    top, bottom = numerator.double(), denominator.double()
    below = counts @ bottom
    if bottom.mean() == 0 or bool((below == 0).any()):
        return None
    return _estimate((top.mean() / bottom.mean()).item(), (counts @ top) / below, len(top))


def _estimate(value: float, resampled: Tensor, n: int) -> Estimate:
    tail = (1 - LEVEL) / 2
    low, high = resampled.quantile(torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    return Estimate(value, low, high, n)
