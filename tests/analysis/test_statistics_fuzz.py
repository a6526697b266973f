"""Any finite numbers, however many: no crash, nothing that is not a number without a reason, the value inside its
interval, the interval inside the range of what it is of."""

from collections.abc import Callable, Sequence
from math import isfinite, isnan

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixerscope.analysis import Rules, judge, over_seeds
from mixerscope.analysis.differences import Numbers, over_documents, over_paired_seeds
from mixerscope.analysis.naming import false_naming_rate
from mixerscope.analysis.published import TOO_SMALL, published_reading
from mixerscope.analysis.quantiles import at_least, exact_interval
from mixerscope.analysis.stats import (
    likelihood_estimate,
    mean_estimate,
    proportion_difference,
    proportion_estimate,
    ratio_difference,
    ratio_estimate,
    seeds_difference,
    seeds_estimate,
)
from mixerscope.artifacts import Estimate
from mixerscope.artifacts.effects import DIRECTIONS, NO_GAP, SHARE, Cell, EffectTable
from mixerscope.errors import UserError
from mixerscope.interventions import Effects, Grid, Measured, PairSettings, SelfTest, effect_table, make_pairs
from mixerscope.model import build_model
from mixerscope.spec import ModelSpec
from mixerscope.tasks import AR

FINITE = st.floats(allow_nan=False, allow_infinity=False)
SHARES = st.floats(0, 1)
ANY = st.lists(FINITE | st.sampled_from([0.0, 1.0, 1e-320, 1e308]) | SHARES, min_size=1, max_size=40)
SEVERAL = st.integers(1, 40)
fuzz = settings(max_examples=100, deadline=None)
TASK = AR(num_pairs=3, num_keys=6, num_values=6)
PAIRS = make_pairs(TASK, PairSettings(documents=16), data_seed=0)
MODEL = build_model(ModelSpec(architecture="attention", width=16, max_length=16), TASK.vocab_size, seed=1)


