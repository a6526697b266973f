"""What foreign modules take and give that a place in a site map must name: each works, or is told in one sentence."""

from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from mixerscope.errors import SiteFiredAgain, UserError
from mixerscope.interventions import adapt, check_model
from mixerscope.sites import edit, record
from tests.interventions.homemade import SITES, HomeMade
from tests.interventions.small import TASK, TOKENS, WIDTH, Small, build

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
