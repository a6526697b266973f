"""Erasing states: nothing erased changes nothing, what the head reads erased leaves guessing, idle copies are idle."""

import pytest
import torch

from mixerscope.artifacts import Erasures
from mixerscope.errors import UserError
from mixerscope.interventions.members import Members
from mixerscope.interventions.tagging import right_answers, run_on
from mixerscope.planted.automata import EVERY_STATE
from mixerscope.probing.erasure import Eraser
from mixerscope.sites import edit
from mixerscope.spec import RunSpec
from mixerscope.stages import Done, Impossible
from mixerscope.stages.erase import _erase
from mixerscope.stages.erase_recurrence import METHOD
from mixerscope.tasks import Parity
from tests.stages.states import fresh, run_stage, spec_of

SMALL = {"documents": 120, "damaged_documents": 64, "draws": 4, "times": [1, 2]}


def telling(spec, used, seed=0):
    """A model of one block that writes the state into its stream twice; the head reads the `used` copy alone."""
    model, task = fresh(spec, seed), spec.task
    width = spec.model.width
    rng = torch.Generator().manual_seed(seed)
    axes = torch.linalg.qr(torch.randn(width - 1, 4, generator=rng)).Q.T
    # Orthogonal to the vector of ones, which the last norm takes off.
    free = torch.linalg.svd(torch.ones(1, width)).Vh[1:]
    axes = axes @ free
    with torch.no_grad():
        model.token_embedding.weight.zero_()
        for answer in range(2):
            token = int(task.answer_tokens(torch.tensor([answer]))[0])
            model.token_embedding.weight[token] = axes[0] if answer else -axes[0]
    block, embed = model.blocks[0], model.embed_tokens
    noise = torch.randn(1, 1, width, generator=rng)

    def remember(tokens):
        states = task.automaton.run(task.inputs_of(tokens))
        sign = (2.0 * states - 1)[..., None]
        spread = torch.sin(torch.arange(width) + 3.0 * tokens.cumsum(1)[..., None] + noise) * 0.1
        block.given = 3 * sign * (axes[0] if used else axes[1]) + spread
        block.answer = 3 * sign * axes[0]
        return embed(tokens)

    model.embed_tokens = remember

    def forward(x):
        x = block.resid_pre(x)
        return block.finish(block.add(x, block.mix(x)) * 0 + block.given)

    block.forward = forward
    if not used:
        # The copy that can be read at the boundary is idle: the answer enters behind it.
        head = model.head_input
        model.head_input = lambda x: head(x + block.answer)
    return model


def found_of(model, spec):
    [result] = run_stage("erase", spec, [model])
    [found] = result.artifacts
    assert isinstance(found, Erasures)
    assert Erasures.from_bytes(found.to_bytes()) == found
    return found


@pytest.mark.parametrize("seed", range(20))
def test_used_and_unused_copies_are_told_apart(seed):
    spec = spec_of({"erase": {**SMALL, "draws": 0, "times": [1], "documents": 80}}, Parity(length=8), "gru", width=10)
    for used in (True, False):
        model = telling(spec, used, seed)
        block = model.layers()[0]
        block.mlp = None
        del block.mlp_out
        found = found_of(model, spec)
        assert found.clean == (1.0,)
        last = {one.method: one for one in found.erased if one.site == "blocks.0.resid_post"}
        one = last["leace"]
        assert one.before > 0.95
        assert one.residual < 0.7
        assert (one.damage[0] > 0.7) == used
        assert (last["head"].damage[0] > 0.7) == used


def test_erasing_nothing_changes_no_bit():
    spec = spec_of({"erase": SMALL}, Parity(length=8), "gru", width=8)
    members = Members([fresh(spec, seed) for seed in (0, 1)])
    batch = spec.task.sample(20, torch.Generator().manual_seed(0))
    mean = torch.randn(2, 1, 8, generator=torch.Generator().manual_seed(1))
    nothing = Eraser(mean, torch.zeros(2, 8, 8), torch.zeros(2))

    def program(model, tokens, targets, *own):
        taps = {"blocks.0.resid_post": lambda x: _erase(x, *own)} if own else {}
        with edit(model, taps):
            return model(tokens)

    plain = run_on(members, batch, program)
    assert torch.equal(plain, run_on(members, batch, program, nothing.mean, nothing.matrix))
    assert right_answers(members, batch).shape == (2, 20, 9)


def test_a_model_that_knows_nothing_has_nothing_to_lose():
    spec = spec_of({"erase": SMALL}, Parity(length=8), "gru", width=8)
    found = found_of(fresh(spec), spec)
    assert all(damage is None for one in found.erased for damage in one.damage)
    assert {one.method for one in found.erased} == {
        *("single direction", "leace", "iterated projection", "irrelevant label", "head", METHOD)
    }
    assert not any(found.speaks(one) for one in found.erased if one.residual > found.chance + 0.02)
    assert {one.edit for one in found.ablated} == {"zero", "mean", "resample"}
    assert {one.site for one in found.ablated} == {"blocks.0.mixer_out", "blocks.0.mlp_out", "blocks.0.resid_post"}
    leace = next(one for one in found.erased if one.method == "leace")
    assert len(leace.random_rank) == len(leace.random_variance) == SMALL["draws"]
    assert 0 <= leace.percentile <= 1


@pytest.mark.parametrize("stage", ["probes", "erase"])
def test_a_model_that_went_astray_costs_the_others_nothing(stage):
    settings = {"probes": {"documents": 100}, "erase": {**SMALL, "draws": 0}}
    spec = spec_of({stage: settings[stage]}, Parity(length=8), "gru", width=8)
    well, astray = fresh(spec, 0), fresh(spec, 1)
    with torch.no_grad():
        astray.blocks[0].norm1.weight.fill_(float("nan"))
    found = run_stage(stage, spec, [well, astray, well])
    assert isinstance(found[1], Impossible)
    assert "not finite" in found[1].reason
    assert isinstance(found[0], Done)
    assert isinstance(found[2], Done)
    assert found[0].artifacts[0].to_bytes() == found[2].artifacts[0].to_bytes()


def test_unknown_labels_are_refused():
    spec = spec_of({"erase": {"label": "depth"}})
    with pytest.raises(UserError, match="no label of Parity named 'depth'"):
        spec.stages["erase"].check(spec)


def test_a_state_erased_at_every_step_is_lost_where_it_is_carried():
    task = Parity(length=8)
    settings = {"erase": {**SMALL, "draws": 0, "times": [1]}}
    for planted in EVERY_STATE[:1]:
        model = planted.build(task, 0)
        spec = RunSpec(task=task, model=model.spec, stages=settings)
        found = found_of(model, spec)
        inside = {one.site: one for one in found.erased if one.method == METHOD}
        carried = inside["blocks.0.mixer.state"]
        assert carried.before == 1.0
        assert carried.residual < 0.6
        assert carried.damage[0] > 0.7
        assert found.speaks(carried) == (carried.residual <= 0.52)
        assert inside["blocks.1.mixer.state"].damage[0] == 0.0, "nobody reads what an idle block holds"
