"""The verdict must name the mechanism of models whose mechanism is known."""

import pytest

from mixerscope.analysis import verdict
from mixerscope.interventions import interchange, make_pairs
from mixerscope.model import build_model
from mixerscope.randomness import stream
from mixerscope.spec import InterventionSpec, ModelSpec
from mixerscope.tasks import AR
from tests.planted.models import conv_recurrence, direct_retriever, induction_transformer, two_routes

TASK = AR(num_pairs=4, num_keys=8, num_values=8)


def judge(model, task=TASK):
    pairs = make_pairs(task, InterventionSpec(documents=64, avoid_present=True), data_seed=0)
    return verdict(interchange(model, pairs), model)


def solves(model, task=TASK) -> bool:
    batch = task.sample(200, stream(1, "planted"))
    read, answers = batch.answers()
    return bool((model(batch.tokens, read[:, None])[:, 0].argmax(-1) == answers).all())


@pytest.mark.parametrize("seed", range(3))
def test_induction_transformer(seed: int):
    model = induction_transformer(TASK, seed)
    assert solves(model)
    found = judge(model)
    assert found.mechanism == "induction"
    assert found.route == ("key", "value", "query")
    assert [(m.block, m.component, m.source, m.target) for m in found.moves] == [
        (0, "attention", "key", "value"),
        (1, "attention", "value", "query"),
    ]
    assert found.share is not None
    assert found.share.low > 0.95


@pytest.mark.parametrize(("block", "layers"), [(0, 1), (0, 2), (1, 2)])
def test_direct_retriever(block: int, layers: int):
    model = direct_retriever(TASK, 0, block, layers)
    assert solves(model)
    found = judge(model)
    assert found.mechanism == "direct retrieval"
    assert found.route == ("key", "query")
    assert [(m.block, m.source, m.target) for m in found.moves] == [(block, "key", "query")]


@pytest.mark.parametrize("seed", range(3))
def test_convolution_and_recurrence_inside_one_block(seed: int):
    model = conv_recurrence(TASK, seed)
    assert solves(model)
    found = judge(model)
    assert found.mechanism == "direct retrieval"
    assert [(m.component, m.source, m.target) for m in found.moves] == [
        ("short convolution", "key", "next_key"),
        ("recurrence", "next_key", "query"),
    ]


def test_untrained_model_has_not_learned():
    found = judge(build_model(ModelSpec(architecture="attention", width=16), TASK.vocab_size, seed=0))
    assert found.mechanism == "not learned"
    assert found.route == ()
    assert found.share is None
    assert "likelihood" in found.reason


def test_two_routes_side_by_side_are_undetermined():
    model = two_routes(TASK, 0)
    assert solves(model)
    found = judge(model)
    assert found.mechanism == "undetermined"
    assert found.route == ()
    assert "more than one role" in found.reason
    assert "key" in found.reason
    assert "value" in found.reason
