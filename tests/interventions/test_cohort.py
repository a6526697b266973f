"""A grid over K stacked models is the K grids one by one."""

from dataclasses import replace

import pytest
import torch

from mixerscope.errors import UserError
from mixerscope.interventions import (
    METRICS,
    PairSettings,
    interchange,
    interchange_cohort,
    make_pairs,
    plan_grid,
    state_sites,
)
from mixerscope.mixers import Mixer
from mixerscope.model import build_model
from mixerscope.registry import MIXERS
from mixerscope.sites import named_sites
from mixerscope.spec import ModelSpec
from mixerscope.tasks import AR

TASK = AR(num_pairs=2, num_keys=4, num_values=4)
PAIRS = make_pairs(TASK, PairSettings(documents=5), data_seed=0)
BUILT_IN = [entry.name for entry in MIXERS.entries() if entry.origin == "mixerscope"]


def make(architecture: str, seed: int):
    spec = ModelSpec(architecture=architecture, width=8, layers=2, max_length=16, init="small_model")
    return build_model(spec, TASK.vocab_size, seed).double()


@pytest.mark.parametrize("architecture", BUILT_IN)
def test_together_is_one_by_one(architecture: str):
    models = [make(architecture, seed) for seed in range(3)]
    with torch.no_grad():  # one member takes all tokens for the same, so that there restoring the key is no edit
        models[1].token_embedding.weight.copy_(models[1].token_embedding.weight[0].clone())
    last = models[0].layers()[1].movers()[-1].site
    states = state_sites(models[0])
    assert states or type(models[0].layers()[0].mixer).step is Mixer.step, "what is carried on can be patched"
    sites = ["embed", "blocks.0.mixer_in", f"blocks.1.{last}", "blocks.1.resid_post", *states[:1]]
    plan = plan_grid(models[0], PAIRS, sites, ["key", "value&query"], ["restore"], edits=["swap", "noise"])
    together = interchange_cohort(models, PAIRS, plan, batch_documents=3)
    for grid, model in zip(together, models, strict=True):
        alone = interchange(model, PAIRS, plan, batch_documents=3)
        for found, want in zip(grid.self_test.sites, alone.self_test.sites, strict=True):
            assert found.resume_error <= grid.self_test.tolerance == alone.self_test.tolerance
            assert replace(found, resume_error=0) == replace(want, resume_error=0)
        torch.testing.assert_close(grid.original.likelihood, alone.original.likelihood, rtol=1e-10, atol=0)
        for cell in plan:
            found, want = grid.cells[cell], alone.cells[cell]
            assert (found.status, found.reason) == (want.status, want.reason), cell
            for metric in METRICS:
                a, b = getattr(found.effects, metric), getattr(want.effects, metric)
                torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-12)
    assert {grid.cells[plan[0]].status for grid in together} == {"measured", "same"}
    assert all(site.taps == () for model in models for site in named_sites(model).values())


def test_models_of_different_shapes_are_refused():
    with pytest.raises(UserError, match="must have the same model spec"):
        interchange_cohort([make("attention", 0), make("mamba", 0)], PAIRS)
