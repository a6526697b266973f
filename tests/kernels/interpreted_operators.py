"""The kernels of H3, long convolutions and the delta rule against their plain bodies in float64.

`test_interpreted.py` runs this file.
"""

import math

import pytest
import torch

from mixerscope import kernels
from mixerscope.kernels import delta_rule, diagonal_ssm, direct_conv, direct_correlation
from mixerscope.mixers.ops import decay_attention as decays
from mixerscope.mixers.ops import delta_rule as delta
from mixerscope.mixers.ops import diagonal_ssm as diagonal
from mixerscope.mixers.ops import direct_conv as conv
from mixerscope.mixers.ops import direct_correlation as correlation
from tests.kernels.tensor_cores import tensor_cores as tensor_cores


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(0)


def assert_agree(kernel, plain, inputs, tolerance):
    found = kernel(*inputs)
    expected = plain(*(x.double() if isinstance(x, torch.Tensor) else x for x in inputs))
    both = [(found, expected)] if isinstance(found, torch.Tensor) else list(zip(found, expected, strict=True))
    for i, (ours, theirs) in enumerate(both):
        assert ours.shape == theirs.shape
        assert ours.is_contiguous()
        error = (ours.double() - theirs).norm() / (theirs.norm() or 1.0)
        assert error < tolerance, f"output {i} is off by {error:.1e}"
    return [ours for ours, _ in both]


def assert_kernels_run(loss, inputs, names):
    """Through batching and gradient rules, both ways, with the gradients of plain bodies in float64."""

    def gradients(kind):
        tensors = [x.to(kind).requires_grad_() for x in inputs]
        return torch.autograd.grad(torch.vmap(loss)(*tensors).sum(), tensors)

    with kernels.switched("plain"):
        expected = gradients(torch.float64)
    for found, exact in zip(gradients(torch.float32), expected, strict=True):
        assert (found - exact).norm() / exact.norm() < 1e-5
    ran = kernels.used()
    for name in names:
        assert "kernel" in ran[name].split("; ")
        assert "kernel" in ran[f"{name}_backward"].split("; ")


def apart(x):
    """x with the rows of its members lying apart, as the parameters of stacked models do."""
    wide = torch.zeros(len(x), x[0].numel() + 3)
    wide[:, 3:] = x.flatten(1)
    return wide[:, 3:].unflatten(1, x.shape[1:])


@pytest.mark.parametrize(
    ("models", "heads", "modes", "length"),
    [(2, 3, 5, 4), (1, 2, 512, 35), (1, 1, 700, 3), (1, 2, 1, 1)],  # 700: more than are held at once
)
def test_diagonal_kernel(rng, models, heads, modes, length):
    a_log = torch.randn(models, heads, modes, generator=rng) / 10 - 0.7
    w = math.pi * torch.arange(modes).float().expand(models, heads, modes)
    b, c = (torch.randn(models, heads, modes, 2, generator=rng) for _ in "bc")
    dt = torch.linspace(0.1, 0.001, models * heads).view(models, heads)
    inputs = apart(a_log), w, apart(b), c, dt
    assert_agree(diagonal_ssm.forward, diagonal.plain_diagonal_kernel, (*inputs, length), 5e-6)
    grad = torch.randn(models, heads, length, generator=rng)
    assert_agree(diagonal_ssm.backward, diagonal.plain_diagonal_kernel_backward, (grad, *inputs), 5e-6)


@pytest.mark.parametrize(
    "shape",
    [(2, 3, 7, 5, 1), (1, 2, 35, 40, 1), (1, 2, 9, 3, 4), (2, 1, 1, 3, 2), (1, 1, 130, 17, 1), (2, 3, 6, 20, 9)],
)
def test_direct_conv(rng, shape):
    models, _, length, channels, _ = shape
    x, grad = torch.randn(*shape, generator=rng), torch.randn(*shape, generator=rng)
    for lags in {length, min(length, 4)}:
        kernel = torch.randn(models, channels, lags, generator=rng)
        assert_agree(direct_conv.forward, conv.plain_conv, (x, kernel), 1e-6)
        assert_agree(direct_conv.backward, conv.plain_conv_backward, (grad, x, kernel), 1e-6)


@pytest.mark.parametrize(
    ("models", "channels", "taps", "length"),
    [  # a product reaches over 48 lags and 1024 taps
        (2, 3, 8, 3),
        (1, 1, 1024, 35),
        (2, 1, 5, 9),
        (2, 2, 16, 1),
        (1, 1, 1500, 48),
        (1, 1, 1000, 49),
        (1, 2, 40, 130),
    ],
)
def test_direct_correlation(rng, models, channels, taps, length):
    b, c = (torch.randn(models, channels, taps, generator=rng) for _ in "bc")
    grad = torch.randn(models, channels, length, generator=rng)
    assert_agree(direct_correlation.forward, correlation.plain_correlation, (apart(b), c, length), 2e-6)
    assert_agree(direct_correlation.backward, correlation.plain_correlation_backward, (grad, b, apart(c)), 2e-6)