def tensor(values: Sequence[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def sound(estimate: Estimate, low: float = float("-inf"), high: float = float("inf")) -> None:
    numbers = (estimate.low, estimate.value, estimate.high)
    assert not any(map(isnan, numbers)), estimate
    assert isfinite(estimate.value), estimate
    assert estimate.low <= estimate.value <= estimate.high, estimate
    assert low <= estimate.low, estimate
    assert estimate.high <= high, estimate


@st.composite
def together(draw: st.DrawFn, *kinds: st.SearchStrategy, most: int = 40) -> list[list]:
    """Lists of the same length."""
    n = draw(st.integers(1, most))
    return [draw(st.lists(kind, min_size=n, max_size=n)) for kind in kinds]


@fuzz
@given(ANY)
def test_means(values: list[float]):
    found = mean_estimate(tensor(values))
    sound(found)
    assert found.n == len(values)
    assert min(values) <= found.value <= max(values) or found.value == pytest.approx(
        sum(v / len(values) for v in values)
    )


@fuzz
@given(st.lists(SHARES | st.sampled_from([0.0, 1.0, 1e-320]), min_size=1, max_size=40))
def test_means_of_likelihoods(values: list[float]):
    sound(likelihood_estimate(tensor(values)), 0, 1)


@fuzz
@given(st.lists(st.booleans(), min_size=1, max_size=200))
def test_proportions(values: list[bool]):
    sound(proportion_estimate(torch.tensor(values)), 0, 1)


@fuzz
@given(together(FINITE | SHARES, FINITE | SHARES))
def test_ratios_are_numbers_or_none(values: list[list[float]]):
    found = ratio_estimate(*map(tensor, values))
    if found is not None:
        sound(found)


@fuzz
@given(together(SHARES, st.floats(0.01, 1)))
def test_the_share_of_a_gap_that_every_document_has_is_a_number(values: list[list[float]]):
    """However skewed the gaps are: that they are no zero is seen in each of them."""
    top, gap = map(tensor, values)
    gap = gap.round(decimals=1) + 0.01
    found = ratio_estimate(top * gap, gap)
    if found is None:
        gaps = mean_estimate(gap)
        assert gaps.low <= 0, "one criterion: what has a mean has shares"
    else:
        sound(found)


@fuzz
@given(together(FINITE, FINITE, FINITE, FINITE))
def test_differences_of_ratios(values: list[list[float]]):
    a, b, c, d = map(tensor, values)
    found = ratio_difference((a, b), (c, d))
    if found is not None:
        sound(found)


@fuzz
@given(together(st.booleans(), st.booleans()))
def test_differences_of_proportions(values: list[list[bool]]):
    sound(proportion_difference(*map(torch.tensor, values)), -1, 1)


@fuzz
@given(st.lists(SHARES | st.sampled_from([0.0, 1.0, 0.995]), min_size=3, max_size=30))
def test_means_over_seeds(values: list[float]):
    sound(seeds_estimate(values), 0, 1)


@fuzz
@given(st.lists(SHARES, min_size=1, max_size=30))
def test_shares_of_any_number_of_seeds(values: list[float]):
    found = over_seeds(values)
    assert (found.share is None) == (len(values) < 3)
    assert found.sentence()


@fuzz
@given(together(SHARES, SHARES).filter(lambda both: len(both[0]) >= 3))
def test_differences_over_seeds(values: list[list[float]]):
    sound(seeds_difference(*values, within=1.0), -1, 1)
    found = over_paired_seeds("accuracy", *values)
    assert found.noise == (found.difference.low <= 0 <= found.difference.high)


@fuzz
@given(together(SHARES, SHARES))
def test_comparisons_over_documents(values: list[list[float]]):
    a, b = (Numbers("likelihood", "", tensor(side)) for side in values)
    found = over_documents(a, b)
    sound(found.difference, -1, 1)
    assert str(found.n) in found.sentence()


@fuzz
@given(SEVERAL, st.data())
def test_exact_intervals(n: int, data: st.DataObject):
    count = data.draw(st.integers(0, n))
    low, high = exact_interval(count, n)
    assert 0 <= low <= count / n <= high <= 1


@fuzz
@given(st.integers(0, 3000), SHARES, st.data())
def test_tails_are_probabilities_and_fall(n: int, share: float, data: st.DataObject):
    count = data.draw(st.integers(0, n))
    assert 0 <= at_least(count + 1, n, share) <= at_least(count, n, share) + 1e-9 <= 1 + 1e-9


@fuzz
@given(st.integers(2, 400), st.floats(0.01, 0.99))
def test_false_naming_rates_are_small_chances(documents: int, names: float):
    assert 0 <= false_naming_rate(documents, names) < 0.2


@pytest.mark.parametrize("estimate", [mean_estimate, likelihood_estimate, proportion_estimate])
def test_no_documents_have_no_mean_and_an_error_says_so(estimate: Callable[[torch.Tensor], Estimate]):
    with pytest.raises(UserError, match="no documents to average"):
        estimate(torch.zeros(0))


def test_no_documents_have_no_ratio():
    assert ratio_estimate(torch.zeros(0), torch.zeros(0)) is None


def effects(likelihood: Sequence[float]) -> Effects:
    values = torch.tensor(likelihood)
    return Effects(values, (values > 0.5).float(), values, values - 0.5, values)


def measured(original: Sequence[float], other: Sequence[float], edited: Sequence[float]) -> EffectTable:
    """The same numbers in every cell that a verdict looks at, of at most 16 documents."""
    [pairs] = list(PAIRS.chunks(len(original)))[:1]
    sites = [f"blocks.{block}.resid_{end}" for block in (0, 1) for end in ("pre", "post")]
    places = [(direction, site, role) for direction in DIRECTIONS for site in sites for role in pairs.original.roles]
    cells = {Cell("key", *place): Measured(effects(edited)) for place in places}
    clean, changed = effects(original), {"key": effects(other)}
    return effect_table(Grid(pairs, clean, changed, {"key": clean}, cells, SelfTest((), 4, 1e-4)), MODEL)


@fuzz
@given(together(SHARES, SHARES, SHARES, most=16))
def test_verdicts_of_any_numbers(values: list[list[float]]):
    table = measured(*values)
    [found] = judge(table, Rules(min_documents=1))
    assert found.sentence()
    for row in table.rows():
        assert (row["value"] is None) == (row["reason"] == NO_GAP), row


def test_skewed_gaps_have_one_criterion_and_no_verdict_crashes():
    """One document has most of the gap. Its mean is told from zero, so every share of it is a number."""
    gaps = [0.8] + [0.03] * 15
    table = measured([0.9] * 16, [0.9 - gap for gap in gaps], [0.9 - gap / 2 for gap in gaps])
    assert mean_estimate(tensor(gaps)).low > 0
    shares = [row["value"] for row in table.rows() if row["metric"] == SHARE]
    assert shares == pytest.approx([0.5] * len(table.cells))
    [found] = judge(table)
    assert found.sentence()


def test_a_gap_that_may_be_zero_has_no_share_and_no_reading():
    original, other = [0.9, 0.1] * 8, [0.1, 0.9] * 8
    table = measured(original, other, original)
    assert {row["reason"] for row in table.rows() if row["metric"] == SHARE} == {NO_GAP}
    assert published_reading(table, "key", Rules(min_gap=0.0)) == TOO_SMALL
    tiny = measured([0.95, 0.1] * 8, other, original)  # the mean is above the threshold, and still may be zero
    assert published_reading(tiny, "key", Rules()) == TOO_SMALL
