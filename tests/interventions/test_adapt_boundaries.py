"""Foreign modules with block boundaries: verdicts as of our own models, and maps that claim what does not hold."""

import pytest
import torch
from torch import nn

from mixerscope.artifacts.effects import Part
from mixerscope.artifacts.proof import USUAL
from mixerscope.errors import UnknownName, UserError
from mixerscope.interventions import (
    Cell,
    PairSettings,
    adapt,
    boundary_sites,
    check_model,
    interchange,
    judging_cells,
    make_pairs,
    plan_grid,
    verdict,
)
from mixerscope.interventions.plan import parts_of
from mixerscope.interventions.prove import other_sizes, prove
from mixerscope.model import build_model
from mixerscope.planted.models import conv_recurrence, induction_transformer
from mixerscope.planted.zoo import TASK
from mixerscope.randomness import construction
from mixerscope.sites import edit, record
from mixerscope.spec import ModelSpec
from tests.interventions.homemade import SITES, HomeMade

PAIRS = make_pairs(TASK, PairSettings(documents=64, avoid_present=True), data_seed=0)
FEW = PAIRS.original[slice(0, 5)]
STREAM = ["before", "between", "behind"]
PLACES = {"before": "blocks.0.resid_pre", "between": "blocks.1.resid_pre", "behind": "blocks.1.resid_post"}


def heads_of(site: str) -> dict[str, str]:
    return {f"z{i}": f"blocks.{i}.mixer.{site}" for i in range(2)}


@pytest.mark.parametrize("site", ["heads_out", "out_proj:input"])
def test_an_adapted_model_gets_the_verdict_of_our_own(site):
    """Heads as a dimension of their own, and side by side in one vector."""
    ours = induction_transformer(TASK, 0, heads=2)
    model = adapt(
        ours,
        {**PLACES, **heads_of(site)},
        heads={"z0": 2, "z1": 2},
        boundaries=STREAM,
        parts=[[("attention", "z0")], [("attention", "z1")]],
    )
    checked = check_model(model, FEW)
    assert checked.passed, str(checked)
    assert "pass  boundary between" in str(checked)
    assert "pass  parts of block 1: attention" in str(checked)
    found = verdict(interchange(model, PAIRS), model)
    expected = verdict(interchange(ours, PAIRS), ours)
    assert found.mechanism == expected.mechanism == "induction"
    assert list(map(str, found.moves)) == list(map(str, expected.moves))
    assert "block 0 attention head 1: key → value" in list(map(str, found.moves))
    assert [b.carrier for b in found.boundaries] == [b.carrier for b in expected.boundaries]


def test_with_boundaries_alone_a_block_answers_as_a_whole():
    model = adapt(induction_transformer(TASK, 0), PLACES, boundaries=STREAM)
    found = verdict(interchange(model, PAIRS), model)
    assert found.mechanism == "induction"
    assert list(map(str, found.moves)) == [
        "block 0 as a whole: key → value",
        "block 1 as a whole: value → query",
    ]
    assert all(move.share is not None and move.share.low > 0.9 for move in found.moves)


class Positioned(HomeMade):
    """With learned positions, which end."""

    def __init__(self, symbols, width, rows):
        super().__init__(symbols, width)
        self.places = nn.Embedding(rows, width)
        self.stack[0].register_forward_pre_hook(
            lambda m, args: (args[0] + self.places(torch.arange(args[0].shape[1])),)
        )


@pytest.mark.parametrize(
    ("longest", "said"),
    [(None, "index out of range"), (13, "a document of 19 tokens is longer than the 13 the module takes")],
)
def test_longer_documents_than_a_module_can_take_are_not_held_against_it(longest, said):
    with construction(0):
        module = Positioned(TASK.vocab_size, 12, 13)
    assert PAIRS.original.tokens.shape[1] == 13
    model = adapt(module, SITES, logits=lambda out: out["scores"], longest=longest)
    proof = prove(model, PAIRS, "value", variants=other_sizes(PAIRS, documents=4))
    [variant] = [variant for variant in proof.variants if variant.reason]
    assert said in variant.reason
    assert {route.on for route in proof.routes} == {USUAL}


def test_a_filter_that_ends_is_not_held_against_our_own_model_either():
    options = {"filter_length": 13}
    model = build_model(ModelSpec(architecture="hyena", width=8, max_length=64, options=options), TASK.vocab_size, 0)
    proof = prove(model, PAIRS, "value", variants=other_sizes(PAIRS, documents=4))
    assert any("longer than the implicit filter" in variant.reason for variant in proof.variants)