@pytest.mark.parametrize("same_keys", [False, True])
@pytest.mark.parametrize(
    ("models", "documents", "length", "heads", "keys", "values"),
    [
        (1, 2, 5, 2, 3, 4),
        (2, 1, 9, 1, 20, 17),
        (1, 1, 18, 2, 70, 90),
        (1, 2, 1, 1, 4, 4),
        (1, 1, 35, 1, 64, 64),
        (1, 1, 64, 1, 16, 16),
    ],
)
def test_delta_rule(rng, models, documents, length, heads, keys, values, same_keys):
    first = (models, documents, length, heads)
    q, k = (torch.nn.functional.normalize(torch.randn(*first, keys, generator=rng), dim=-1) for _ in "qk")
    v, grad = (torch.randn(*first, values, generator=rng) for _ in "vg")
    beta = torch.rand(*first, generator=rng)
    if same_keys:  # with full writes: the triangular system at its worst
        k, beta = k[:, :, :1].expand_as(k), torch.ones_like(beta)
    _, *kept = assert_agree(delta_rule.forward, delta.plain_delta_rule_kept, (q, k, v, beta), 1e-6)
    plain = delta.plain_delta_rule_backward
    assert_agree(delta_rule.backward, plain, (grad, q, k, v, beta, *kept), 5e-6)


def test_products_of_leading_bits_are_as_good_as_those_of_float32(rng, tensor_cores):
    """The delta rule's, which its system multiplies, and the correlation's."""
    q, k = (torch.nn.functional.normalize(torch.randn(1, 2, 35, 1, 40, generator=rng), dim=-1) for _ in "qk")
    v, grad = (torch.randn(1, 2, 35, 1, 40, generator=rng) for _ in "vg")
    beta = torch.rand(1, 2, 35, 1, generator=rng)
    _, *kept = assert_agree(delta_rule.forward, delta.plain_delta_rule_kept, (q, k, v, beta), 1e-6)
    plain = delta.plain_delta_rule_backward
    assert_agree(delta_rule.backward, plain, (grad, q, k, v, beta, *kept), 5e-6)
    b, c = (torch.randn(1, 2, 600, generator=rng) for _ in "bc")
    lags = torch.randn(1, 2, 35, generator=rng)
    assert_agree(direct_correlation.forward, correlation.plain_correlation, (b, c, 35), 2e-6)
    assert_agree(direct_correlation.backward, correlation.plain_correlation_backward, (lags, b, c), 2e-6)
    assert set(tensor_cores) == {"TF32"}


def test_half_precision_is_computed_in_float32(rng):
    q = torch.nn.functional.normalize(torch.randn(1, 2, 6, 1, 4, generator=rng), dim=-1).bfloat16()
    beta = torch.rand(1, 2, 6, 1, generator=rng).bfloat16()
    o, *kept = assert_agree(delta_rule.forward, delta.plain_delta_rule_kept, (q, q, q, beta), 1e-2)
    assert [x.dtype for x in (o, *kept)] == [torch.bfloat16, torch.float32, torch.float32]
    assert all(g.dtype == torch.bfloat16 for g in delta_rule.backward(o, q, q, q, beta, *kept))
    a_log, pairs = torch.zeros(1, 2, 3).bfloat16(), torch.randn(1, 2, 3, 2, generator=rng).bfloat16()
    inputs = a_log, a_log + 1, pairs, pairs, torch.full((1, 2), 0.125).bfloat16()
    (kernel,) = assert_agree(diagonal_ssm.forward, diagonal.plain_diagonal_kernel, (*inputs, 5), 1e-2)
    grads = assert_agree(diagonal_ssm.backward, diagonal.plain_diagonal_kernel_backward, (kernel, *inputs), 1e-2)
    assert all(x.dtype == torch.bfloat16 for x in (kernel, *grads))
    taps = torch.randn(1, 2, 20, generator=rng).bfloat16()
    (lags,) = assert_agree(direct_correlation.forward, correlation.plain_correlation, (taps, taps, 5), 1e-2)
    grads = assert_agree(direct_correlation.backward, correlation.plain_correlation_backward, (lags, taps, taps), 1e-2)
    assert all(x.dtype == torch.bfloat16 for x in (lags, *grads))


def test_operators_run_their_kernels(rng):
    """Through batching and gradient rules, as training on a GPU takes them; on a CPU some operators are passed by."""

    def loss(x, kernel, taps, q, beta, a_log, b):
        parts = [
            conv._conv(x[None], kernel[None]),
            correlation._correlation(taps[None], taps[None], 3),
            delta._delta_rule(q[None], q[None], q[None], beta[None])[0],
            decays._decay_attention(q[None], q[None], q[None], -beta.exp()[None]),
            diagonal._kernel(a_log[None], a_log[None], b[None], b[None], a_log[:, 0].exp()[None], 4),
        ]
        return sum(part.square().sum() for part in parts)

    shapes = [(2, 5, 3, 1), (3, 5), (2, 7), (2, 5, 1, 4), (2, 5, 1), (2, 3), (2, 3, 2)]
    inputs = [torch.randn(2, *shape, generator=rng) / 2 for shape in shapes]

    names = ("direct_conv", "direct_correlation", "delta_rule", "decay_attention", "diagonal_kernel")
    assert_kernels_run(loss, inputs, names)
