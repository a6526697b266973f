"""Admission is tried on models written by hand, whose route is known without training."""

import pytest
import torch
from benchmarks.ground_truth.admit import admission, carrier_mask
from benchmarks.ground_truth.objective import ByRoute
from benchmarks.ground_truth.routes import KINDS, MIXED, ROUTES, even_key, exchange, routes_of

from mixerscope import UNSCORED, Batch, Model
from mixerscope.errors import UserError
from mixerscope.model import build_model
from mixerscope.planted.models import direct_retriever, induction_transformer, lagged_induction, two_routes
from mixerscope.planted.zoo import TASK
from mixerscope.randomness import stream
from mixerscope.spec import ModelSpec

PLANTED = {
    "induction": induction_transformer(TASK, 0),
    "direct, first block": direct_retriever(TASK, 0, block=0, layers=2),
    "direct, last block": direct_retriever(TASK, 0, block=1, layers=2),
    "one step later": lagged_induction(TASK, 0, lag=2),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_route_is_admitted_and_every_other_refused(planted: str):
    found = {route: admission(PLANTED[planted], TASK, route, 200) for route in ROUTES}
    assert [route for route, one in found.items() if one.admitted] == [planted]
    assert found[planted].interchange == 1.0
    assert found[planted].off_route < 0.01


def test_a_model_with_two_routes_side_by_side_is_admitted_for_neither():
    model = two_routes(TASK, 0)
    assert not any(admission(model, TASK, route, 200).admitted for route in ROUTES)


def test_one_route_does_not_pass_for_a_mixture():
    mixed = MIXED.join(("induction", "one step later"))
    found = admission(PLANTED["induction"], TASK, mixed, 200)
    assert not found.admitted
    assert found.details["swap-keys, half 0, interchange from a"] == 1.0
    assert found.details["swap-keys, half 1, interchange from a"] == 0.0


def test_a_model_without_a_boundary_between_two_blocks_is_refused():
    with pytest.raises(UserError, match="this model has 1"):
        admission(direct_retriever(TASK, 0, block=0, layers=1), TASK, "induction", 20)


def other_of(route: str, documents: int = 400) -> tuple[Batch, Batch, torch.Tensor, torch.Tensor]:
    batch = TASK.sample(documents, stream(3, "test"))
    made = exchange(TASK, batch, route, stream(4, "test"))
    targets = batch.targets.scatter(1, batch.role("query")[:, None], made.answers[:, None])
    return batch, Batch(made.tokens, targets, batch.roles), made.carriers, made.kind


def test_counterfactuals_have_the_answer_that_they_say():
    _, other, _, kind = other_of("induction")
    absent = kind == KINDS.index("absent")
    said = other.targets.gather(1, other.role("query")[:, None])
    assert bool((said[absent] == UNSCORED).all())
    assert torch.equal(TASK.solve(other[~absent]), said[~absent])
    assert 60 < int(absent.sum()) < 140


@pytest.mark.parametrize("route", [*ROUTES, "induction / direct, first block"])
def test_training_and_admission_agree_on_the_carriers_though_each_works_them_out_for_itself(route: str):
    batch, other, carriers, _ = other_of(route)
    first, second = routes_of(route)
    want = torch.where(
        even_key(batch)[:, None], carrier_mask(TASK, batch, other, first), carrier_mask(TASK, batch, other, second)
    )
    assert torch.equal(carriers, want)


def loss_of(model: Model, route: str) -> float:
    batch = TASK.sample(200, stream(5, "test"))
    objective = ByRoute(route=route, task=TASK)
    read, targets = batch.scored()
    rows = model.token_embedding(batch.tokens)
    return objective.loss(model, rows, read, targets, objective.columns(batch)).item()


def test_the_loss_is_small_for_the_route_that_a_model_takes_and_for_no_other():
    losses = {route: loss_of(PLANTED["induction"], route) for route in ROUTES}
    assert losses.pop("induction") < 0.1
    assert min(losses.values()) > 1.0


def test_the_loss_reaches_every_parameter():
    spec = ModelSpec(architecture="mamba", width=8)
    model = build_model(spec, TASK.vocab_size, 0)
    batch = TASK.sample(16, stream(5, "test"))
    objective = ByRoute(route="induction", task=TASK)
    read, targets = batch.scored()
    objective.loss(model, model.token_embedding(batch.tokens), read, targets, objective.columns(batch)).backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in model.parameters())


def test_unknown_routes_are_refused():
    with pytest.raises(UserError, match="is no route"):
        routes_of("indution")
