"""What foreign modules take and give that a site map must cope with: each works, or is told in one sentence."""

import itertools
from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from mixerscope.errors import SiteFiredAgain, UserError
from mixerscope.interventions import PairSettings, adapt, check_model, interchange, make_pairs, plan_grid
from mixerscope.randomness import construction
from mixerscope.sites import edit, record
from mixerscope.tasks import AR
from tests.interventions.homemade import SITES, HomeMade

TASK = AR(num_pairs=3, num_keys=6, num_values=6)
PAIRS = make_pairs(TASK, PairSettings(documents=5, slots=("key",)), data_seed=0)
TOKENS = PAIRS.original.tokens
WIDTH = 8


class Summing(nn.Module):
    """A causal layer whose output can be dressed up."""

    def __init__(self, dress=lambda y: y) -> None:
        super().__init__()
        self.inside, self.dress = nn.Linear(WIDTH, WIDTH), dress

    def forward(self, x, *, scale=1.0):
        return self.dress(scale * self.inside(x).cumsum(1))


class Small(nn.Module):
    """Embedding, one layer, a residual sum, logits."""

    def __init__(self, dress=lambda y: y, undress=lambda y: y, call=lambda layer, x: layer(x)) -> None:
        super().__init__()
        self.table, self.layer, self.out = (
            nn.Embedding(TASK.vocab_size, WIDTH),
            Summing(dress),
            nn.Linear(WIDTH, TASK.vocab_size),
        )
        self.undress, self.call = undress, call

    def forward(self, ids):
        x = self.table(ids)
        return self.out(x + self.undress(self.call(self.layer, x)))


def build(cls, *args, **kwargs):
    with construction(0):
        return cls(*args, **kwargs)


Pair = namedtuple("Pair", ["first", "second"])


@dataclass(frozen=True)
class Frozen:
    hidden: torch.Tensor
    note: str = "kept"


WRAPPINGS = {
    "[1]": (lambda y: (None, y), lambda y: y[1]),
    "[1][0]": (lambda y: (None, (y, "x")), lambda y: y[1][0]),
    "[1][inner][0]": (lambda y: [0, {"inner": [y]}], lambda y: y[1]["inner"][0]),
    "[hidden-states]": (lambda y: {"hidden-states": y}, lambda y: y["hidden-states"]),
    "[0]": (lambda y: {"0": y}, lambda y: y["0"]),
    "[second]": (lambda y: Pair(0, y), lambda y: y.second),
    "[hidden]": (Frozen, lambda y: y.hidden if y.note == "kept" else None),
    "[state][h]": (lambda y: SimpleNamespace(state=Frozen(y), h=1), lambda y: y.state.hidden),
}


@pytest.mark.parametrize("keys", [*WRAPPINGS])
def test_what_is_wrapped_in_containers_can_be_named(keys):
    dress, undress = WRAPPINGS[keys]
    model = adapt(build(Small, dress, undress), {"out": f"layer:output{keys.replace('[h]', '[hidden]')}"})
    found = check_model(model, TOKENS)
    assert found.passed, str(found)
    with record(model, ["out"]) as read:
        model(TOKENS)
    torch.testing.assert_close(read["out"], build(Small).layer(model.foreign.table(TOKENS)))


def test_containers_keep_their_kind_around_an_edit():
    seen = []
    for dress in (lambda y: Pair(0, y), lambda y: [0, y], lambda y: (0, y)):
        model = adapt(build(Small, dress, lambda y: seen.append(type(y)) or y[1]), {"out": "layer:output[1]"})
        with edit(model, {"out": torch.zeros_like}):
            model(TOKENS)
    assert seen == [Pair, list, tuple]


