"""Activation cache, logit lens and attribution patching."""

import pytest
import torch

from mixerscope.errors import UnknownName, UserError
from mixerscope.interventions import (
    PairSettings,
    activations,
    attribution_patching,
    interchange,
    logit_lens,
    make_pairs,
    plan_grid,
)
from mixerscope.model import Model, build_model
from mixerscope.sites import edit, record
from mixerscope.spec import ModelSpec
from mixerscope.tasks import AR
from mixerscope.training.objective import answer_likelihood

TASK = AR(num_pairs=3, num_keys=6, num_values=6)
PAIRS = make_pairs(TASK, PairSettings(documents=6), data_seed=0)
READ, ANSWERS = PAIRS.original.answers()
ROWS = torch.arange(len(PAIRS))


def make(architecture: str = "attention") -> Model:
    spec = ModelSpec(architecture=architecture, width=16, max_length=16, init="small_model")
    return build_model(spec, TASK.vocab_size, seed=1).double()


@torch.no_grad()
def test_activations_by_site_and_role():
    model = make()
    sites, roles = ["embed", "blocks.1.mixer.q"], ["key", "query-1", "pos:3"]
    found = activations(model, PAIRS.original, sites, [*roles, "key&value"], batch_documents=4)
    with record(model, sites) as whole:
        model(PAIRS.original.tokens)
    for site in sites:
        for role in roles:
            torch.testing.assert_close(found[site, role], whole[site][ROWS, PAIRS.positions(role)])
        joint = torch.stack([whole[site][ROWS, PAIRS.positions(role)] for role in ("key", "value")], 1)
        torch.testing.assert_close(found[site, "key&value"], joint)
    for wrong in ("logits", "blocks.7.resid_pre"):
        with pytest.raises(UnknownName, match=f"no site with positions named '{wrong}'"):
            activations(model, PAIRS.original, [wrong], roles)
    with pytest.raises(UnknownName, match="no role named 'kez'"):
        activations(model, PAIRS.original, sites, ["kez"])


@torch.no_grad()
def test_the_logit_lens_ends_in_the_models_own_answer():
    model = make("mamba")
    lens = logit_lens(model, PAIRS.original, ["query", "key"])
    sites = ["blocks.0.resid_pre", "blocks.1.resid_pre", "blocks.1.resid_post"]
    assert list(lens) == [(site, role) for site in sites for role in ("query", "key")]
    torch.testing.assert_close(lens["blocks.1.resid_post", "query"], model(PAIRS.original.tokens)[ROWS, READ])
    embedded = model.embed_tokens(PAIRS.original.tokens)[ROWS, PAIRS.positions("key")]
    torch.testing.assert_close(lens["blocks.0.resid_pre", "key"], model.read_out(embedded))
    with pytest.raises(UserError, match=r"reads the residual stream .*, not 'blocks.0.mixer_out'"):
        logit_lens(model, PAIRS.original, ["query"], ["blocks.0.mixer_out"])


@pytest.mark.parametrize("architecture", ["attention", "mamba", "gla"])
def test_attribution_is_the_slope_of_the_exact_effect(architecture: str):
    model = make(architecture)
    plan = plan_grid(model, PAIRS, roles=["key", "key&query"])
    estimate = attribution_patching(model, PAIRS, plan, batch_documents=4)
    step, moved = 1e-6, 0
    for cell in plan[:: len(plan) // 12]:
        base, source = PAIRS.corrupted[cell.slot], PAIRS.original
        if cell.direction == "break":
            base, source = source, base
        at = (ROWS[:, None], PAIRS.places(cell.role))
        with torch.no_grad(), record(model, [cell.site]) as other:
            model(source.tokens)

        def nudge(x, at=at, other=other[cell.site]):
            x = x.clone()
            x[at] += step * (other[at] - x[at])
            return x

        with torch.no_grad():
            plain = answer_likelihood(model(base.tokens)[ROWS, READ], ANSWERS)
            with edit(model, {cell.site: nudge}):
                nudged = answer_likelihood(model(base.tokens)[ROWS, READ], ANSWERS)
        slope = (nudged - plain) / step
        torch.testing.assert_close(estimate.cells[cell], slope, rtol=1e-3, atol=1e-7)
        moved += bool(slope.abs().max() > 1e-5)
    assert moved > 2


def test_the_estimate_says_how_wrong_it_is():
    model = make()
    plan = plan_grid(model, PAIRS, roles=["key", "query"])
    grid = interchange(model, PAIRS, plan)
    error = attribution_patching(model, PAIRS, plan).error_against(grid)
    assert error.cells == len(plan)
    assert 0 < error.mean_absolute <= error.worst
    assert error.correlation is not None
    assert 0.5 < error.correlation < 1
    assert not any(p.grad is not None for p in model.parameters())
    with pytest.raises(UserError, match="holds no valid cell"):
        attribution_patching(model, PAIRS, plan_grid(model, PAIRS, roles=["value"])).error_against(grid)
    with pytest.raises(UserError, match="estimates swaps at whole sites, not zero at 'embed'"):
        attribution_patching(model, PAIRS, plan_grid(model, PAIRS, ["embed"], ["key"], edits=["zero"]))