def test_several_parts_of_one_block_are_told_apart():
    ours = conv_recurrence(TASK, 0)
    names = [part.site for block in ours.parts() for part in block]
    sites = {name: name for name in (*ours.boundaries(), *names)}
    parts = [[(part.component, part.site) for part in block] for block in ours.parts()]
    model = adapt(ours, sites, parts=parts)
    checked = check_model(model, FEW)
    assert checked.passed, str(checked)
    found, expected = (verdict(interchange(m, PAIRS), m) for m in (model, ours))
    assert list(map(str, found.moves)) == list(map(str, expected.moves))
    assert len({move.block for move in found.moves}) < len(found.moves)


def test_single_heads_of_a_foreign_module_are_cells_like_our_own():
    ours = induction_transformer(TASK, 0, heads=2)
    model = adapt(ours, heads_of("out_proj:input"), heads={"z0": 2, "z1": 2})
    cells = [
        Cell("key", "restore", f"z{i}", role, head=h) for i in range(2) for role in ("value", "query") for h in (0, 1)
    ]
    native = {
        cell: Cell("key", "restore", f"blocks.{cell.site[1]}.mixer.heads_out", cell.role, head=cell.head)
        for cell in cells
    }
    found, expected = interchange(model, PAIRS, cells), interchange(ours, PAIRS, list(native.values()))
    for cell, other in native.items():
        torch.testing.assert_close(found.cells[cell].effects.likelihood, expected.cells[other].effects.likelihood)
    assert (found.cells[cells[1]].effects.likelihood - found.corrupted["key"].likelihood).mean() > 0.5
    with pytest.raises(UserError, match="has the heads 0 to 1, so none is number 2"):
        interchange(model, PAIRS, [Cell("key", "restore", "z0", "value", head=2)])


def test_gradients_flow_through_heads_that_were_read():
    model = adapt(induction_transformer(TASK, 0, heads=2), heads_of("out_proj:input"), heads={"z0": 2})
    with record(model, ["z0"]) as found:
        logits = model(FEW.tokens)
    assert found["z0"].shape[2] == 2
    [gradient] = torch.autograd.grad(logits.logsumexp(-1).sum(), [found["z0"]])
    assert gradient.abs().sum() > 0


def test_an_activation_that_has_not_so_many_heads_is_refused():
    model = adapt(induction_transformer(TASK, 0), {**heads_of("out_proj:input")}, heads={"z0": 7, "z1": 0})
    failures = check_model(model, FEW).failures()
    assert "which is not divided into 7 heads" in failures["z0"]
    assert "which is not divided into 0 heads" in failures["z1"]


def homemade(boundaries=None, parts=None, sites=SITES, module=None):
    if module is None:
        with construction(0):
            module = HomeMade(TASK.vocab_size, 12).double()
    return adapt(module, sites, logits=lambda out: out["scores"], boundaries=boundaries, parts=parts)


def test_boundaries_are_found_by_their_names_where_all_are_named():
    model = homemade()
    assert boundary_sites(model) == ["blocks.0.resid_pre", "blocks.1.resid_pre", "blocks.1.resid_post"]
    assert parts_of(model) == (
        (Part("as a whole", "blocks.1.resid_pre"),),
        (Part("as a whole", "blocks.1.resid_post"),),
    )
    for missing in boundary_sites(model):
        without = homemade(sites={name: place for name, place in SITES.items() if name != missing})
        assert boundary_sites(without) == []
        assert parts_of(without) == ()
        assert judging_cells(without, PAIRS) == []
        with pytest.raises(UserError, match="a verdict is read off at the boundaries of blocks"):
            verdict(interchange(without, PAIRS, plan_grid(without, PAIRS, sites=["embed"])), without)


@pytest.mark.parametrize(
    ("boundaries", "parts", "said"),
    [
        (["embed", "blocks.0.resid_pots"], None, "no site named 'blocks.0.resid_pots'; did you mean"),
        (["embed"], None, "boundaries are different sites"),
        (["embed", "blocks.0.resid_post", "embed"], None, "boundaries are different sites"),
        (None, [[]], "3 boundaries make 2 blocks, but parts are given for 1"),
        ([], [[]], "0 boundaries make 0 blocks, but parts are given for 1"),
        (None, [["blocks.0.mixer_out"], []], "parts are pairs such as"),
        (None, [[("mean", "blocks.0.mixer")], []], "no site named 'blocks.0.mixer'"),
    ],
)
def test_boundaries_and_parts_that_cannot_be_are_refused_at_once(boundaries, parts, said):
    with pytest.raises(UserError, match=said):
        homemade(boundaries, parts)
    with pytest.raises(UnknownName, match="no site named 'y'"):
        adapt(nn.Sequential(nn.Identity()), {"x": "0"}, heads={"y": 2})


