"""What several seeds say together."""

from dataclasses import replace

import pytest

from mixerscope.analysis import over_seeds
from mixerscope.analysis.quantiles import at_least, exact_interval
from mixerscope.analysis.stats import seeds_estimate
from mixerscope.artifacts import Estimate, RouteMove, Verdict
from mixerscope.errors import UserError

SHARE = Estimate(0.9, 0.85, 0.95, 64)
INDUCTION = Verdict("induction", ("key", "value", "query"), (), SHARE, SHARE, ())
UNDETERMINED = Verdict("undetermined", (), (), SHARE, SHARE, (), "more than one role")


def with_share(value: float) -> Verdict:
    return replace(INDUCTION, share=replace(SHARE, value=value))


def direct(*blocks: int) -> Verdict:
    """Direct retrieval, by as many parts as blocks are named."""
    moves = tuple(RouteMove(block, f"part {i}", "key", "query") for i, block in enumerate(blocks))
    return replace(INDUCTION, mechanism="direct retrieval", route=("key", "query"), moves=moves)


@pytest.mark.parametrize(("seeds", "said"), [(1, "1 seed"), (2, "2 seeds")])
def test_under_three_seeds_there_is_no_interval_and_they_are_counted(seeds: int, said: str):
    for found in (over_seeds([INDUCTION] * seeds), over_seeds([0.9] * seeds)):
        assert (found.seeds, found.value, found.share, found.agreement) == (seeds, pytest.approx(0.9), None, None)
        assert found.note == f"{said}: no interval under 3"
        assert "single" not in found.sentence()


def test_two_seeds_that_disagree_are_two_seeds():
    found = over_seeds([INDUCTION, UNDETERMINED])
    assert (found.mechanism, found.value) == ("varies by seed", None)
    assert found.sentence() == "induction in 1 of 2 seeds, undetermined in 1; 2 seeds: no interval under 3"


def test_seeds_that_agree_have_a_mean_share_and_its_interval():
    found = over_seeds([with_share(0.8), with_share(0.9), with_share(0.98)])
    assert (found.mechanism, found.mechanisms, found.note) == ("induction", {"induction": 3}, "")
    assert found.share is not None
    assert found.share.n == 3
    assert found.share.value == found.value == pytest.approx((0.8 + 0.9 + 0.98) / 3)
    assert found.share == over_seeds([0.8, 0.9, 0.98]).share
    assert found.to_json()["share"]["n"] == 3
    low, high = f"{found.share.low:.2f}", f"{found.share.high:.2f}"
    assert found.sentence() == f"induction in 3 of 3 seeds; share 0.89 [{low}, {high}] over 3 seeds"


def test_the_interval_over_seeds_by_hand():
    """0.6, 0.8, 1.0: variance 0.04, a quarter of 0.8 x 0.2; the ends p solve (0.8 - p)^2 = 4.3027^2 / 12 p (1 - p)."""
    found = seeds_estimate([0.6, 0.8, 1.0])
    for p in (found.low, found.high):
        assert (0.8 - p) ** 2 == pytest.approx(4.30265**2 / 12 * p * (1 - p), rel=1e-4)
    assert 0 < found.low < 0.8 < found.high < 1


@pytest.mark.parametrize(
    "values", [[1.0] * 3, [0.0] * 5, [0.0, 1.0, 1.0], [0.995, 1.0, 1.0], [0.0, 0.5, 1.0], [0.7] * 4]
)
def test_no_interval_over_seeds_leaves_the_range_of_a_share(values: list[float]):
    found = seeds_estimate(values)
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_seeds_that_are_all_or_nothing_are_counted():
    """Three of three: (1 - level) / 2 is the chance of three in a row at the lower end."""
    found = seeds_estimate([1.0, 0.995, 1.0])
    assert found.low**3 == pytest.approx(0.025)
    assert found.high == 1
    assert seeds_estimate([0.0, 1.0, 1.0, 1.0]).low == pytest.approx(exact_interval(3, 4)[0])


