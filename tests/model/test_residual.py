"""Halves of a block as one operator each: what their modules give, and only where nobody looks inside."""

import pytest
import torch
from torch.func import functional_call, stack_module_state

from mixerscope import kernels
from mixerscope.mixers import attention as mixer
from mixerscope.mixers.base import Mixer
from mixerscope.mixers.ops import residual_attention as attention
from mixerscope.mixers.sliding_window import SlidingWindow
from mixerscope.model import backbone, build_model
from mixerscope.model import residual_mlp as mlp
from mixerscope.sites import record
from mixerscope.spec import ModelSpec

SITE = "blocks.1.mlp_out"


@pytest.fixture
def uses(monkeypatch):
    """As if this were a GPU; which operators are taken, in order."""
    seen = []

    def noting(name, function):
        def noted(*inputs):
            seen.append(name)
            return function(*inputs)

        return noted

    monkeypatch.setattr(backbone, "fits", lambda x: True)
    monkeypatch.setattr(backbone, "residual_mlp", noting("mlp", mlp.residual_mlp))
    monkeypatch.setattr(mixer, "residual_attention", noting("attention", attention.residual_attention))
    return seen


def a_model(seed=0, architecture="attention", **options):
    spec = ModelSpec(architecture=architecture, width=8, max_length=8, options=options)
    return build_model(spec, 11, seed).double()


TOKENS = torch.arange(12).view(2, 6) % 11


@pytest.mark.parametrize(
    ("architecture", "options", "taken"),
    [
        ("attention", {}, ["attention", "mlp"]),
        ("attention", {"heads": 2, "relative": "alibi"}, ["attention", "mlp"]),
        ("attention", {"relative": "rope"}, ["mlp"]),
        ("base_conv", {}, ["mlp"]),
    ],
)
def test_they_are_what_the_modules_compute(uses, architecture, options, taken):
    models = [a_model(seed, architecture, **options) for seed in (0, 1)]
    params = {name: param.detach().requires_grad_() for name, param in stack_module_state(models)[0].items()}

    def gradients():
        loss = torch.vmap(lambda own: functional_call(models[0], own, (TOKENS,)).square().mean())
        return torch.autograd.grad(loss(params).sum(), list(params.values()))

    found = gradients()
    assert uses == taken * 2, "in each block"
    with kernels.switched("plain"):
        expected = gradients()
    assert uses == taken * 2, "`--kernels plain` passes them by"
    for name, ours, theirs in zip(params, found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, msg=name)


def test_a_mixer_with_a_forward_pass_of_its_own_has_no_short_way_of_another():
    assert SlidingWindow.residual is Mixer.residual

    class Own(mixer.Attention):
        def forward(self, x):
            return x

    assert Own.residual is Mixer.residual


def test_only_steps_that_nobody_looks_into_take_them(uses):
    model = a_model()
    with record(model, [SITE]) as seen:
        model(TOKENS)
    assert seen[SITE].shape == (2, 6, 8)
    assert uses == ["attention", "mlp"], "the other block"
    hook = model.blocks[0].mlp.register_forward_hook(lambda *_: None)
    model(TOKENS)
    assert uses == ["attention", "mlp"] * 2
    hook.remove()
    with torch.no_grad():
        model(TOKENS)
    model.eval()(TOKENS)
    assert uses == ["attention", "mlp"] * 2


def test_the_last_block_is_computed_where_it_is_read_alone(monkeypatch):
    shapes, finish = [], backbone.Block.finish
    monkeypatch.setattr(backbone.Block, "finish", lambda block, x: (shapes.append(x.shape[1]), finish(block, x))[1])
    model, read = a_model(), torch.tensor([[5, 2], [1, 1]])
    everywhere = model(TOKENS)
    assert torch.equal(model(TOKENS, read), backbone.at_positions(everywhere, read))
    assert shapes == [6] * 4, "not on a CPU"
    model.to("meta")(TOKENS.to("meta"), read.to("meta"))
    assert shapes[4:] == [6, 2]
    with torch.no_grad():
        model(TOKENS.to("meta"), read.to("meta"))
    assert shapes[6:] == [6, 6], "nor where it may be looked at"


@pytest.mark.parametrize("read", [[[5], [2]], [[5, 2], [1, 1]]], ids=["one", "several"])
@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        ("attention", {}), ("attention", {"relative": "rope"}), ("base_conv", {}), ("based", {}), ("deltanet", {}),
        ("h3", {"d_state": 4}), ("hyena", {}), ("lstm", {}), ("mamba", {}), ("mamba", {"d_conv": 0}),
        ("mamba", {"signed": True}),
    ],
)  # fmt: skip
def test_gradients_are_those_of_the_whole_block(monkeypatch, architecture, options, read):
    """Read at some positions, as a GPU does it in training, and everywhere, as a CPU does."""
    model = a_model(architecture=architecture, **options)

    def gradients():
        return torch.autograd.grad(model(TOKENS, torch.tensor(read)).square().mean(), list(model.parameters()))

    expected = gradients()
    monkeypatch.setattr(backbone, "on_cpu", lambda x: False)
    with kernels.switched("plain"):
        found = gradients()
    for (name, _), ours, theirs in zip(model.named_parameters(), found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, msg=name)


def test_the_compiler_takes_them_and_is_told_the_right_shapes(uses):
    model = a_model()
    params = {name: param.detach()[None].requires_grad_() for name, param in model.named_parameters()}
    stacked = torch.vmap(lambda own: functional_call(model, own, (TOKENS,)).square().mean())
    compiled = torch.compile(lambda own: stacked(own), backend="aot_eager", fullgraph=True)
    expected = torch.autograd.grad(stacked(params), list(params.values()))
    found = torch.autograd.grad(compiled(params), list(params.values()))
    for name, ours, theirs in zip(params, found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, msg=name)
    x, gain, up = torch.ones(2, 7, 5), torch.ones(2, 5), torch.ones(2, 20, 5)
    inputs = (x, gain, gain, up, up[..., 0], up.mT.contiguous(), gain, 1e-5)
    stream, square, kept = torch.ones(2, 3, 7, 6), torch.ones(2, 6, 6), torch.ones(2, 3, 7, 4, 6)
    weights = (torch.ones(2, 6), torch.ones(2, 6), torch.ones(2, 18, 6), square, torch.ones(2, 6))
    calls = [
        (mlp._residual_mlp, inputs),
        (mlp._residual_mlp_backward, (x, *inputs)),
        (attention._residual_attention, (stream, *weights, 2, True, 1e-5)),
        (attention._residual_attention_backward, (stream, stream, *weights, kept, 2, True, 1e-5)),
    ]
    for operator, given in calls:
        torch.library.opcheck(operator, given, test_utils=("test_schema", "test_faketensor"))
