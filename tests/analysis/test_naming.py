"""False names: a route that no more than nine documents in ten take is named as rarely as is said."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from mixerscope.analysis import Rules, false_names, hypotheses, judge_slot
from mixerscope.analysis.naming import false_naming_rate
from mixerscope.analysis.stats import proportion_estimates
from mixerscope.artifacts import Estimate, Verdict
from mixerscope.artifacts.effects import EffectTable
from mixerscope.artifacts.proof import Proof
from mixerscope.artifacts.verdicts import Test as Asked
from mixerscope.interventions import PairSettings, Route, effect_table, interchange, make_pairs, prove_cohort
from mixerscope.planted import ALL
from mixerscope.planted.truth import TASK
from mixerscope.randomness import stream

NAMES = Rules().names
SHARE = Estimate(0.95, 0.92, 0.98, 320)


@pytest.mark.parametrize("documents", [35, 64, 84, 320])
def test_routes_of_exactly_that_share_are_named_as_often_as_is_said(documents: int):
    draws, rng = 20_000, stream(0, "naming", documents)
    takes = torch.rand(draws, documents, generator=rng) < NAMES
    named = sum(share.low > NAMES for share in proportion_estimates(takes)) / draws
    rate = false_naming_rate(documents, NAMES)
    assert named == pytest.approx(rate, abs=3 * (rate / draws) ** 0.5)


def test_the_rate_never_exceeds_what_the_docs_say():
    rates = [false_naming_rate(n, NAMES) for n in range(1, 1500)]
    assert 0.025 < max(rates) < 0.027
    assert max(rates[:34]) == 0, "with fewer than 35 documents nothing has a name"


@pytest.mark.parametrize("shares", [(0.9, 0.1), (0.88, 0.12), (0.5, 0.5), (0.3, 0.3, 0.4)])
def test_choosing_the_commonest_of_several_routes_does_not_raise_it(shares: tuple[float, ...]):
    draws, documents, rng = 5000, 84, stream(0, "routes", *map(str, shares))
    which = torch.multinomial(torch.tensor(shares), draws * documents, replacement=True, generator=rng)
    counts = torch.nn.functional.one_hot(which.view(draws, documents), len(shares)).sum(1).double()
    commonest = torch.arange(documents)[None] < counts.max(1).values[:, None]
    named = sum(share.low > NAMES for share in proportion_estimates(commonest)) / draws
    rate = false_naming_rate(documents, NAMES)
    assert named <= rate + 3 * (rate / draws) ** 0.5


@cache
def proven() -> tuple[EffectTable, Proof]:
    """A model whose route all documents take, which a test may then take from some of them."""
    model = ALL[0].build(TASK, 0)
    pairs = make_pairs(TASK, PairSettings(documents=84, avoid_present=True), data_seed=0)
    table = effect_table(interchange(model, pairs), model)
    routes = [Route(slot, path) for slot, path in hypotheses(table)]
    return table, prove_cohort([model], pairs, [routes], fresh_documents=0)[0]


def judged(takes: torch.Tensor) -> Verdict:
    """The verdict if only these of the documents [84] took the route of the key."""
    table, proof = proven()
    routes = [
        replace(route, necessary=route.necessary.where(takes, torch.zeros_like(route.necessary)))
        if route.slot == "key"
        else route
        for route in proof.routes
    ]
    return judge_slot(table, "key", None, replace(proof, routes=tuple(routes)))


def test_verdicts_give_a_name_from_the_count_on_that_the_rate_is_made_of():
    documents = judged(torch.ones(84, dtype=torch.bool)).share.n
    assert documents > 70
    counts = torch.arange(documents + 1)[:, None] > torch.arange(documents)[None]
    least = next(i for i, share in enumerate(proportion_estimates(counts)) if share.low > NAMES)
    [gap] = [route.gap for route in proven()[1].routes if route.slot == "key"][:1]
    for count, mechanism in ((least, "induction"), (least - 1, "undetermined")):
        takes = torch.ones(84, dtype=torch.bool)
        takes[gap.nonzero().flatten()[count:]] = False
        assert judged(takes).mechanism == mechanism


def test_verdicts_name_a_route_of_nine_documents_in_ten_no_more_often_than_is_said():
    draws, rng = 200, stream(0, "verdicts")
    found = [judged(torch.rand(84, generator=rng) < NAMES) for _ in range(draws)]
    rate = false_names(found).rate
    assert 0 < rate < 0.03
    named = sum(verdict.mechanism == "induction" for verdict in found)
    assert named <= draws * rate + 3 * (draws * rate) ** 0.5
    assert {verdict.mechanism for verdict in found} <= {"induction", "undetermined"}


def verdict(mechanism: str, documents: int = 320, needed: float = NAMES, **facts) -> Verdict:
    route = () if mechanism == "undetermined" else ("key", "query")
    tests = (Asked("takes the route", bool(route), replace(SHARE, n=documents), needed),)
    return replace(Verdict(mechanism, route, (), SHARE, None, (), tests=tests), **facts)


def test_the_bound_of_a_sweep_is_the_sum_over_the_verdicts_that_were_tested():
    found = false_names([verdict("induction"), verdict("undetermined", 64), replace(verdict("induction"), tests=())])
    assert found.expected == pytest.approx(false_naming_rate(320, NAMES) + false_naming_rate(64, NAMES))
    assert (found.verdicts, found.named, found.untested) == (3, 2, 1)
    assert found.rate == false_naming_rate(320, NAMES)


def test_sentences():
    unproven = replace(verdict("unproven: induction"), route=("key", "query"))
    assert false_names([]).sentence() == "none of 0 verdicts names a route"
    assert false_names([unproven]).sentence() == "none of 1 verdict names a route"
    assert false_names([verdict("induction")] * 40).sentence() == (
        "40 of 40 verdicts name a route; at most 0.8 false names are to be expected (a route that 90% of the documents"
        " or fewer take is named in at most 2.1% of verdicts)"
    )
    one_block = replace(verdict("direct retrieval"), tests=())
    assert false_names([one_block]).sentence().startswith("1 of 1 verdict names a route; 1 of the names rest")
    assert "80% or 90% of the documents" in false_names([verdict("induction"), verdict("x", needed=0.8)]).sentence()
