"""Attention patterns and state norms: what the stage keeps is what flows through the models."""

import pytest
import torch

from mixerscope.artifacts import Patterns
from mixerscope.planted.models import induction_transformer
from mixerscope.planted.zoo import TASK
from mixerscope.sites import record
from mixerscope.spec import RunSpec
from mixerscope.stages import Done
from tests.stages.states import fresh, run_stage, spec_of

SMALL = {"patterns": {"documents": 70}}


def patterns_of(spec, models):
    found = []
    for result in run_stage("patterns", spec, models):
        assert isinstance(result, Done)
        [one] = result.artifacts
        assert isinstance(one, Patterns)
        assert Patterns.from_bytes(one.to_bytes()) == one
        found.append(one)
    return found


def test_planted_induction_is_seen_at_a_glance():
    model = induction_transformer(TASK, 0)
    spec = RunSpec(task=TASK, model=model.spec, stages=SMALL)
    [found] = patterns_of(spec, [model])
    assert (len(found.attention), found.states) == (model.spec.layers, ())
    by_block = {one.block: one for one in found.attention}
    assert by_block[0].between["value"]["key"].value > 0.9, "the value looks at the key before it"
    assert by_block[1].between["query"]["value"].value > 0.9, "the query looks at the value"
    assert "value" not in by_block[1].between["key"], "nothing looks ahead"
    assert found.tokens[found.roles["key"]] == found.tokens[found.roles["query"]]


@pytest.mark.parametrize("heads", [1, 2])
def test_weights_are_those_that_flow_through_the_site_in_each_model_of_a_cohort(heads):
    spec = spec_of(SMALL, "ar:small", layers=2, options={"heads": heads})
    models = [fresh(spec, seed) for seed in (0, 1)]
    batch = spec.stages["patterns"].batch(spec)
    for model, found in zip(models, patterns_of(spec, models), strict=True):
        with torch.no_grad(), record(model, ["blocks.1.mixer.pattern"]) as seen:
            model(batch.tokens)
        weights = seen["blocks.1.mixer.pattern"]
        every, key, query = torch.arange(len(batch)), batch.role("key"), batch.role("query")
        for one in found.attention[heads:]:
            assert one.example[-1] == pytest.approx(
                weights[0, query[0], one.head, : int(query[0]) + 1].tolist(), abs=1e-4
            )
            estimate = one.between["query"]["key"]
            assert estimate.value == pytest.approx(weights[every, query, one.head, key].mean().item(), abs=1e-6)
            assert (estimate.n, estimate.low <= estimate.value <= estimate.high) == (70, True)


def test_norms_are_those_of_the_states_that_a_recurrence_steps_through():
    spec = spec_of(SMALL, "ar:small", architecture="gru")
    model = fresh(spec)
    batch = spec.stages["patterns"].batch(spec)
    [found] = patterns_of(spec, [model])
    mixer = model.layers()[0].mixer
    with torch.no_grad(), record(model, ["blocks.0.mixer_in"]) as seen:
        model(batch.tokens)
    x = seen["blocks.0.mixer_in"][:1]
    state = mixer.initial_state(x[:, 0])
    [held] = found.states
    with torch.no_grad():
        for position, norm in enumerate(held.example):
            _, state = mixer.step(x[:, position], state)
            assert norm == pytest.approx(torch.cat([part.flatten() for part in state]).norm().item(), abs=1e-4)
    assert len(held.example) == len(found.tokens) == int(batch.role("query")[0]) + 1
    assert set(held.at) == set(batch.roles)
    assert found.attention == ()


def test_of_a_long_document_only_roles_look_back():
    spec = spec_of({"patterns": {"documents": 4, "positions": 5}}, "ar:small")
    [found] = patterns_of(spec, [fresh(spec)])
    assert found.looking == tuple(sorted(set(found.roles.values())))
    assert [len(row) for row in found.attention[0].example] == [at + 1 for at in found.looking]


def test_a_model_with_neither_says_so():
    spec = spec_of(SMALL, "ar:small", architecture="hyena")
    [result] = run_stage("patterns", spec, [fresh(spec)])
    assert isinstance(result, Done)
    [note] = result.notes
    assert "attention pattern" in note
