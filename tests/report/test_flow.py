"""The way of the information as the flow picture shows it: from the verdict, or from the proof where it has no name."""

from dataclasses import replace

import torch

from mixerscope.artifacts import Boundary, Estimate, RouteMove, Verdict
from mixerscope.artifacts.effects import Facts, Part
from mixerscope.artifacts.proof import Proof
from mixerscope.artifacts.proof import TestedRoute as Tried
from mixerscope.artifacts.verdicts import Test as Asked
from mixerscope.report.flow import as_json, lanes_of

from .conftest import find_run, give_verdict
from .reading import page_of

SHARE = Estimate(0.97, 0.94, 0.99, 200)
SITES = ("blocks.0.resid_pre", "blocks.1.resid_pre", "blocks.1.resid_post")
PARTS = tuple((Part("convolution", f"blocks.{i}.conv"), Part("scan", f"blocks.{i}.scan")) for i in range(2))
FACTS = Facts(320, ("key", "value", "query"), ("query",), SITES, PARTS, together=("key", "value"))
SUFFICIENT = (Asked("sufficient", True, SHARE, 0.9),)


def named(*moves, mechanism="direct retrieval", tests=SUFFICIENT, route=("key", "query")):
    steps = tuple(RouteMove(block, part, a, b, SHARE) for block, part, a, b in moves)
    return Verdict(mechanism, route, steps, SHARE, SHARE, (), tests=tests)


def tried(slot, *carriers, takes):
    """A route that so many of 100 documents take."""
    gap = torch.ones(100, dtype=torch.bool)
    share = (torch.arange(100) < takes).float()
    return Tried(slot, carriers, "", gap, share, share, share > 0, share == 0)


def ways(lanes):
    return [(lane.slot, lane.state, [(step.level, step.place) for step in lane.steps]) for lane in lanes]


def test_places_inside_a_block_lie_between_its_ends():
    verdict = named((0, "convolution", "key", "key+3"), (0, "scan", "key+3", "query"))
    [lane] = lanes_of(FACTS, [verdict], None, {})
    assert ways([lane]) == [("key", "proven", [(0, "key"), (0.5, "key+3"), (1, "query"), (2, "query")])]
    assert [step.by for step in lane.steps] == ["", "convolution", "scan", ""]


def test_the_other_slots_take_the_routes_that_the_proof_tried():
    verdict = named((1, "scan", "key", "query"))
    proof = Proof((tried("value", "value", takes=100), tried("value", "query", takes=3), tried("key", "key", takes=99)))
    found = lanes_of(FACTS, [verdict], proof, {})
    assert ways(found) == [
        ("key", "proven", [(0, "key"), (1, "key"), (2, "query")]),
        ("value", "proven", [(0, "value"), (1, "value"), (2, "query")]),
    ]
    assert found[1].share.value == 1


def test_a_mixture_is_drawn_as_the_routes_that_failed():
    verdict = replace(named(), mechanism="undetermined", route=(), share=None)
    proof = Proof((tried("key", "value", takes=60), tried("key", "query", takes=35)))
    found = lanes_of(FACTS, [verdict], proof, {})
    assert [(lane.state, lane.share.value, lane.steps[1].place) for lane in found] == [
        ("failed", 0.6, "value"),
        ("failed", 0.35, "query"),
    ]


def test_the_rules_of_the_run_decide_what_failed():
    verdict = replace(named(), mechanism="undetermined", route=(), share=None)
    proof = Proof((tried("key", "value", takes=60),))
    assert [lane.state for lane in lanes_of(FACTS, [verdict], proof, {"names": 0.4})] == ["proven"]


def test_a_route_that_documents_take_is_no_passed_one_where_the_verdict_failed_a_test():
    failed = Asked("brings only what is asked", False, Estimate(0.9, 0.85, 0.93, 100), 0.9)
    verdict = replace(named(), mechanism="undetermined", route=(), share=None, tests=(failed,))
    proof = Proof((tried("key", "query", takes=100), tried("value", "value", takes=100)))
    found = lanes_of(FACTS, [verdict], proof, {})
    assert [(lane.slot, lane.state) for lane in found] == [("key", "failed"), ("value", "proven")]


def test_a_route_that_was_not_put_to_the_proof_says_so():
    boundaries = tuple(Boundary(site, carrier, None, None) for site, carrier in zip(SITES, "kvq", strict=True))
    verdict = replace(named(mechanism="unproven: induction"), boundaries=boundaries)
    assert ways(lanes_of(FACTS, [verdict], None, {})) == [("key", "untested", [(0, "key"), (1, "v"), (2, "query")])]


def test_a_model_that_guesses_has_no_picture():
    verdict = replace(named(), mechanism="not above guessing", route=(), share=None)
    assert lanes_of(FACTS, [verdict], Proof((tried("key", "value", takes=60),)), {}) == []


def test_one_block_is_seen_from_inside():
    facts = replace(FACTS, boundaries=SITES[1:], blocks=PARTS[1:])
    verdict = replace(named(), mechanism="undetermined", route=(), share=None)
    found = lanes_of(facts, [verdict], Proof((tried("key", "key+3", takes=60),)), {})
    assert ways(found) == [("key", "failed", [(0, "key"), (0.5, "key+3"), (1, "query")])]


def test_the_page_draws_what_the_verdict_says(folder):
    root = folder("based", "attention")
    give_verdict(find_run(root, "based"), "induction", ["key", "value", "query"], tests=SUFFICIENT)
    page = page_of(root)
    assert [attrs["data-model"] for attrs in page.figures("flow")] == ["1"], "attention is not above guessing"
    [lane] = page.details()["models"][1]["lanes"]
    assert lane["steps"] == [[0, "key", "", None], [1.0, "value", "part 0", 0.9123], [2.0, "query", "part 1", 0.9123]]
    assert as_json([]) == []