@pytest.mark.parametrize(
    ("dress", "place", "said"),
    [
        (lambda y: y, "layer:output[1]", r"no layer:output\[1\]: layer:output is a single tensor, so write"),
        (lambda y: (y, None), "layer:output[foo]", r"is a tuple of 2, so write a number from 0 to 1"),
        (lambda y: (y, None), "layer:output[2]", r"is a tuple of 2, so write a number from 0 to 1"),
        (lambda y: (y, None), "layer:output[1]", r"at layer:output\[1\] there is nothing \(None\), not an activation"),
        (lambda y: (y, (y, y)), "layer:output[1]", r"a tuple of 2, not an activation; name .*'layer:output\[1\]\[0\]'"),
        (lambda y: (y, {"h": y}), "layer:output[1][g]", r"layer:output\[1\] is a dict with h, so .*\[1\]\[h\]"),
        (lambda y: (y, "text"), "layer:output[1]", r"there is a str, not an activation"),
        (lambda y: (y, y.long()), "layer:output[1]", r"there is a tensor of int64, not an activation"),
        (lambda y: (y, None), "layer:input[3]", r"no layer:input\[3\]: 'layer' was called with 1 argument$"),
        (lambda y: (y, None), "layer:input[hidden]", r"'layer' was called with 1 argument$"),
        (lambda y: (y, None), "table:input", r"at table:input there is a tensor of int64, not an activation"),
    ],
)  # fmt: skip
def test_a_place_that_is_not_there_is_told_in_one_sentence(dress, place, said):
    model = adapt(build(Small, dress, lambda y: y[0] if isinstance(y, tuple) else y), {"x": place})
    with pytest.raises(UserError, match=said), record(model, ["x"]):
        model(TOKENS)
    [failure] = check_model(model, TOKENS).failures().values()
    assert "\n" not in failure


@pytest.mark.parametrize("place", ["layer:input", "layer:input[0]", "layer:input[x]"])
@pytest.mark.parametrize("call", [lambda layer, x: layer(x, scale=1.0), lambda layer, x: layer(scale=1.0, x=x)])
def test_an_argument_can_be_named_however_it_is_passed(place, call):
    model = adapt(build(Small, call=call), {"in": place})
    with record(model, ["in"]) as found:
        model(TOKENS)
    assert torch.equal(found["in"], model.foreign.table(TOKENS))
    assert check_model(model, TOKENS).passed


def test_two_names_for_one_place_work():
    model = adapt(build(HomeMade, TASK.vocab_size, WIDTH), {**SITES, "again": "stack.0"}, logits=lambda o: o["scores"])
    assert check_model(model, TOKENS).passed
    with record(model, ["again"]) as found, edit(model, {"blocks.0.resid_post": torch.zeros_like}):
        model(TOKENS)
    assert not found["again"].any(), "sites of one place see each other's edits in the order of the map"


def test_a_layer_that_is_used_twice_under_two_names_is_found_and_refused_when_read():
    module = build(HomeMade, TASK.vocab_size, WIDTH)
    module.stack[1] = module.stack[0]
    model = adapt(module, {"one": "stack.0", "two": "stack.1"}, logits=lambda out: out["scores"])
    assert check_model(model, TOKENS).failures() == dict.fromkeys(
        ["one", "two"], "it fires more than once in a forward pass"
    )
    with pytest.raises(SiteFiredAgain), record(model, ["two"]):
        model(TOKENS)


class InPlace(Small):
    """Adds to the residual stream where it stands, as memory-saving code does."""

    def forward(self, ids):
        x = self.table(ids)
        x += self.layer(x)
        return self.out(x)


def test_what_was_read_stays_what_it_was_when_the_module_writes_over_it():
    module = build(InPlace)
    model = adapt(
        module, {"blocks.0.resid_pre": "table", "blocks.0.mixer_out": "layer", "blocks.0.resid_post": "out:input"}
    )
    found = check_model(model, TOKENS)
    assert found.passed, str(found)
    assert "blocks.0.resid_post = blocks.0.resid_pre + blocks.0.mixer_out" in str(found)
    said = r"table:output is overwritten later in the pass; use torch\.no_grad"
    with pytest.raises(UserError, match=said), record(model, ["blocks.0.resid_pre"]):
        model(TOKENS)


def test_gradients_flow_through_what_was_read():
    model = adapt(build(Small), {"in": "layer:input"})
    with record(model, ["in"]) as found:
        logits = model(TOKENS)
    [gradient] = torch.autograd.grad(logits.sum(), [found["in"]])
    assert gradient.abs().sum() > 0


@pytest.mark.parametrize("how", ["whole", "in place", "a layer"])
@torch.no_grad()
def test_compiled_modules_run_eagerly_so_that_their_submodules_are_called(how):
    module, path = build(Small), "layer.inside"
    plain = module(TOKENS)
    if how == "whole":
        compiled = torch.compile(module, backend="eager")
        compiled(TOKENS)
    elif how == "in place":
        module.compile(backend="eager")
        compiled = module
    else:
        module.layer = torch.compile(module.layer, backend="eager")
        module(TOKENS)
        compiled, path = module, "layer._orig_mod.inside"
    model = adapt(compiled, {"inside": path, "out": "layer"})
    found = check_model(model, TOKENS)
    assert found.passed, str(found)
    torch.testing.assert_close(model(TOKENS), plain)


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
