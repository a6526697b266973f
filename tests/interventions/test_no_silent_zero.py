"""Nothing is left behind, nothing depends on what was called before, and every way to measure nothing has a name."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mixerscope.errors import SelfTestFailed, SiteFiredAgain, SiteNeverFired, UnknownName, UserError
from mixerscope.interventions import (
    METRICS,
    Add,
    Cell,
    Edge,
    Effects,
    PairSettings,
    activations,
    attribution_patching,
    effect_table,
    interchange,
    interchange_cohort,
    logit_lens,
    make_pairs,
    patch_paths,
    plan_grid,
    state_sites,
)
from mixerscope.model import Model, build_model
from mixerscope.sites import edit, named_sites, record
from mixerscope.spec import ModelSpec
from mixerscope.tasks import AR

TASK = AR(num_pairs=2, num_keys=4, num_values=4)
PAIRS = make_pairs(TASK, PairSettings(documents=5), data_seed=0)
MANY = make_pairs(TASK, PairSettings(documents=64), data_seed=0)
EDGE = Edge("key", "restore", "embed", "key", "blocks.1.mixer_in", "key")


def make(architecture: str = "mamba", seed: int = 1, dtype: torch.dtype = torch.float64) -> Model:
    spec = ModelSpec(architecture=architecture, width=8, layers=2, max_length=16, init="small_model")
    return build_model(spec, TASK.vocab_size, seed).to(dtype)


def traces(model: Model) -> tuple:
    """All that a call could leave behind in a model."""
    return (
        {name: module.training for name, module in model.named_modules()},
        {name: (p.requires_grad, p.grad, p.device, p.dtype) for name, p in model.named_parameters()},
        {name: p.detach().clone().numpy().tobytes() for name, p in model.state_dict().items()},
        {name: site.taps for name, site in named_sites(model).items()},
        [(len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks)) for m in model.modules()],
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_rng_state().numpy().tobytes(),
    )


def half_frozen() -> Model:
    """A model in no uniform state, so that setting everything to one value shows."""
    model = make()
    model.train()
    model.layers()[1].eval()
    model.token_embedding.weight.requires_grad_(False)
    return model


CALLS: dict[str, Callable[[Model], object]] = {
    "grid": lambda model: interchange(model, PAIRS, plan_grid(model, PAIRS, roles=["key"])),
    "edits": lambda model: interchange(
        model,
        PAIRS,
        plan_grid(model, PAIRS, ["embed", "blocks.1.mixer_in"], ["key"], edits=["zero", "mean", "resample", "noise"]),
    ),
    "states": lambda model: interchange(model, PAIRS, plan_grid(model, PAIRS, state_sites(model), ["key&value"])),
    "cohort": lambda model: interchange_cohort(
        [model, make(seed=2)], PAIRS, plan_grid(model, PAIRS, ["embed", "blocks.1.mixer_in"], ["key"])
    ),
    "paths": lambda model: patch_paths(model, PAIRS, [EDGE]),
    "attribution": lambda model: attribution_patching(model, PAIRS, plan_grid(model, PAIRS, roles=["key"])),
    "activations": lambda model: activations(model, PAIRS.original, ["embed", *state_sites(model)], ["key"]),
    "lens": lambda model: logit_lens(model, PAIRS.original, ["key"]),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_leaves_nothing_behind(name: str):
    model = half_frozen()
    before = traces(model)
    CALLS[name](model)
    assert traces(model) == before


class Stop(Exception):
    pass


@pytest.mark.parametrize("after", [0, 1, 3])
@pytest.mark.parametrize("name", ["grid", "edits", "states", "cohort", "paths"])
def test_a_metric_that_raises_mid_grid_leaves_nothing_behind(name: str, after: int, monkeypatch):
    model = half_frozen()
    before = traces(model)
    calls, real = 0, Effects.of

    def failing(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls > after:
            raise Stop
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Effects, "of", staticmethod(failing))
        with pytest.raises(Stop):
            CALLS[name](model)
    assert calls == after + 1
    assert traces(model) == before
    assert outcome(CALLS[name](model)) == outcome(CALLS[name](half_frozen()))


@pytest.mark.parametrize("name", ["activations", "lens", "attribution", "grid", "states"])
def test_a_model_that_raises_leaves_nothing_behind(name: str, monkeypatch):
    model = half_frozen()
    before = traces(model)

    def stop(*_: object) -> None:
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(model.layers()[1].mixer, "forward", stop)
        with pytest.raises(Stop):
            CALLS[name](model)
    assert traces(model) == before


def outcome(result) -> list:
    """All numbers of a result, as bytes."""
    if isinstance(result, list):
        return [outcome(part) for part in result]
    if isinstance(result, dict):
        return [(key, x.detach().numpy().tobytes()) for key, x in result.items()]
    cells = result.edges if hasattr(result, "edges") else result.cells
    if not hasattr(result, "original"):
        return [(key, x.numpy().tobytes()) for key, x in cells.items()]
    return [
        (key, m.status, m.reason, [column.numpy().tobytes() for column in m.effects.columns()])
        for key, m in cells.items()
    ]


FRESH: dict[str, list] = {}


def fresh(name: str) -> list:
    if name not in FRESH:
        FRESH[name] = outcome(CALLS[name](half_frozen()))
    return FRESH[name]


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(sorted(CALLS)), min_size=2, max_size=4))
def test_any_sequence_of_calls_gives_what_a_fresh_engine_gives(names: list[str]):
    model = half_frozen()
    for name in names:
        assert outcome(CALLS[name](model)) == fresh(name), name


@settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_shuffling_the_plan_changes_nothing(random):
    model = make("based")
    plan = plan_grid(model, PAIRS, edits=["swap", "noise"])[::5]
    shuffled = random.sample(plan, len(plan))
    want, found = interchange(model, PAIRS, plan), interchange(model, PAIRS, shuffled)
    assert list(found.cells) == shuffled
    for cell in plan:
        assert (want.cells[cell].status, want.cells[cell].reason) == (
            found.cells[cell].status,
            found.cells[cell].reason,
        )
        torch.testing.assert_close(
            want.cells[cell].effects.likelihood, found.cells[cell].effects.likelihood, rtol=1e-10, atol=0
        )


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("architecture", ["attention", "mamba"])
def test_any_chunking_gives_the_same_table(architecture: str, dtype: torch.dtype, tolerance: float):
    model = make(architecture, dtype=dtype)
    sites, roles = ["blocks.0.mixer_out", "blocks.1.resid_post"], ["key", "value&query"]
    plan = plan_grid(model, MANY, sites, roles, ["restore"], edits=["swap", "mean"])
    plan += plan_grid(model, MANY, state_sites(model)[1:], roles, ["restore"])
    whole = interchange(model, MANY, plan, batch_documents=64)
    rows = list(effect_table(whole, model).rows())
    for size in (1, 23):
        grid = interchange(model, MANY, plan, batch_documents=size)
        for cell in plan:
            found, want = grid.cells[cell].effects, whole.cells[cell].effects
            torch.testing.assert_close(found.likelihood, want.likelihood, rtol=tolerance, atol=0)
            torch.testing.assert_close(found.logit, want.logit, rtol=tolerance, atol=tolerance)
            assert torch.equal(found.accuracy, want.accuracy)
        for found, want in zip(effect_table(grid, model).rows(), rows, strict=True):
            facts = {key for key in want if key not in ("value", "low", "high")}
            assert {key: found[key] for key in facts} == {key: want[key] for key in facts}
            if want["metric"] == "likelihood":
                assert found["value"] == pytest.approx(want["value"], rel=tolerance)
                assert found["low"] == pytest.approx(want["low"], rel=10 * tolerance)


def test_every_name_that_is_unknown_is_refused_by_name():
    model = make()
    with pytest.raises(UnknownName, match=r"no site named 'blocks\.9\.embed'"):
        interchange(model, PAIRS, [Cell("key", "restore", "blocks.9.embed", "key")])
    with pytest.raises(UnknownName, match="no slot named 'valeu'"):
        interchange(model, PAIRS, [Cell("valeu", "restore", "embed", "key")])
    with pytest.raises(UnknownName, match="no role named 'kez'"):
        interchange(model, PAIRS, [Cell("key", "restore", "embed", "kez")])
    with pytest.raises(UserError, match="direction must be one of restore, break, not 'mend'"):
        interchange(model, PAIRS, [Cell("key", "mend", "embed", "key")])  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"role 'query\+9' lies outside the document in 5 of 5 documents"):
        interchange(model, PAIRS, [Cell("key", "restore", "embed", "query+9")])


def test_a_role_outside_some_documents_is_refused_with_their_number():
    at = PAIRS.positions("key")
    beyond = PAIRS.original.tokens.shape[1] - int(at.max())
    outside = int((at + beyond >= PAIRS.original.tokens.shape[1]).sum())
    assert 0 < outside < len(PAIRS)
    with pytest.raises(UserError, match=f"lies outside the document in {outside} of 5 documents"):
        plan_grid(make(), PAIRS, roles=[f"key+{beyond}"])


def test_a_site_fires_once_or_it_is_an_error():
    model = make()
    with (
        pytest.raises(SiteNeverFired, match=r"'blocks\.0\.mixer\.dt' never fired"),
        record(model, ["blocks.0.mixer.dt"]),
    ):
        pass
    tokens = PAIRS.original.tokens
    with edit(model, {"embed": torch.clone}):
        model(tokens)
        with pytest.raises(SiteFiredAgain, match="'embed' fired 2 times"):
            model(tokens)
    assert all(site.taps == () for site in named_sites(model).values())


def test_numbers_that_are_not_finite_are_never_numbers_of_the_table():
    model = make("attention")
    plan = plan_grid(model, PAIRS, ["embed"], ["key"], ["restore"], edits=["steer"])
    grid = interchange(model, PAIRS, plan, edits={"steer": Add(torch.full((8,), math.inf))})
    assert grid.cells[plan[0]].status == "invalid"
    rows = list(effect_table(grid, model).rows())
    assert {row["metric"] for row in rows} >= set(METRICS)
    assert {(row["value"], row["low"], row["status"]) for row in rows} == {(None, None, "invalid")}
    assert all("not finite in 5 of 5 documents" in row["reason"] for row in rows)
    with torch.no_grad():
        model.layers()[0].mlp.fc2.bias.fill_(math.nan)
    with pytest.raises(SelfTestFailed):
        interchange(model, PAIRS, plan_grid(model, PAIRS, ["embed"], ["key"]))