@pytest.mark.parametrize(
    ("boundaries", "wrong", "said"),
    [
        (["embed", "blocks.0.mixer_out", "blocks.1.resid_post"], "blocks.0.mixer_out", "does not pass through it"),
        (["embed", "blocks.1.mlp_in", "blocks.1.resid_post"], "blocks.1.mlp_in", "does not pass through it"),
        (["blocks.1.resid_pre", "embed", "blocks.1.resid_post"], "blocks.1.resid_pre", "embed is named after it"),
        (["blocks.0.resid_post", "blocks.1.resid_post"], "blocks.0.resid_post", "not what enters the first block"),
        (["embed", "blocks.0.resid_post"], "blocks.0.resid_post", "not what leaves the last block"),
    ],
)
def test_a_site_that_is_no_boundary_is_found_out(boundaries, wrong, said):
    assert check_model(homemade(), FEW).passed
    failures = check_model(homemade(boundaries), FEW).failures()
    assert list(failures) == [f"boundary {wrong}"]
    assert said in failures[f"boundary {wrong}"]


def test_no_verdict_is_read_off_boundaries_that_are_none():
    pairs = make_pairs(TASK, PairSettings(documents=16), data_seed=0)
    model = adapt(induction_transformer(TASK, 0), PLACES, boundaries=STREAM[::-1])
    with pytest.raises(UserError, match="boundary behind cannot be one: between is named after it"):
        verdict(interchange(model, pairs), model)


class Skipping(HomeMade):
    """The last layer's output also gets what the first one read: a path beside the residual stream."""

    def forward(self, ids):
        x = start = self.table(ids)
        for layer in self.stack:
            x = layer(x)
        return {"scores": self.out(x + start)}


def test_a_path_beside_the_residual_stream_is_found_out():
    with construction(0):
        module = Skipping(TASK.vocab_size, 12).double()
    model = homemade(module=module)
    failures = check_model(model, FEW).failures()
    assert [*failures] == [f"boundary {name}" for name in boundary_sites(homemade())]
    assert set(failures.values()) == {"the logits depend on something that does not pass through it"}
    with pytest.raises(UserError, match="cannot be one: the logits depend on something that does not pass"):
        prove(model, PAIRS, "divider")  # it would be sufficient and necessary, as any route is


def test_parts_that_are_not_all_are_found_out():
    names = [f"blocks.{i}.mixer_out" for i in range(2)]
    assert check_model(homemade(parts=[[("mean", name)] for name in names]), FEW).passed
    wrong = [[("mean", names[0])], [("wide", "blocks.1.mlp_out")]]
    failures = check_model(homemade(parts=wrong), FEW).failures()
    assert failures == {"parts of block 1: wide": "information moves between positions beside them"}


def test_an_edit_may_hand_over_a_tensor_that_the_module_writes_into():
    class InPlace(HomeMade):
        def forward(self, ids):
            x = self.table(ids)
            for layer in self.stack:
                x += layer(x)
            return {"scores": self.out(x)}

    with construction(0):
        model = homemade(module=InPlace(TASK.vocab_size, 12), sites={"embed": "table"})
    mine = torch.zeros(5, FEW.tokens.shape[1], 12)
    with torch.no_grad(), edit(model, {"embed": lambda x: mine}):
        model(FEW.tokens)
    assert not mine.any()


class Layered(nn.Module):
    """Three layers in a list, and logits."""

    def __init__(self):
        super().__init__()
        self.table, self.layers = nn.Embedding(9, 4), nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, tokens):
        x = self.table(tokens)
        for layer in self.layers:
            x = layer(x)
        return x @ self.table.weight.T


@pytest.fixture
def layered():
    with construction(0):
        return Layered()


@pytest.mark.parametrize("middle", ["layers.1", "layers.2:input"])
def test_a_map_that_passes_over_a_layer_is_warned_of(layered, middle):
    places = {"a": "layers.0:input", "b": middle, "c": "layers.2"}
    with pytest.warns(UserWarning, match=r"one block of this map is layers\.0 to layers\.1"):
        adapt(layered, places, boundaries=["a", "b", "c"])


@pytest.mark.parametrize("places", [["table", "layers.1", "layers.2"], ["layers.0:input", "layers.0", "final"]])
def test_so_is_one_that_begins_before_the_layers_or_ends_behind_them(layered, places):
    layered.final = nn.Identity()
    with pytest.warns(UserWarning, match=r"one block of this map is layers\.[01] to layers\.[12]"):
        adapt(layered, dict(zip("abc", places, strict=True)), boundaries=list("abc"))


def test_two_boundaries_at_one_place_are_refused(layered):
    places = {"a": "layers.0:input", "b": "layers.0", "c": "layers.1:input", "d": "layers.1", "e": "layers.2"}
    with pytest.raises(UserError, match="the boundaries 'b' and 'c' are one place, with no block between them"):
        adapt(layered, places, boundaries=list("abcde"))


def test_a_map_of_every_layer_is_not(layered, recwarn):
    places = {"a": "layers.0:input", "b": "layers.0", "c": "layers.2:input", "d": "layers.2"}
    adapt(layered, places, boundaries=list("abcd"))
    adapt(layered, {"a": "layers.0:input", "b": "layers.2"})  # without boundaries there is no verdict
    assert not recwarn.list
