"""Every planted model is what it says it is, found by direct means: the verdict has no part in it."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
import torch

from mixerscope.planted import ALL, EVERY, MORE, TASK, Planted
from mixerscope.planted.truth import PAIR_AND_QUERY, UNNAMED
from tests.planted.direct import Subject, agrees, embedded

SEEDS = range(3)
PAIR = ("key", "value")
ROUTED = [planted for planted in EVERY if planted.routes]
ONE_ROUTE = [planted for planted in EVERY if planted.kind == "one route"]


def of(models: Iterable[Planted]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("planted", models, ids=lambda planted: planted.name)


def subjects(planted: Planted) -> list[Subject]:
    """The model with several embeddings."""
    return [embedded(planted, seed) for seed in SEEDS]


def named(name: str) -> list[Subject]:
    [planted] = [planted for planted in EVERY if planted.name == name]
    return subjects(planted)


@of(EVERY)
def test_the_task_is_solved_as_declared(planted: Planted):
    low, high = planted.accuracy
    for found in subjects(planted):
        assert low <= found.answered.double().mean().item() <= high


@of(EVERY)
def test_no_slot_matters_but_those_that_are_read(planted: Planted):
    for found in subjects(planted):
        changed = {slot: found.runs[slot].said != found.runs["clean"].said for slot in PAIR_AND_QUERY}
        assert tuple(slot for slot, documents in changed.items() if documents.any()) == planted.reads


@of(EVERY)
def test_counterfactuals_are_followed_as_declared(planted: Planted):
    for found in subjects(planted):
        for kind in planted.task.counterfactuals:
            assert agrees(found.follows(kind), planted.follows.get(kind, 1.0)), kind


@of(ROUTED)
def test_each_route_alone_suffices_and_is_needed_as_declared(planted: Planted):
    for found in subjects(planted):
        for route in planted.routes:
            for slot in PAIR:
                sufficient, necessary = route.alone(slot)
                carriers = route.carriers(slot)
                assert agrees(found.sufficient(slot, carriers)[found.answered], sufficient), (slot, carriers)
                assert agrees(found.necessary(slot, carriers)[found.answered], necessary), (slot, carriers)


@of([planted for planted in ROUTED if sum(route.fraction for route in planted.routes) == pytest.approx(1)])
def test_every_document_takes_one_of_the_routes(planted: Planted):
    """Found with a slot whose routes never speak against one another, or with both where they share their routes."""
    apart = [(slot,) for slot in PAIR if all(r.alone(slot) == (r.fraction, r.fraction) for r in planted.routes)]
    for found in subjects(planted):
        for slots in apart or [PAIR]:
            taken = [
                torch.stack([found.sufficient(slot, route.carriers(slot)) for slot in slots]).all(0)
                for route in planted.routes
            ]
            assert (torch.stack(taken).sum(0)[found.answered] == 1).all(), slots


@of(ONE_ROUTE)
def test_key_and_value_are_at_the_query_from_where_it_is_declared_and_not_before(planted: Planted):
    [route] = planted.routes
    for found in subjects(planted):
        for slot in PAIR:
            for site, carrier in zip(found.boundaries, route.carriers(slot), strict=True):
                back = found.restored(slot, site, "query")
                if carrier == "query":
                    assert back.equal(found.lost(slot)), (slot, site)
                else:  # behind the last pair, `key+3` is where the query stands
                    apart = ~(found.at(carrier) & found.at("query")).any(1)
                    assert not back[apart].any(), (slot, site)


@of(ONE_ROUTE)
def test_key_and_value_meet_in_the_declared_block_and_place(planted: Planted):
    [route] = planted.routes
    assert route.meets is not None
    block, place = route.meets
    for found in subjects(planted):
        before, after = found.boundaries[block : block + 2]
        for slot, other in (PAIR, PAIR[::-1]):
            assert found.restored(slot, after, place).equal(found.lost(slot)), "both are there"
            assert not found.restored(slot, before, route.carriers(other)[block]).any(), "they stand apart before"


@of(ONE_ROUTE)
def test_each_declared_part_carries_the_key(planted: Planted):
    for found in subjects(planted):
        for block, component, _, target in planted.moves:
            name, _, head = component.partition(" head ")
            layer = found.model.layers()[block]
            sites = {mover.component: mover.site for mover in layer.movers()}
            sites.setdefault(type(layer.mixer).__name__, "mixer_out")
            back = found.restored("key", f"blocks.{block}.{sites[name]}", target, int(head) if head else None)
            assert back.equal(found.lost("key")), component


@of([planted for planted in EVERY if planted.kind == "distributed"])
def test_no_place_of_a_distributed_route_can_be_spared(planted: Planted):
    [route] = planted.routes
    [index] = [index for index, carrier in enumerate(route.key) if "&" in carrier]
    places = route.key[index].split("&")
    for found in subjects(planted):
        for spared in places:
            fewer = "&".join(place for place in places if place != spared)
            assert not found.sufficient("key", (*route.key[:index], fewer, *route.key[index + 1 :])).any(), spared


@of(EVERY)
def test_declarations_are_whole(planted: Planted):
    layers = embedded(planted, 0).model.spec.layers
    assert planted.mechanism == planted.acceptable[0]
    for route in planted.routes:
        for slot in PAIR:
            carriers = route.carriers(slot)
            assert (len(carriers), carriers[0], carriers[-1]) == (layers + 1, slot, "query")
            assert all(0 <= number <= 1 for number in (route.fraction, *route.alone(slot)))
    if planted.kind == "one route":
        [route] = planted.routes
        assert (route.moves[0][2], route.moves[-1][3]) == ("key", "query")
        assert all(one[3] == following[2] for one, following in pairwise(route.moves)), "each goes on from the last"
        assert {step[0] for step in route.moves} == set(route.blocks_that_move("key"))
    else:
        assert set(planted.acceptable) >= set(UNNAMED[planted.kind])
    if planted.kind == "mixture":
        assert len(planted.routes) > 1 or planted.routes[0].fraction < 1
    if planted.kind == "no retrieval":
        assert not planted.routes
        unread = set(PAIR_AND_QUERY) - set(planted.reads)
        assert unread or min(planted.follows.values()) < 1, "something gives it away"


@of(EVERY)
def test_what_may_be_said_is_what_is_expected_or_a_refusal(planted: Planted):
    assert all(planted.accepts("key", name) for name in planted.acceptable)
    assert all(planted.accepts(slot, planted.expected(slot)) for slot in PAIR)
    assert not any(planted.accepts(slot, name) for slot in PAIR for name in ("", "association two steps later"))
    # A route that is there is to be found; where none is, that is to be said.
    undetermined = planted.kind in ("mixture", "distributed")
    assert all(planted.accepts(slot, "undetermined") == undetermined for slot in PAIR)


def test_there_are_many_kinds_and_each_has_a_name_of_its_own():
    assert (*ALL, *MORE) == EVERY
    assert len({planted.name for planted in EVERY}) == len(EVERY) >= 60
    assert {planted.kind for planted in EVERY} == set(UNNAMED)


def test_guessing_is_what_the_task_says_it_is():
    guess = TASK.guessing()
    for planted in EVERY:
        if planted.task == TASK:
            below = planted.kind == "not above guessing"
            assert (planted.accuracy[0] <= guess + 0.05) == below
            assert (planted.accuracy[1] <= guess + 0.1) == below


@torch.no_grad()
def test_the_backup_speaks_only_where_the_first_route_is_broken():
    for found in named("backup: another route where the first fails"):
        clean, corrupted = (found.runs[name].boundaries["blocks.0.resid_post"] for name in ("clean", "key"))
        broken = torch.where(found.at("value")[..., None], corrupted, clean)
        _, first, reserve = found.model.layers()
        query = found.at("query")
        assert reserve.mix(first(clean))[query].norm(dim=-1).max() < 0.01
        assert reserve.mix(first(broken))[query].norm(dim=-1).min() > 1


@pytest.mark.parametrize(
    ("name", "low", "high"), [("induction, flat logits", 0.04, 0.1), ("presence", 0.1, 0.3), ("pointer", 0.99, 1.0)]
)
@torch.no_grad()
def test_how_sure_a_model_is_has_nothing_to_do_with_how_it_answers(name: str, low: float, high: float):
    for found in named(name):
        batch = found.batches["clean"]
        logits = found.model(batch.tokens, batch.role("query")[:, None])[:, 0]
        likelihood = logits.softmax(-1).gather(1, found.answers[:, None]).mean().item()
        assert low < likelihood <= high


@torch.no_grad()
def test_the_erased_answer_has_been_there():
    for found in named("induction, answer given and erased before"):
        states, answer = found.runs["clean"].boundaries, found.model.token_embedding.weight[found.answers]
        written = [(states[site][found.at("query")] * answer).sum(-1).mean().item() for site in found.boundaries]
        assert written == pytest.approx([0, 3, 0, 3], abs=0.01)