def test_the_exact_interval_is_where_the_tails_are_a_fortieth():
    low, high = exact_interval(7, 10)
    assert at_least(7, 10, low) == pytest.approx(0.025)
    assert 1 - at_least(8, 10, high) == pytest.approx(0.025)
    assert (exact_interval(0, 10)[0], exact_interval(10, 10)[1]) == (0, 1)


def test_seeds_that_disagree_have_no_common_share_and_are_counted():
    found = over_seeds([INDUCTION, UNDETERMINED, INDUCTION, UNDETERMINED, INDUCTION])
    assert (found.mechanism, found.value, found.share) == ("varies by seed", None, None)
    assert found.sentence() == "induction in 3 of 5 seeds, undetermined in 2"
    assert found.agreement == Estimate(0.6, *exact_interval(3, 5), 5)


def test_the_same_mechanism_in_another_block_is_another():
    found = over_seeds([direct(0), direct(0), direct(1)])
    assert (found.mechanism, found.value) == ("varies by seed", None)
    assert found.counts == "direct retrieval (block 0) in 2 of 3 seeds, direct retrieval (block 1) in 1"


def test_parts_of_one_block_make_one_step():
    assert over_seeds([direct(0), direct(0, 0), direct(0)]).mechanism == "direct retrieval"
    assert over_seeds([direct(0), direct(0, 1), direct(0)]).counts == (
        "direct retrieval (block 0) in 2 of 3 seeds, direct retrieval (blocks 0 and 1) in 1"
    )


def test_the_same_name_by_another_route_is_another():
    other = replace(INDUCTION, route=("key", "value", "next_key", "query"))
    assert over_seeds([INDUCTION, other, other]).mechanisms == {
        "induction (key → value → next_key → query)": 2,
        "induction (key → value → query)": 1,
    }


def test_seeds_without_a_share_are_counted_and_said():
    without = replace(INDUCTION, share=None)
    found = over_seeds([with_share(0.8), without, with_share(1.0), with_share(0.9)])
    assert (found.seeds, found.without_share, found.note) == (4, 1, "1 of 4 seeds has no share")
    assert found.share is not None
    assert found.share.n == 3
    few = over_seeds([with_share(0.8), without, without, with_share(1.0)])
    assert (few.value, few.share, few.note) == (pytest.approx(0.9), None, "2 of 4 seeds have no share")


def test_seeds_without_a_verdict_are_counted():
    found = over_seeds([INDUCTION, None, INDUCTION])
    assert (found.mechanism, found.counts) == ("varies by seed", "induction in 2 of 3 seeds, no verdict in 1")
    assert over_seeds([None, None]).counts == "no verdict in 2 of 2 seeds"


def test_shares_of_no_route_in_common_have_no_mean():
    found = over_seeds([UNDETERMINED] * 3)
    assert (found.mechanism, found.value, found.share) == ("undetermined", None, None)


def test_shares_alone_have_no_mechanism():
    found = over_seeds([0.8, 0.9, 1.0])
    assert (found.mechanism, found.mechanisms, found.counts) == (None, {}, "")


def test_what_cannot_be_put_together_is_refused():
    for wrong in ([], [INDUCTION, 0.5], [None, 0.5]):
        with pytest.raises(UserError, match="verdicts or shares"):
            over_seeds(wrong)
    for wrong in (INDUCTION, None, ["induction"], "induction"):
        with pytest.raises(UserError, match="takes a list"):
            over_seeds(wrong)  # pyright: ignore[reportArgumentType] - on purpose
    for wrong in ([0.5, 1.2], [-0.1], [float("nan")]):
        with pytest.raises(UserError, match="lie between 0 and 1"):
            over_seeds(wrong)
    with pytest.raises(UserError, match="of the slots key, value: put those of one slot together"):
        over_seeds([INDUCTION, replace(INDUCTION, slot="value")])
