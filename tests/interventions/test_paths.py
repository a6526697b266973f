"""Path patching: nothing where nothing can go, and what a computation by hand gives where something does."""

from dataclasses import replace

import pytest
import torch

from mixerscope.errors import UnknownName
from mixerscope.interventions import Cell, Edge, Pairs, PairSettings, interchange, make_pairs, patch_paths, plan_grid
from mixerscope.interventions.effects import Effects
from mixerscope.model import Model, build_model
from mixerscope.sites import edit, record
from mixerscope.spec import ModelSpec
from mixerscope.tasks import AR

TASK = AR(num_pairs=3, num_keys=6, num_values=6)
PAIRS = make_pairs(TASK, PairSettings(documents=6), data_seed=0)
READ, ANSWERS = PAIRS.original.answers()
ROWS = torch.arange(len(PAIRS))


def make(architecture: str = "attention") -> Model:
    spec = ModelSpec(architecture=architecture, width=16, layers=2, max_length=16, init="small_model")
    return build_model(spec, TASK.vocab_size, seed=1).double().eval()


def restore(sender: str, sender_role: str, receiver: str, receiver_role: str) -> Edge:
    return Edge("key", "restore", sender, sender_role, receiver, receiver_role)


@torch.no_grad()
def test_the_direct_path_between_two_blocks_equals_a_computation_by_hand():
    model = make()
    edge = restore("blocks.0.mixer_out", "value", "blocks.1.mixer.k", "value")
    grid = patch_paths(model, PAIRS, [edge], batch_documents=4)

    sites = ["blocks.0.resid_pre", "blocks.0.mixer_out", "blocks.0.mlp_out", "blocks.1.mixer.k"]
    at = (ROWS, PAIRS.positions("value"))
    with record(model, sites) as base:
        model(PAIRS.corrupted["key"].tokens)
    with record(model, sites) as source:
        model(PAIRS.original.tokens)
    # Block 1 reads the sum of what was written before it; the MLP of block 0 is held at what it was.
    block = model.layers()[1]
    arrives = base[sites[0]][at] + source[sites[1]][at] + base[sites[2]][at]
    _, k, _ = block.mixer.qkv_proj(block.norm1(arrives)).chunk(3, -1)
    written = base["blocks.1.mixer.k"].clone()
    written[at] = k[:, None]
    with edit(model, {"blocks.1.mixer.k": lambda _: written}):
        want = Effects.of(model(PAIRS.corrupted["key"].tokens)[ROWS, READ], ANSWERS)
    found = grid.edges[edge].effects
    torch.testing.assert_close(found.likelihood, want.likelihood, rtol=1e-10, atol=0)
    assert (found.likelihood - grid.corrupted["key"].likelihood).abs().max() > 1e-6


@torch.no_grad()
def test_a_path_through_the_senders_own_mixer_equals_a_computation_by_hand():
    model = make("mamba")
    edge = restore("blocks.0.mixer_in", "key", "blocks.1.resid_pre", "value")
    grid = patch_paths(model, PAIRS, [edge])
    with record(model, ["blocks.0.resid_pre", "blocks.0.mixer_in"]) as base:
        model(PAIRS.corrupted["key"].tokens)
    with record(model, ["blocks.0.mixer_in"]) as source:
        model(PAIRS.original.tokens)
    key, value = (ROWS, PAIRS.positions("key")), (ROWS, PAIRS.positions("value"))
    mixed = base["blocks.0.mixer_in"].clone()
    mixed[key] = source["blocks.0.mixer_in"][key]
    out = base["blocks.0.resid_pre"] + model.layers()[0].mixer(mixed)

    def write(x):
        x = x.clone()
        x[value] = out[value]
        return x

    with edit(model, {"blocks.1.resid_pre": write}):
        want = Effects.of(model(PAIRS.corrupted["key"].tokens)[ROWS, READ], ANSWERS)
    torch.testing.assert_close(grid.edges[edge].effects.likelihood, want.likelihood, rtol=1e-10, atol=0)
    assert (want.likelihood - grid.corrupted["key"].likelihood).abs().max() > 1e-6


def test_an_edge_with_nothing_between_its_ends_is_the_swap_itself():
    model = make()
    edge = restore("blocks.0.resid_post", "value", "blocks.1.resid_pre", "value")
    cell = Cell("key", "restore", "blocks.1.resid_pre", "value")
    exact = interchange(model, PAIRS, [cell]).cells[cell].effects
    found = patch_paths(model, PAIRS, [edge]).edges[edge].effects
    torch.testing.assert_close(found.likelihood, exact.likelihood, rtol=1e-12, atol=0)
    torch.testing.assert_close(found.kl, exact.kl, rtol=1e-6, atol=1e-12)


SITES = [
    "embed",
    "blocks.0.mixer_out",
    "blocks.0.mlp_in",
    "blocks.1.mixer.q",
    "blocks.1.mixer_out",
    "blocks.1.resid_post",
]


def test_nothing_when_clean_equals_corrupted():
    model = make()
    same = Pairs(PAIRS.original, {"key": replace(PAIRS.corrupted["key"], tokens=PAIRS.original.tokens)})
    edges = [Edge("key", d, a, "key", b, "key") for a in SITES for b in SITES for d in ("restore", "break")]
    grid = patch_paths(model, same, edges)
    for measured in grid.edges.values():
        assert measured.status == "no path"
        assert torch.equal(measured.effects.likelihood, grid.original.likelihood)


def test_nothing_for_an_earlier_target():
    model = make()
    by_site = [restore(b, "key", a, "query") for i, a in enumerate(SITES) for b in SITES[i + 1 :]]
    by_position = [restore(a, "value", b, "key") for i, a in enumerate(SITES) for b in SITES[i + 1 :]]
    grid = patch_paths(model, PAIRS, by_site + by_position)
    assert {grid.edges[edge].reason for edge in by_site} == {"the receiver comes before the sender"}
    assert {grid.edges[e].reason for e in by_position} == {"the edit of the sender does not reach the receiver"}
    for measured in grid.edges.values():
        assert torch.equal(measured.effects.likelihood, grid.corrupted["key"].likelihood)


def test_unknown_ends_are_refused():
    with pytest.raises(UnknownName, match=r"no site named 'blocks\.0\.mixer_ot'; did you mean"):
        patch_paths(make(), PAIRS, [restore("blocks.0.mixer_ot", "key", "blocks.1.resid_pre", "key")])
    with pytest.raises(UnknownName, match="no role named 'kez'"):
        patch_paths(make(), PAIRS, [restore("embed", "kez", "blocks.1.resid_pre", "key")])
    with pytest.raises(UnknownName, match="no slot named 'valeu'; did you mean 'value'"):
        patch_paths(make(), PAIRS, [Edge("valeu", "restore", "embed", "key", "blocks.1.resid_pre", "key")])


def test_edges_and_plans_share_their_roles():
    model = make()
    edge = restore("embed", "key&value", "blocks.0.mixer_in", "key&value")
    found = patch_paths(model, PAIRS, [edge]).edges[edge].effects
    [cell] = plan_grid(model, PAIRS, ["blocks.0.mixer_in"], ["key&value"], ["restore"])
    exact = interchange(model, PAIRS, [cell]).cells[cell].effects
    torch.testing.assert_close(found.likelihood, exact.likelihood, rtol=1e-10, atol=0)
