"""Shapes of curves: each name where it belongs, and statistics by hand."""

import pytest

from mixerscope.analysis.readability import (
    ShapeRules,
    distance,
    flip,
    goes_with,
    grouping,
    profile,
    readability,
    shapes_under_other_rules,
)


@pytest.mark.parametrize(
    ("curve", "shape"),
    [
        ([0, 0, 0, 0.1, 1], "late"),
        ([0, 0.9, 1, 1, 1], "early"),
        ([0.9, 1, 1, 1, 1], "early"),
        ([0, 0.25, 0.5, 0.75, 1], "gradual"),
        ([0, 0.1, 0.9, 0.9, 1], "mixed"),
        ([0, 0, 0, 0, 0], "unreadable"),
        ([0, 0, 1, 0.2, 0], "mixed"),
    ],
)
def test_shapes(curve, shape):
    assert profile(curve).shape == shape


def test_statistics_by_hand():
    found = profile([0, 0.2, 0.2, 0.1, 1.0])
    assert found.jump == pytest.approx(0.8)
    assert found.at == 4
    assert found.lateness == pytest.approx(0.2 * 0.25 + 0.8)
    assert found.evenness == pytest.approx((0.04 + 0.64 - 0.2) / 0.8)
    assert found.ramp == pytest.approx(0.75)
    assert found.area == pytest.approx(0.3)
    assert profile([0, 0, 0, 0, 1]).evenness == pytest.approx(1)


def test_other_thresholds_can_give_other_names():
    assert profile([0, 0, 0, 0.45, 1], ShapeRules(jump=0.6)).shape != "late"
    assert len(shapes_under_other_rules([0, 0, 0, 0.45, 1])) == 26
    assert {*shapes_under_other_rules([0, 0, 0, 0.45, 1])} > {"late"}
    assert {*shapes_under_other_rules([0, 0, 0, 0, 1])} == {"late"}
    # Where late begins is a convention too: at three quarters of the depth, or behind them.
    assert profile([0, 0, 0, 1, 1]).shape == "late"
    assert {*shapes_under_other_rules([0, 0, 0, 1, 1])} == {"late", "mixed"}


def test_readability_lies_between_the_baseline_and_the_model():
    assert readability(0.75, 0.5, 1.0) == 0.5
    assert readability(0.4, 0.5, 1.0) == 0.0
    assert readability(1.0, 0.5, 0.9) == 1.0
    assert readability(0.6, 0.58, 0.6) is None


def test_flip_and_grouping_have_the_signs_that_were_claimed():
    assert flip(recurrent=(0.9, 0.4), attention=(0.5, 0.8)) == pytest.approx(0.8)
    assert flip(recurrent=(0.5, 0.5), attention=(0.2, 0.2)) == 0
    late, early = [0, 0, 0, 0, 1.0], [0, 1.0, 1, 1, 1]
    assert grouping(late, parity=late, brackets=early) > 0
    assert grouping(early, parity=late, brackets=early) < 0


def test_what_is_far_beyond_parity_does_not_go_with_it():
    parity, brackets = [0, 0.2, 0.4, 1.0], [0, 0.8, 0.9, 1.0]
    assert goes_with(parity, parity, brackets) == pytest.approx(distance(parity, brackets))
    far = [0, 0, 0, 0.2]
    assert grouping(far, parity, brackets) == pytest.approx(distance(parity, brackets)), "as much as parity itself"
    assert goes_with(far, parity, brackets) < 0
    assert goes_with(brackets, parity, brackets) < 0
