"""Intervals and shares on numbers with a known answer."""

import pytest
import torch

from mixerscope.analysis import mean_estimate, ratio_estimate, resampling_counts
from mixerscope.randomness import stream


def test_counts_draw_each_sample_whole():
    counts = resampling_counts(40)
    assert (counts.sum(1) == 40).all()
    assert torch.equal(counts, resampling_counts(40))


def test_constant_data_has_no_width():
    estimate = mean_estimate(torch.full((30,), 0.25), resampling_counts(30))
    assert (estimate.value, estimate.low, estimate.high, estimate.n) == (0.25, 0.25, 0.25, 30)


def test_ratio_of_means_not_mean_of_ratios():
    top, bottom = torch.tensor([1.0, 0.0, 3.0]), torch.tensor([1.0, 1.0, 6.0])
    assert ratio_estimate(top, bottom, resampling_counts(3)).value == pytest.approx(0.5)


def test_interval_of_a_mean_covers_about_as_often_as_it_says():
    """300 normal samples of 64: the 95 % interval should cover the mean in 91 to 98 % of them."""
    rng = stream(0, "coverage")
    counts = resampling_counts(64)
    covered = 0
    for _ in range(300):
        estimate = mean_estimate(torch.randn(64, generator=rng) + 1.0, counts)
        covered += estimate.low <= 1.0 <= estimate.high
    assert 0.91 <= covered / 300 <= 0.98
