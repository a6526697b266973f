"""What foreign modules do that one would not expect: each is coped with, or refused in one sentence."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from mixerscope.errors import UserError
from mixerscope.interventions import PairSettings, adapt, check_model, interchange, make_pairs, plan_grid
from mixerscope.sites import edit
from tests.interventions.homemade import SITES, HomeMade
from tests.interventions.small import PAIRS, TASK, TOKENS, WIDTH, Small, build


class Encoder(nn.Module):
    """Torch's own layers, which run as one fused call where no hook is in place."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True)
        self.table, self.layers = nn.Embedding(TASK.vocab_size, WIDTH), nn.TransformerEncoder(layer, 2)
        self.out = nn.Linear(WIDTH, TASK.vocab_size)

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.out(self.layers(self.table(ids), mask=mask, is_causal=True))


def test_the_fused_path_of_torchs_own_layers_is_off_inside_and_as_before_outside():
    model = adapt(build(Encoder), {"a": "layers.layers.0.self_attn:output[0]", "b": "layers.layers.1"})
    assert torch.backends.mha.get_fastpath_enabled()
    found = check_model(model, TOKENS)
    assert found.passed, str(found)
    assert torch.backends.mha.get_fastpath_enabled()


def test_dropout_is_off_in_a_model_that_was_left_in_train_mode():
    module = build(Small)
    module.layer.inside = nn.Sequential(module.layer.inside, nn.Dropout(0.5))
    model = adapt(module, {"out": "layer"}).train()
    assert check_model(model, TOKENS).passed
    assert interchange(model, PAIRS, plan_grid(model, PAIRS)).cells
    assert module.layer.inside[1].training


def test_chance_that_cannot_be_switched_off_is_named():
    draws = itertools.count()
    model = adapt(build(Small, undress=lambda y: y + next(draws)), {"out": "layer"})
    failures = check_model(model, TOKENS).failures()
    assert "there is chance in the forward pass" in failures["the same documents a second time"]


def test_logits_that_are_not_a_number_are_named():
    model = adapt(build(Small, undress=lambda y: y / 0.0 * 0.0), {"out": "layer"})
    assert check_model(model, TOKENS).failures()["the same documents a second time"] == "some logits are not a number"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_judged_by_its_own_rounding(dtype):
    model = adapt(
        build(HomeMade, TASK.vocab_size, WIDTH).to(dtype), SITES, head="out", logits=lambda o: o["scores"].float()
    )
    found = check_model(model, TOKENS)
    assert found.passed, str(found)
    model = adapt(build(HomeMade, TASK.vocab_size, WIDTH).to(dtype), SITES, head="out", logits=lambda o: o["scores"])
    grid = interchange(model, PAIRS, plan_grid(model, PAIRS))
    assert {measured.status for measured in grid.cells.values()} <= {"measured", "no path", "same"}
    embed = next(m for c, m in grid.cells.items() if (c.site, c.role, c.direction) == ("embed", "key", "restore"))
    torch.testing.assert_close(embed.effects.likelihood, grid.original.likelihood)
    assert grid.original.likelihood.dtype == torch.float32


