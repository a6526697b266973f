"""Operators with gradients of their own, against what autograd makes of their definition, stacked, in float64."""

import pytest
import torch

from mixerscope import kernels
from mixerscope.mixers.ops import decay_attention as decays
from mixerscope.mixers.ops import delta_rule as delta
from mixerscope.mixers.ops import diagonal_ssm as diagonal
from mixerscope.mixers.ops import direct_conv as conv
from mixerscope.mixers.ops import direct_correlation as correlation
from mixerscope.mixers.ops.diagonal_ssm import diagonal_kernel
from mixerscope.mixers.ops.short_conv import causal_depthwise_conv

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


@pytest.mark.parametrize("lags", [1, 3, 9])
@pytest.mark.parametrize("shared", [(), (0,), (1,)])
def test_direct_conv(shared, lags):
    def definition(x, kernel):
        taps = kernel.unsqueeze(-1)
        rows = [sum(taps[:, lag] * x[:, t - lag] for lag in range(min(lags, t + 1))) for t in range(x.shape[1])]
        return torch.stack(rows, 1)

    members = ([] if 0 in shared else [MEMBERS]), ([] if 1 in shared else [MEMBERS])
    inputs = [randn(*members[0], 3, 9, 4, 2), randn(*members[1], 4, lags, seed=1)]
    for operator in (conv.direct_conv, lambda x, kernel: conv._conv(x[None], kernel[None])[0]):
        assert_equals_definition(operator, definition, inputs, shared)


@pytest.mark.parametrize(("length", "taps"), [(1, 4), (3, 8), (4, 8), (7, 3)])
def test_direct_correlation(length, taps):
    def definition(b, c):
        return torch.stack([(b[:, : max(taps - i, 0)] * c[:, i:]).sum(1) for i in range(length)], 1)

    inputs = [randn(MEMBERS, 3, taps), randn(MEMBERS, 3, taps, seed=1)]
    for operator in (correlation.direct_correlation, lambda b, c, n: correlation._correlation(b[None], c[None], n)[0]):
        assert_equals_definition(lambda b, c, operator=operator: operator(b, c, length), definition, inputs)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("shared", [(), (0, 3)])
def test_delta_rule(heads, shared):
    def definition(q, k, v, beta):
        memory, rows = torch.zeros(len(q), heads, 4, 5, dtype=q.dtype), []
        for t in range(q.shape[1]):
            o, memory = delta.delta_step(memory, q[:, t], k[:, t], v[:, t], beta[:, t])
            rows.append(o)
        return torch.stack(rows, 1)

    sizes = [(4,), (4,), (5,), ()]
    inputs = [
        randn(*(() if i in shared else (MEMBERS,)), 3, 6, heads, *size, seed=i) / 2 for i, size in enumerate(sizes)
    ]
    for operator in (delta.delta_rule, lambda *x: delta._delta_rule(*(y[None] for y in x))[0][0]):
        assert_equals_definition(operator, definition, inputs, shared)


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("one_key", [False, True])
@pytest.mark.parametrize("one_decay", [False, True])
def test_decay_attention(heads, one_key, one_decay):
    """Heads share queries and keys, or documents and members their decays."""

    def definition(q, k, v, log_decay):
        q, k = (x.expand(-1, -1, heads, -1) for x in (q, k))
        state, rows = torch.zeros(len(q), heads, 4, 5, dtype=q.dtype), []
        for t in range(q.shape[1]):
            o, state = decays.decay_attention_step(state, q[:, t], k[:, t], v[:, t], log_decay[:, t])
            rows.append(o)
        return torch.stack(rows, 1)

    of_keys = 1 if one_key else heads
    log_decay = -randn(*((1,) if one_decay else (MEMBERS, 3)), 6, heads, seed=3).exp()
    inputs = [randn(MEMBERS, 3, 6, of_keys, 4, seed=seed) for seed in (0, 1)]
    inputs += [randn(MEMBERS, 3, 6, heads, 5, seed=2), log_decay]
    for operator in (decays.decay_attention, lambda *x: decays._decay_attention(*(y[None] for y in x))[0]):
        assert_equals_definition(operator, definition, inputs, (3,) if one_decay else ())


def test_decay_attention_is_an_operator_where_there_may_be_kernels():
    q, v, log_decay = (torch.empty(*shape, device="meta") for shape in [(2, 5, 1, 4), (2, 5, 3, 4), (2, 5, 3)])
    names = []
    for asked in ("auto", "plain"):
        with kernels.switched(asked), torch.profiler.profile() as seen:
            assert decays.decay_attention(q, q, v, log_decay).shape == v.shape
        names.append({event.name for event in seen.events()})
    assert ["mixerscope::decay_attention" in ran for ran in names] == [True, False]


@pytest.mark.parametrize("length", [2, 7])
def test_short_conv_as_it_runs_on_a_gpu(length):
    """The operator and the shifted products are one convolution, also where it is longer than the document."""
    x, weight, bias = randn(2, length, 3), randn(3, 4, seed=1), randn(3, seed=2)
    as_operator = conv._conv(x[None, ..., None], weight.flip(1)[None, :, :length])[0, ..., 0] + bias
    torch.testing.assert_close(as_operator, causal_depthwise_conv(x, weight, bias))


def test_operators_say_what_shapes_they_return():
    """Compilers trust what is registered: shapes, types, and that everything is contiguous."""
    a_log, pairs, dt = randn(2, 3, 4), randn(2, 3, 4, 2), randn(2, 3).exp()
    x, kernel, taps = randn(2, 3, 5, 4, 2), randn(2, 4, 5), randn(2, 3, 8)
    q, beta = randn(2, 3, 5, 2, 4), randn(2, 3, 5, 2)
    for operator, inputs in [
        (diagonal._kernel, (a_log, a_log, pairs, pairs, dt, 5)),
        (diagonal._kernel_backward, (randn(2, 3, 5), a_log, a_log, pairs, pairs, dt)),
        (conv._conv, (x, kernel)),
        (conv._conv_backward, (x, x, kernel)),
        (conv._conv_backward, (x, x, kernel[..., :3])),
        (correlation._correlation, (taps, taps, 5)),
        (correlation._correlation_backward, (randn(2, 3, 5), taps, taps)),
        (decays._decay_attention, (q, q, q, beta)),
        (decays._decay_attention, (q[..., :1, :3], q[..., :1, :3], q, beta[:, :1])),
        (decays._decay_attention_backward, (q, q[..., :1, :3], q[..., :1, :3], q, beta[:, :1])),
        (delta._delta_rule, (q, q, q, beta)),
        (delta._delta_rule_backward, (q, q, q, q, beta, *delta._delta_rule(q, q, q, beta)[1:])),
    ]:
        torch.library.opcheck(operator, inputs, test_utils=("test_schema", "test_faketensor"))
