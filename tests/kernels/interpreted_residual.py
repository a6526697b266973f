"""The kernels of the halves of a residual block against their plain bodies in float64.

`test_interpreted.py` runs this file.
"""

import pytest
import torch
from torch.func import functional_call, stack_module_state

from mixerscope import kernels
from mixerscope.kernels import residual
from mixerscope.kernels import residual_attention as fast_attention
from mixerscope.kernels import residual_mlp as fast_mlp
from mixerscope.mixers.ops import residual_attention as attention
from mixerscope.model import backbone, build_model
from mixerscope.model import residual_mlp as mlp
from mixerscope.spec import ModelSpec

EPSILON = 1e-5
OPERATORS = ("residual_attention", "residual_attention_backward", "residual_mlp", "residual_mlp_backward")


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(0)


def apart(x):
    """x with the rows of its members lying apart, as the parameters of stacked models do."""
    wide = torch.zeros(len(x), x[0].numel() + 8)
    wide[:, 4:-4] = x.flatten(1)
    return wide[:, 4:-4].unflatten(1, x.shape[1:])


def mlp_weights(rng, models, width, hidden):
    gain, shift, down_bias = (torch.randn(models, width, generator=rng) for _ in range(3))
    up = torch.randn(models, hidden, width, generator=rng) / width**0.5
    down = torch.randn(models, width, hidden, generator=rng) / hidden**0.5
    up_bias = torch.randn(models, hidden, generator=rng)
    return [apart(x) for x in (1 + gain / 4, shift, up, up_bias, down, down_bias)]


def assert_agree(found, expected, tolerance):
    for i, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        assert ours.shape == theirs.shape
        assert ours.is_contiguous()
        error = (ours.double() - theirs).norm() / theirs.norm()
        assert error < tolerance, f"output {i} is off by {error:.1e}"


@pytest.mark.parametrize(
    ("models", "rows", "width", "exact", "programs"),
    [
        (2, 32, 16, True, 264),
        (1, 37, 20, True, 264),  # rows, columns and hidden units are padded
        (2, 70, 32, True, 3),  # a program has several blocks of rows, and there are several chunks of hidden units
        (1, 70, 33, False, 264),
    ],
)
def test_residual_mlp(rng, monkeypatch, models, rows, width, exact, programs):
    monkeypatch.setattr(residual, "PROGRAMS", programs)
    weights = mlp_weights(rng, models, width, 4 * width)
    x, grad = (torch.randn(models, rows, width, generator=rng) for _ in range(2))
    inputs = (x + 1, *weights)
    wide = [tensor.double() for tensor in inputs]
    found = fast_mlp.forward(*inputs, EPSILON, exact)
    assert_agree([found], [mlp.plain_residual_mlp(*wide, EPSILON, exact)], 2e-6)
    found = fast_mlp.backward(grad, *inputs, EPSILON, exact)
    assert_agree(found, mlp.plain_residual_mlp_backward(grad.double(), *wide, EPSILON, exact), 5e-6)


@pytest.mark.parametrize(
    ("models", "documents", "length", "width", "heads", "alibi", "exact", "programs"),
    [
        (2, 3, 5, 16, 1, False, True, 264),
        (1, 2, 18, 24, 2, True, True, 264),  # positions, columns and heads are padded
        (2, 4, 20, 32, 2, False, True, 3),  # a program of the second launch has several blocks of rows
        (1, 2, 35, 33, 3, True, False, 264),
        (1, 1, 1, 2, 1, False, True, 264),
    ],
)
def test_residual_attention(rng, monkeypatch, models, documents, length, width, heads, alibi, exact, programs):
    monkeypatch.setattr(residual, "PROGRAMS", programs)
    gain, shift, out_bias = (torch.randn(models, width, generator=rng) for _ in range(3))
    qkv = torch.randn(models, 3 * width, width, generator=rng) / width**0.5
    out = torch.randn(models, width, width, generator=rng) / width**0.5
    x, grad = (torch.randn(models, documents, length, width, generator=rng) for _ in range(2))
    inputs = (x + 1, *(apart(tensor) for tensor in (1 + gain / 4, shift, qkv, out, out_bias)))
    wide = [tensor.double() for tensor in inputs]
    settings = (heads, alibi, EPSILON, exact)
    found, expected = fast_attention.forward(*inputs, *settings), attention.plain_residual_attention(*wide, *settings)
    assert_agree(found, expected, 2e-6)
    found = fast_attention.backward(grad, *inputs, found[1], *settings)
    expected = attention.plain_residual_attention_backward(grad.double(), *wide, expected[1], *settings)
    assert_agree(found, expected, 1e-5)


def test_a_member_that_has_diverged_harms_no_other(rng):
    inputs = [torch.randn(2, 20, 16, generator=rng), *mlp_weights(rng, 2, 16, 64)]
    expected = fast_mlp.backward(inputs[0], *inputs, EPSILON, True)
    inputs[3][0, 5] = float("nan")
    for ours, theirs in zip(fast_mlp.backward(inputs[0], *inputs, EPSILON, True), expected, strict=True):
        assert torch.equal(ours[1], theirs[1])


def test_training_steps_run_the_kernels(monkeypatch):
    """Through batching and gradient rules, as training on a GPU takes them."""
    monkeypatch.setattr(backbone, "fits", lambda x: True)
    models = [build_model(ModelSpec(architecture="attention", width=16, max_length=8), 11, seed) for seed in (0, 1)]
    params = {name: param.detach() for name, param in stack_module_state(models)[0].items()}
    tokens = torch.arange(12).view(2, 6) % 11

    def loss(params):
        return functional_call(models[0], params, (tokens,)).square().mean()

    def gradients(kind):
        wide = {name: param.to(kind).requires_grad_() for name, param in params.items()}
        return torch.autograd.grad(torch.vmap(loss)(wide).sum(), list(wide.values()))

    with kernels.switched("plain"):
        expected = gradients(torch.float64)
    for name, ours, theirs in zip(params, gradients(torch.float32), expected, strict=True):
        assert (ours - theirs).norm() / theirs.norm() < 2e-5, name
    ran = kernels.used()
    assert {name: ran[name] for name in OPERATORS} == dict.fromkeys(OPERATORS, "kernel")
