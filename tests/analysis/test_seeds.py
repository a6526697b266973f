"""What several seeds say together."""

from dataclasses import replace

import pytest

from mixerscope.analysis import over_seeds
from mixerscope.artifacts import Estimate, Verdict

SHARE = Estimate(0.9, 0.85, 0.95, 64)
INDUCTION = Verdict("induction", ("key", "value", "query"), (), SHARE, SHARE, ())
UNDETERMINED = Verdict("undetermined", (), (), None, SHARE, (), "more than one role")


def with_share(value: float) -> Verdict:
    return replace(INDUCTION, share=replace(SHARE, value=value))


@pytest.mark.parametrize("seeds", [1, 2])
def test_under_three_seeds_there_is_no_interval(seeds: int):
    found = over_seeds([INDUCTION] * seeds)
    assert (found.note, found.share, found.value, found.mechanism) == ("single seed", None, 0.9, "induction")
    assert found.seeds == seeds


def test_three_seeds_have_students_interval_over_seeds():
    found = over_seeds([with_share(0.8), with_share(0.9), with_share(1.0)])
    assert (found.mechanism, found.mechanisms, found.note) == ("induction", {"induction": 3}, "")
    assert found.share is not None
    assert found.share.n == 3
    assert found.share.value == found.value == pytest.approx(0.9)
    assert found.share.high - 0.9 == pytest.approx(4.30265 * 0.1 / 3**0.5, rel=1e-4)
    assert found.share == over_seeds([0.8, 0.9, 1.0]).share
    assert found.to_json()["share"]["n"] == 3


def test_seeds_that_disagree_have_no_common_share():
    found = over_seeds([INDUCTION, INDUCTION, UNDETERMINED])
    assert (found.mechanism, found.value, found.share) == ("varies by seed", None, None)
    assert found.note == "of 3 seeds: induction in 2, undetermined in 1"


def test_shares_alone_have_no_mechanism():
    assert over_seeds([0.8, 0.9, 1.0]).mechanism is None


def test_nothing_or_a_mixture_is_refused():
    for wrong in ([], [INDUCTION, 0.5]):
        with pytest.raises(ValueError, match="verdicts or shares"):
            over_seeds(wrong)
