"""The selective scan's kernels against its plain body in float64; `test_interpreted.py` runs this file."""

import pytest
import torch
from torch.func import functional_call, stack_module_state

from mixerscope import kernels
from mixerscope.kernels.selective_scan import backward, forward
from mixerscope.mixers.ops import selective_scan as ops
from mixerscope.model import build_model
from tests.conftest import tiny_spec


def inputs(models, documents, length, channels, states, dtype=torch.float32):
    rng = torch.Generator().manual_seed(0)

    def randn(*shape):
        return torch.randn(*shape, generator=rng).to(dtype)

    u, dt = randn(models, documents, length, channels), randn(models, documents, length, channels)
    b, c = randn(models, documents, length, states), randn(models, documents, length, states)
    a = -randn(models, channels, states).exp()
    return randn(*u.shape), (u, torch.nn.functional.softplus(dt), a, b, c)


def error(found, expected):
    return ((found.double() - expected).norm() / (expected.norm() or 1.0)).item()


@pytest.mark.parametrize(
    ("models", "documents", "length", "channels", "states", "stride"),
    [
        (2, 2, 9, 40, 16, 5),  # the last stride and the last block of channels are not full
        (1, 2, 10, 16, 16, 5),
        (1, 2, 7, 17, 5, 3),  # states are padded
        (1, 1, 4, 3, 1, 1),
        (1, 2, 1, 16, 16, 5),
        (1, 1, 3, 16, 16, 5),  # nothing is kept
    ],
)
@pytest.mark.parametrize("signed", [False, True])
def test_kernels_agree_with_the_plain_body(models, documents, length, channels, states, stride, signed):
    grad, tensors = inputs(models, documents, length, channels, states)
    exact = [x.double() for x in tensors]
    y, kept = forward(*tensors, stride, True, signed)
    expected_y, expected_kept = ops.plain_scan(*exact, stride, True, signed)
    assert error(y, expected_y) < 1e-6
    assert kept.shape == expected_kept.shape == (length // stride, models, documents, channels, states)
    assert error(kept, expected_kept) < 1e-6
    without, nothing = forward(*tensors, stride, False, signed)
    assert torch.equal(without, y)
    assert len(nothing) == 0
    grads = backward(grad, *tensors, kept, stride, signed)
    expected = ops.plain_scan_backward(grad.double(), *exact, expected_kept, stride, signed)
    for name, found, wanted in zip(("u", "dt", "a", "b", "c"), grads, expected, strict=True):
        assert error(found, wanted) < 1e-6, name
        assert found.shape == wanted.shape


def test_bfloat16_is_computed_in_float32():
    grad, tensors = inputs(1, 2, 6, 16, 4, torch.bfloat16)
    exact = [x.double() for x in tensors]
    y, kept = forward(*tensors, 5, True, False)
    assert (y.dtype, kept.dtype) == (torch.bfloat16, torch.float32)
    expected_y, expected_kept = ops.plain_scan(*exact, 5, True, False)
    assert error(kept, expected_kept) < 1e-6
    grads = backward(grad, *tensors, kept, 5, False)
    expected = ops.plain_scan_backward(grad.double(), *exact, expected_kept, 5, False)
    for found, wanted in zip((y, *grads), (expected_y, *expected), strict=True):
        assert found.dtype == torch.bfloat16
        assert error(found, wanted) < 1e-2


def test_gradients_of_stacked_models():
    """Through the operator, its batching rule and its gradient rule, as training takes them."""
    spec = tiny_spec("mamba").model
    models = [build_model(spec.changed(width=8), 13, seed) for seed in range(2)]
    tokens = torch.randint(13, (2, 7), generator=torch.Generator().manual_seed(0))
    stacked, buffers = stack_module_state(models)

    def gradients(dtype):
        params = {name: p.detach().to(dtype).requires_grad_() for name, p in stacked.items()}

        def loss(params, buffers):
            return functional_call(models[0], (params, buffers), (tokens,)).square().mean()

        losses = torch.vmap(loss)(params, buffers)
        return torch.autograd.grad(losses.sum(), list(params.values()))

    with kernels.switched("plain"):
        expected = gradients(torch.float64)
    found = gradients(torch.float32)
    for name, a, b in zip(stacked, found, expected, strict=True):
        assert error(a, b) < 1e-5, name
    assert all("kernel" in kernels.used()[name] for name in ("selective_scan", "selective_scan_backward"))


@pytest.mark.parametrize("gradients", [True, False])
def test_the_compiler_is_told_the_right_shapes(gradients):
    _, tensors = inputs(1, 2, 6, 8, 4)
    with torch.set_grad_enabled(gradients):
        tensors = [x.requires_grad_(gradients) for x in tensors]
        torch.library.opcheck(ops._scan, (*tensors, gradients, False), test_utils=("test_schema", "test_faketensor"))


def test_the_compiler_is_told_the_right_shapes_backward():
    grad, tensors = inputs(1, 2, 6, 8, 4)
    kept = ops.plain_scan(*tensors, 1, True, True)[1]
    utils = ("test_schema", "test_faketensor")
    torch.library.opcheck(ops._scan_backward, (grad, *tensors, kept, True), test_utils=utils)
