"""Grids where models are not on the CPU: nothing is left behind, nothing is mixed, results come back."""

import copy
from dataclasses import replace

import pytest
import torch

from mixerscope.interventions import (
    EDITS,
    METRICS,
    Edge,
    Grid,
    Pairs,
    PairSettings,
    activations,
    attribution_patching,
    editable_sites,
    effect_table,
    grids_or_failures,
    interchange,
    interchange_cohort,
    judging_cells,
    make_pairs,
    patch_paths,
    plan_grid,
    selftest,
    state_sites,
    verdict,
)
from mixerscope.interventions.batching import Batching, batching
from mixerscope.interventions.resume import Resumed
from mixerscope.interventions.runner import Unedited
from mixerscope.model import Model, build_model
from mixerscope.spec import ModelSpec
from mixerscope.stages.emergence import observe
from mixerscope.tasks import AR
from tests.interventions.elsewhere import DEVICE, Away, a_device_elsewhere, send

TASK = AR(num_pairs=2, num_keys=4, num_values=4)
PAIRS = make_pairs(TASK, PairSettings(documents=6, slots=("key", "value")), data_seed=0)


def make(architecture: str, seed: int = 0, **options: int) -> Model:
    spec = ModelSpec(architecture=architecture, width=8, max_length=16, init="small_model", options=options)
    return build_model(spec, TASK.vocab_size, seed)


def sent(model: Model) -> Model:
    model = copy.deepcopy(model)
    send(model)
    return model


def assert_equal(found: Grid, want: Grid) -> None:
    for cell, expected in want.cells.items():
        measured = found.cells[cell]
        assert (measured.status, measured.reason) == (expected.status, expected.reason)
        for metric in METRICS:
            mine, other = getattr(measured.effects, metric), getattr(expected.effects, metric)
            assert not isinstance(mine, Away)
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)


def test_the_device_refuses_what_a_gpu_refuses():
    with a_device_elsewhere():
        x = torch.zeros(3, device=DEVICE)
        assert x.device == DEVICE
        assert (x + 1).sum().item() == 3
        with pytest.raises(AssertionError, match="mixes tensors"):
            x + torch.zeros(3)
        with pytest.raises(AssertionError, match="mixes tensors"):
            x[torch.tensor([0, 1])]


@pytest.mark.parametrize("architecture", ["attention", "mamba", "deltanet", "hyena"])
def test_a_grid_elsewhere_is_the_grid_here(architecture: str):
    models = [make(architecture, seed) for seed in range(2)]
    sites = ["embed", "blocks.0.mixer_in", f"blocks.1.{models[0].layers()[1].movers()[-1].site}"]
    edits = list(EDITS) if architecture == "attention" else ["swap"]
    pairs = Pairs(PAIRS.original, {"key": PAIRS.corrupted["key"]})
    plan = plan_grid(models[0], pairs, sites, ["key", "value&query", "pos:2"], ["restore"], edits)
    plan += plan_grid(models[0], pairs, state_sites(models[0])[:1], ["key"], ["break"], edits[:1])
    with a_device_elsewhere():
        together = interchange_cohort([sent(model) for model in models], pairs, plan)
        alone = interchange(sent(models[0]), pairs, plan)
    assert_equal(alone, interchange(models[0], pairs, plan))
    for found, model in zip(together, models, strict=True):
        assert_equal(found, interchange(model, pairs, plan))


def test_what_verdicts_look_at_and_their_tables_of_a_model_elsewhere():
    models = [make("attention", seed, heads=2) for seed in range(2)]
    plan = judging_cells(models[0], PAIRS)
    assert any(cell.head >= 0 for cell in plan)
    assert any("&" in cell.role for cell in plan)
    whole = interchange(models[0], PAIRS)
    with a_device_elsewhere():
        away = [sent(model) for model in models]
        alone, together = interchange(away[0], PAIRS, plan), interchange_cohort(away, PAIRS, plan)
        assert verdict(whole, away[0]).to_json() == verdict(whole, models[0]).to_json()
        table = effect_table(interchange(away[0], PAIRS), away[0])
        [points, _] = observe(3, away, PAIRS, 64)
    assert_equal(alone, interchange(models[0], PAIRS, plan))
    for found, model in zip(together, models, strict=True):
        assert_equal(found, interchange(model, PAIRS, plan))
    here = effect_table(whole, models[0])
    assert (table.cells, table.statuses, table.facts) == (here.cells, here.statuses, here.facts)
    torch.testing.assert_close(table.summary["logit"], here.summary["logit"], rtol=1e-4, atol=1e-6)
    want = observe(3, [models[0]], PAIRS, 64)[0]
    assert [(p.slot, p.site, p.role, p.reason) for p in points] == [(p.slot, p.site, p.role, p.reason) for p in want]
    assert [p.gap for p in points] == pytest.approx([p.gap for p in want], rel=1e-3, abs=1e-6)


