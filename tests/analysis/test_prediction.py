"""Areas under ROC curves, their intervals, and what groups alone foretell."""

import statistics

import numpy as np
import pytest
import torch

from mixerscope.analysis.prediction import _weighed, area, left_out_means, left_out_sums, resampled


def test_areas_count_pairs_and_ties_half():
    found = area([3, 1, 2, 1], [True, True, False, False], ["a", "b", "a", "b"])
    assert found is not None
    assert found.pairs == 4
    assert found.value == pytest.approx((1 + 1 + 0 + 0.5) / 4)
    assert area([1, 2], [True, True], ["a", "b"]) is None


def test_within_compares_only_models_of_one_group():
    scores = [1.0, 0.0, 9.0, 8.0]
    good = [True, False, False, True]
    whole = area(scores, good, list("abcd"))
    within = area(scores, good, list("abcd"), within=["x", "x", "y", "y"])
    assert whole is not None
    assert within is not None
    assert within.pairs == 2
    assert within.value == 0.5
    assert whole.value == 0.5
    assert area(scores, good, list("abcd"), within=list("wxyz")) is None


def test_intervals_are_over_cohorts_and_not_over_models():
    """Two cohorts that disagree leave the area open, however many models each has."""
    many = 40
    scores = [1.0, 0.0] * many + [0.0, 1.0] * many
    good = [True, False] * 2 * many
    cohorts = ["a"] * 2 * many + ["b"] * 2 * many
    found = area(scores, good, cohorts)
    assert found is not None
    assert found.value == pytest.approx(0.5)
    assert (found.low, found.high) == (0.0, 1.0)
    assert area(scores, good, cohorts) == found, "the same every time"


def test_a_group_foretells_without_having_seen_the_cohort():
    values = [1.0, 1.0, 0.0, 0.5]
    assert left_out_means(values, ["g", "g", "g", "h"], ["a", "b", "b", "c"]) == [0.5, 1.0, 1.0, pytest.approx(2 / 3)]


def test_seeds_are_drawn_again_within_their_cell():
    low, high = resampled({"a": [0.0, 1.0], "b": [10.0, 10.0]}, lambda of: sum(of["a"]) / 2 + sum(of["b"]) / 2)
    # From 10 to 11; Student's t with two degrees of freedom, of four numbers.
    stretch = 4.303 / 1.960 * 2**0.5
    assert (low, high) == pytest.approx((10.5 - 0.5 * stretch, 10.5 + 0.5 * stretch), abs=0.002)
    assert resampled({"a": [1.0]}, lambda of: of["a"][0]) == (None, None)


@pytest.mark.parametrize(("cells", "rounds"), [(1, 300), (15, 100)])
def test_intervals_over_five_seeds_hold_the_truth(cells, rounds):
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(rounds):
        groups = {cell: list(rng.normal(cell, 1.0, 5)) for cell in range(cells)}
        low, high = resampled(groups, lambda of: statistics.fmean(map(statistics.fmean, of.values())), draws=200)
        held += low <= statistics.fmean(range(cells)) <= high
    assert 0.91 * rounds <= held <= 0.99 * rounds


def test_a_cohort_that_is_drawn_twice_is_two():
    """Pairs within one cohort then count twice, not four times."""
    pairs, drawn = torch.tensor([[5.0, 1.0], [2.0, 7.0]]), torch.tensor([[2.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
    assert _weighed(pairs, drawn).tolist() == [10.0, 15.0, 14.0]


def test_factors_add_up_over_the_other_cohorts():
    cohorts = [f"{a}{b}" for a in "xyz" for b in "pqr"]
    adds = {"x": 0.0, "y": 0.3, "z": 0.5, "p": 0.0, "q": 0.1, "r": 0.4}
    values = [adds[a] + adds[b] for a, b in cohorts]
    firsts, seconds = [name[0] for name in cohorts], [name[1] for name in cohorts]
    assert left_out_sums(values, (firsts, seconds), cohorts) == pytest.approx(values), "of a cohort nobody looked at"
    wrong = [9.0, *values[1:]]
    assert left_out_sums(wrong, (firsts, seconds), cohorts)[0] == pytest.approx(values[0])
    assert left_out_sums([1.0], (["x"], ["p"]), ["a"]) == [0.5]
