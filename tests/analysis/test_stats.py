"""Intervals and shares on numbers with a known answer; their coverage is in `test_coverage.py`."""

import pytest
import torch

from mixerscope.analysis import Rules, mean_estimate, proportion_estimate, ratio_estimate
from mixerscope.analysis.stats import likelihood_estimate, mean_estimates, ratio_estimates
from mixerscope.randomness import stream


def test_constant_data_has_no_width():
    estimate = mean_estimate(torch.full((30,), 0.25))
    assert (estimate.value, estimate.low, estimate.high, estimate.n) == (0.25, 0.25, 0.25, 30)
    share = ratio_estimate(torch.full((30,), 0.1), torch.full((30,), 0.2))
    assert (share.low, share.high) == (pytest.approx(0.5), pytest.approx(0.5))


def test_ratio_of_means_not_mean_of_ratios():
    top, bottom = torch.tensor([1.0, 0.0, 2.0, 2.0]), torch.tensor([1.0, 2.0, 4.0, 3.0])
    assert ratio_estimate(top, bottom).value == pytest.approx(0.5)


def test_students_t_where_there_is_no_skewness():
    """Three numbers by hand: mean 2, standard error 1 / sqrt(3), t = 4.3027."""
    estimate = mean_estimate(torch.tensor([1.0, 2.0, 3.0]))
    assert (estimate.low, estimate.high) == (pytest.approx(2 - 2.48414, abs=1e-4), pytest.approx(2 + 2.48414, abs=1e-4))


def test_skewness_moves_the_interval_towards_the_long_tail():
    values = torch.tensor([0.0] * 30 + [0.5, 1.5])
    estimate = mean_estimate(values)
    assert estimate.high - estimate.value > 1.5 * (estimate.value - estimate.low)
    mirrored = mean_estimate(-values)
    assert (mirrored.low, mirrored.high) == (pytest.approx(-estimate.high), pytest.approx(-estimate.low))


def test_zeros_and_ones_are_counted():
    """Wilson's interval of 0 in 64, of 2 in 20."""
    none = proportion_estimate(torch.zeros(64))
    assert (none.low, none.high) == (0.0, pytest.approx(0.05663, abs=1e-4))
    some = proportion_estimate(torch.tensor([1.0] * 2 + [0.0] * 18))
    assert (some.low, some.high) == (pytest.approx(0.0279, abs=1e-3), pytest.approx(0.3010, abs=1e-3))


def test_near_the_ends_there_is_room_for_documents_that_were_missed_unless_the_runs_are_the_same():
    """By the rule of three: documents of which 64 draws miss all in one case of twenty."""
    bottom = torch.rand(64, generator=stream(0, "gap")) * 0.01 + 0.85
    room = 1 - 0.05 ** (1 / 64)
    for part in (0.001, 0.999):
        found = ratio_estimate(bottom * part, bottom)
        assert (found.low, found.high) == (pytest.approx(part - room, abs=1e-4), pytest.approx(part + room, abs=1e-4))
    for exact, value in ((torch.zeros(64), 0.0), (bottom, 1.0)):
        share = ratio_estimate(exact, bottom)
        assert (share.value, share.low, share.high) == (value, value, value)


def test_shares_in_the_middle_have_the_score_interval_with_their_own_scatter():
    """The ends p solve (mean - p)^2 = t^2 c p (1 - p) / n, c being the variance over that of all or nothing."""
    values = torch.rand(16, generator=stream(0, "likelihood"), dtype=torch.float64)
    mean, t = values.mean().item(), 2.13145
    c = values.var().item() / (mean * (1 - mean))
    for found in (likelihood_estimate(values), ratio_estimate(values, torch.ones(16))):
        assert found.value == pytest.approx(mean)
        for p in (found.low, found.high):
            assert (mean - p) ** 2 == pytest.approx(t**2 * c * p * (1 - p) / 16, rel=1e-4)


def test_shares_that_scatter_more_than_all_or_nothing_have_the_interval_of_a_mean():
    values = torch.tensor([-1.0, 2.0] * 8).double()
    assert ratio_estimate(values, torch.ones(16)) == mean_estimate(values)


def test_the_room_shrinks_towards_the_middle():
    widths = {}
    for share in (0.05, 0.1, 0.15, 0.2, 0.5, 0.85, 0.95):
        found = ratio_estimate(torch.full((64,), share), torch.ones(64))
        widths[share] = found.high - found.low
    assert widths[0.05] == pytest.approx(widths[0.1]) == pytest.approx(widths[0.95])
    assert widths[0.15] == pytest.approx(widths[0.85]) == pytest.approx(widths[0.1] / 2)
    assert (widths[0.2], widths[0.5]) == (pytest.approx(0, abs=1e-9), pytest.approx(0, abs=1e-9))


def test_gaps_that_few_documents_have_are_few_documents():
    """Half of the gap in one of 32 documents: as if there were less than four."""
    bottom = torch.tensor([1.0] + [1 / 31] * 31).double()
    found = ratio_estimate(bottom * 0.01, bottom)
    effective = 4 / (1 + 1 / 31)
    assert found.high == pytest.approx(0.01 + 1 - 0.05 ** (1 / effective))


def test_likelihoods_stay_between_0_and_1():
    found = likelihood_estimate(torch.full((64,), 0.999).double())
    assert (found.low, found.high) == (pytest.approx(0.999 - (1 - 0.05 ** (1 / 64))), 1.0)
    assert likelihood_estimate(torch.zeros(8)).low == 0.0


def test_no_share_of_a_gap_that_may_be_zero():
    noise = torch.randn(40, generator=stream(0, "noise"))
    assert ratio_estimate(noise, noise - noise.mean() + 0.01) is None
    assert ratio_estimate(noise, torch.zeros(40)) is None


def test_rows_do_not_depend_on_each_other():
    rng = stream(0, "rows")
    rows, bottom = torch.rand(7, 50, generator=rng), torch.rand(50, generator=rng)
    assert mean_estimates(rows)[3] == mean_estimate(rows[3])
    assert ratio_estimates(rows, bottom)[3] == ratio_estimate(rows[3], bottom)


def test_shares_scale_with_their_numbers():
    rng = stream(0, "scale")
    top, bottom = torch.rand(50, generator=rng).double(), torch.rand(50, generator=rng).double()
    one, other = ratio_estimate(top, bottom), ratio_estimate(top * 1e-6, bottom * 1e-6)
    assert (one.low, one.high) == (pytest.approx(other.low), pytest.approx(other.high))


@pytest.mark.parametrize(("documents", "exceptions"), [(64, 1), (128, 6), (320, 21), (1024, 83)])
def test_a_name_leaves_room_for_as_many_exceptions_as_the_page_says(documents, exceptions):
    def lowest(others: int) -> float:
        return proportion_estimate(torch.arange(documents) >= others).low

    assert lowest(exceptions) >= Rules().names > lowest(exceptions + 1)
