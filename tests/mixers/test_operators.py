"""Operators with gradients of their own, against what autograd makes of their definition, stacked, in float64."""

import pytest
import torch

from mixerscope.mixers.ops.diagonal_ssm import diagonal_kernel
from mixerscope.mixers.ops.direct_conv import _conv as conv_operator
from mixerscope.mixers.ops.direct_conv import direct_conv
from mixerscope.mixers.ops.direct_correlation import _correlation as correlation_operator
from mixerscope.mixers.ops.direct_correlation import direct_correlation

MEMBERS = 2


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def assert_equals_definition(operator, definition, inputs, shared=()):
    """Outputs and gradients of a stack of members; inputs at `shared` are the same for all of them."""
    inputs = [x.requires_grad_() for x in inputs]
    dims = tuple(None if i in shared else 0 for i in range(len(inputs)))
    members = [[x if i in shared else x[k] for i, x in enumerate(inputs)] for k in range(MEMBERS)]
    found = torch.vmap(operator, dims)(*inputs)
    expected = torch.stack([definition(*member) for member in members])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    readout = randn(*expected.shape, seed=99)
    ours = torch.autograd.grad((found * readout).sum(), inputs)
    theirs = torch.autograd.grad((expected * readout).sum(), inputs)
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-11, msg=lambda m, i=i: f"gradient of input {i}: {m}")
        assert b.abs().max() > 1e-9


@pytest.mark.parametrize("length", [2, 9])
@pytest.mark.parametrize("shared", [(), (1,)])
def test_diagonal_kernel(length, shared):
    def definition(a_log, w, b, c, dt):
        a, b, c = torch.complex(-a_log.exp(), w), torch.view_as_complex(b), torch.view_as_complex(c)
        z = dt[:, None] * a / 2
        abar, cbar = (1 + z) / (1 - z), b * c * dt[:, None] / (1 - z)
        return torch.stack([2 * (cbar * abar**lag).sum(1).real for lag in range(length)], 1)

    heads, modes = 3, 4
    w = randn(heads, modes, seed=1) if shared else randn(MEMBERS, heads, modes, seed=1)
    b, c = (randn(MEMBERS, heads, modes, 2, seed=seed) for seed in (2, 3))
    dt = randn(MEMBERS, heads, seed=4).exp()
    inputs = [randn(MEMBERS, heads, modes), w, b, c, dt]
    assert_equals_definition(lambda *x: diagonal_kernel(*x, length), definition, inputs, shared)


def test_diagonal_kernel_in_single_precision_where_modes_turn_fast():
    modes, length = 512, 35
    w = (torch.pi * torch.arange(modes, dtype=torch.float64)).expand(2, modes)
    a_log, b, c = torch.full_like(w, 0.5).log(), torch.ones(2, modes, 2).double(), randn(2, modes, 2)
    inputs = [a_log, w, b, c, torch.tensor([0.001, 0.1], dtype=torch.float64)]
    exact = diagonal_kernel(*inputs, length)
    single = diagonal_kernel(*(x.float() for x in inputs), length)
    assert single.dtype == torch.float32
    assert (single - exact).norm() / exact.norm() < 5e-6


@pytest.mark.parametrize("shared", [(), (0,), (1,)])
def test_direct_conv(shared):
    def definition(x, kernel):
        taps = kernel.unsqueeze(-1)
        return torch.stack([sum(taps[:, t - s] * x[:, s] for s in range(t + 1)) for t in range(x.shape[1])], 1)

    members = ([] if 0 in shared else [MEMBERS]), ([] if 1 in shared else [MEMBERS])
    inputs = [randn(*members[0], 3, 5, 4, 2), randn(*members[1], 4, 5, seed=1)]
    for operator in (direct_conv, lambda x, kernel: conv_operator(x[None], kernel[None])[0]):
        assert_equals_definition(operator, definition, inputs, shared)


@pytest.mark.parametrize(("length", "taps"), [(1, 4), (3, 8), (4, 8), (7, 3)])
def test_direct_correlation(length, taps):
    def definition(b, c):
        return torch.stack([(b[:, : max(taps - i, 0)] * c[:, i:]).sum(1) for i in range(length)], 1)

    inputs = [randn(MEMBERS, 3, taps), randn(MEMBERS, 3, taps, seed=1)]
    for operator in (direct_correlation, lambda b, c, n: correlation_operator(b[None], c[None], n)[0]):
        assert_equals_definition(lambda b, c, operator=operator: operator(b, c, length), definition, inputs)