class Upcast(Small):
    """Adds in half precision and hands on single numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.sum = nn.Identity()

    def forward(self, ids):
        x = self.table(ids)
        return self.out(self.sum((x + self.layer(x)).float()).to(x.dtype)).float()


def test_numbers_that_were_rounded_before_they_became_single_ones_are_not_held_to_more():
    sites = {"blocks.0.resid_pre": "table", "blocks.0.mixer_out": "layer", "blocks.0.resid_post": "sum"}
    found = check_model(adapt(build(Upcast).to(torch.bfloat16), sites), TOKENS)
    assert found.passed, str(found)


def test_an_edit_of_another_precision_is_written_in_the_models_own():
    model = adapt(build(Small).to(torch.bfloat16), {"in": "layer:input"})
    with edit(model, {"in": lambda x: x.double()}):
        assert model(TOKENS).dtype == torch.bfloat16


class PositionsFirst(Small):
    def forward(self, ids):
        x = self.table(ids.T)
        return self.out((x + torch.cumsum(self.layer.inside(x), 0)).transpose(0, 1))


@pytest.mark.parametrize("documents", [5, TOKENS.shape[1]])
def test_positions_before_documents_are_told_even_where_there_are_as_many(documents):
    tokens = make_pairs(TASK, PairSettings(documents=documents), data_seed=0).original.tokens
    failures = check_model(adapt(build(PositionsFirst), {"x": "layer.inside"}), tokens).failures()
    assert f"it holds [{tokens.shape[1]}, " in failures["x"]
    assert "documents, 11 positions, ...]" in failures["x"]


@pytest.mark.parametrize(
    ("sites", "said"),
    [
        ({}, "name at least one site"),
        (["stack.0"], "sites is a map such as .*, not a list of 1"),
        ({"x": "stack.7"}, r"no submodule named 'stack\.7'; did you mean"),
        ({"x": "decoder.blocks.0"}, r"no submodule named 'decoder\.blocks\.0'; known: out, stack, table$"),
        ({"x": "stack.0[-1]"}, "is not a place"),
        ({"x": 3}, "3 is not a place"),
        ({"blocks..x": "stack.0"}, "cannot name a site"),
        ({3: "stack.0"}, "3 cannot name a site"),
        ({"foreign.x": "stack.0"}, "'foreign.x' cannot name a site"),
        ({"a": "stack.0", "a.b": "stack.1"}, "'a.b' cannot name a site"),
        ({"a.b": "stack.0", "a": "stack.1"}, "'a' cannot name a site"),
        ({"blocks.0.mixer.state": "stack.0"}, "'blocks.0.mixer.state' cannot name a site: 'mixer.state' is"),
    ],
)
def test_a_map_that_cannot_be_is_refused_at_once(sites, said):
    with pytest.raises(UserError, match=said):
        adapt(build(HomeMade, TASK.vocab_size, WIDTH), sites)


def test_sites_need_not_be_numbered_by_block():
    model = adapt(build(Small), {"blocks.first.out": "layer", "blocks.last.in": "out:input"})
    assert check_model(model, TOKENS).passed


def test_only_modules_are_adapted_and_only_adapted_modules_checked():
    with pytest.raises(UserError, match=r"only a torch\.nn\.Module can be adapted, not a function"):
        adapt(lambda tokens: tokens, {"x": "y"})
    with pytest.raises(UserError, match="check_model is for what `adapt` returns"):
        check_model(build(Small), TOKENS)
    model = adapt(build(Small), {"x": "layer"})
    with pytest.raises(UserError, match=r"at least 3 positions\], not \[0, 11\]"):
        check_model(model, TOKENS[:0])
    for tokens in (TOKENS.tolist(), TOKENS.float()):
        with pytest.raises(UserError, match="documents are a batch of a task, or a tensor of token numbers"):
            check_model(model, tokens)


@pytest.mark.filterwarnings("ignore")
def test_torchscript_is_refused_as_it_calls_no_hooks():
    whole = build(
        nn.Sequential, nn.Embedding(TASK.vocab_size, WIDTH, _weight=torch.ones(TASK.vocab_size, WIDTH)), nn.Identity()
    )
    part = nn.Sequential(whole[0], torch.jit.script(whole[1]))
    for module in (torch.jit.script(whole), part):
        with pytest.raises(UserError, match="'1' is TorchScript, which calls no hooks"):
            adapt(module, {"x": "1"})
    assert adapt(part, {"x": "0"}).places


@pytest.mark.parametrize(
    ("logits", "said"),
    [
        (lambda out: out.argmax(-1), "the logits are a tensor of int64"),
        (
            lambda out: out.flatten(0, 1),
            r"the logits have shape \[55, .*they must be \[documents, positions, symbols\]",
        ),
        (lambda out: out[..., 0], r"the logits have shape \[5, 11\]"),
        (lambda out: None, r"the logits are nothing \(None\)"),
        (lambda out: out[:, -1:], r"the logits have shape \[5, 1, "),
    ],
)
def test_what_are_no_logits_is_refused(logits, said):
    with pytest.raises(UserError, match=said):
        check_model(adapt(build(Small), {"x": "layer"}, logits=logits), TOKENS)


@pytest.mark.parametrize(
    ("returns", "right"),
    [
        (lambda y: {"logits": y}, True),
        (lambda y: (y, None), True),
        (lambda y: SimpleNamespace(logits=y), True),
        (lambda y: {"scores": y}, False),
        (lambda y: (), False),
    ],
)
def test_logits_are_found_where_people_put_them(returns, right):
    model = adapt(build(Small), {"x": "layer"}, call=lambda m, tokens: returns(m(tokens)))
    if right:
        assert model(TOKENS).shape == (*TOKENS.shape, TASK.vocab_size)
        return
    with pytest.raises(UserError, match="say by `logits` how to find the logits in it"):
        model(TOKENS)


@pytest.mark.parametrize("head", ["layer", "unused"])
def test_a_head_that_makes_no_logits_is_refused_before_a_wrong_position_is_read(head):
    module = build(Small)
    module.unused = nn.Identity()
    model = adapt(module, {"x": "table"}, head=head)
    with pytest.raises(UserError, match=f"'{head}' is not what makes the logits; name another `head`, or none"):
        model(TOKENS, torch.full((len(TOKENS), 1), 3))


def test_a_head_that_gets_documents_and_positions_in_one_is_refused():
    class Flat(Small):
        def forward(self, ids):
            x = self.table(ids)
            return self.out((x + self.layer(x)).flatten(0, 1)).unflatten(0, ids.shape)

    model = adapt(build(Flat), {"x": "table"}, head="out")
    failures = check_model(model, TOKENS).failures()
    assert failures == {"head out": "'out' gets [55, 8], not [documents, positions, width]; leave `head` out"}
    assert check_model(adapt(build(Flat), {"x": "table"}), TOKENS).passed