def test_paths_gradients_and_first_looks_elsewhere():
    model = make("attention")
    edge = Edge("key", "restore", "blocks.0.mixer_out", "value", "blocks.1.mixer_in", "value")
    plan = plan_grid(model, PAIRS, ["blocks.0.mixer_out"], ["key"])
    with a_device_elsewhere():
        away = sent(model)
        paths = patch_paths(away, PAIRS, [edge])
        held = activations(away, PAIRS.original, ["embed"], ["key"])["embed", "key"].cpu()
        estimate = attribution_patching(away, PAIRS, plan)
    want = patch_paths(model, PAIRS, [edge]).edges[edge].effects.likelihood
    torch.testing.assert_close(paths.edges[edge].effects.likelihood, want)
    assert torch.equal(held, activations(model, PAIRS.original, ["embed"], ["key"])["embed", "key"])
    for cell, values in attribution_patching(model, PAIRS, plan).cells.items():
        torch.testing.assert_close(estimate.cells[cell], values)


def test_a_component_that_is_ignored_is_found_dead_elsewhere_too():
    models = [make("attention", seed) for seed in range(2)]
    with torch.no_grad():
        models[1].layers()[0].mixer.out_proj.weight.zero_()
    plan = plan_grid(models[0], PAIRS, ["blocks.0.mixer.v"], ["key"], ["restore"])
    with a_device_elsewhere():
        tested = [grid.self_test for grid in interchange_cohort([sent(model) for model in models], PAIRS, plan)]
    assert [[site.dead for site in test.sites] for test in tested] == [[False], [True]]


def test_what_only_rounding_spoils_elsewhere_is_judged_in_strict_arithmetic(monkeypatch):
    model = make("attention")
    plan = plan_grid(model, PAIRS, ["blocks.0.mixer.v"], ["key"], ["restore"])
    strict: list[str] = []
    test = selftest.Tester.test

    def rounding(tester: selftest.Tester, site: str) -> selftest.SiteTest:
        strict.append(tester.plain.device.type)
        found = test(tester, site)
        return found if tester.plain.device.type == "cpu" else replace(found, identity_exact=False)

    look = selftest.Tester.first_looks
    monkeypatch.setattr(selftest.Tester, "test", rounding)
    monkeypatch.setattr(selftest.Tester, "first_looks", lambda *given: 0 * look(*given))
    with a_device_elsewhere():
        [site] = interchange(sent(model), PAIRS, plan).self_test.sites
    assert strict == [DEVICE.type, "cpu"]
    assert site.identity_exact


def test_a_member_that_fails_the_self_test_leaves_the_others_theirs():
    models = [make("attention", seed) for seed in range(3)]
    with torch.no_grad():
        models[1].layers()[1].mlp.fc2.bias.fill_(float("nan"))
    plan = plan_grid(models[0], PAIRS, ["blocks.0.resid_pre"], ["key"])
    found = grids_or_failures(models, PAIRS, plan)
    assert [type(one) for one in found] == [Grid, selftest.SelfTestFailed, Grid]
    assert_equal(found[2], interchange(models[2], PAIRS, plan))
    with pytest.raises(selftest.SelfTestFailed, match=r"blocks\.0\.resid_pre"):
        interchange_cohort(models, PAIRS, plan)


@pytest.mark.parametrize("dtype", list(selftest.TOLERANCE))
def test_every_precision_has_a_tolerance(dtype: torch.dtype):
    assert 0 < selftest.tolerance_for(torch.zeros(2, dtype=dtype)) < 0.1


def test_batches_follow_the_device():
    model = make("attention")
    assert batching(model, PAIRS, 3) == Batching(3, 64, 256)
    pairs = make_pairs(AR(), PairSettings(), data_seed=0)
    large = build_model(ModelSpec(architecture="mamba", width=256), AR().vocab_size, 0)
    with a_device_elsewhere():
        send(large)
        found = batching(large, pairs, 64, models=7)
        assert found.documents == 320
        assert found.rows >= 3 * 320
        assert 4 * 7 * found.rows * AR().vocab_size <= 2**29
        assert batching(large, pairs, 64, models=700).documents < 320


def test_a_cohort_grid_asks_a_gpu_for_little(monkeypatch):
    """As many requests as there are sites, whatever the number of models and roles."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):
        asked = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            Counting.asked += 1
            return func(*args, **(kwargs or {}))

    monkeypatch.setattr("mixerscope.interventions.batching.ROWS_ON_CPU", 10_000)

    def count(models: int) -> int:
        Counting.asked = 0
        with Counting():
            interchange_cohort([make("attention", seed) for seed in range(models)], PAIRS, batch_documents=1000)
        return Counting.asked

    few, sites = count(2), len(editable_sites(make("attention")))
    assert few < 1800 * sites
    assert count(4) < 1.15 * few


@pytest.mark.parametrize("models", [1, 2])
def test_a_pass_that_does_not_fit_is_made_in_halves(models: int, monkeypatch):
    cohort = [make("attention", seed) for seed in range(models)]
    plan = plan_grid(cohort[0], PAIRS, ["blocks.0.resid_pre", "blocks.1.mixer.q"])
    want = [interchange(model, PAIRS, plan) for model in cohort]
    leaves, sizes = Resumed.leaves, []

    def small(runner: Resumed, base: Unedited, site: str, positions: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        sizes.append(len(positions) // len(base.tokens))
        if sizes[-1] > 1:
            raise torch.OutOfMemoryError
        return leaves(runner, base, site, positions, value)

    monkeypatch.setattr(Resumed, "leaves", small)
    for found, expected in zip(grids_or_failures(cohort, PAIRS, plan), want, strict=True):
        assert isinstance(found, Grid)
        assert_equal(found, expected)
    assert max(sizes) >= 3
