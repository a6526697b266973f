"""Shared arithmetic: both ways of each long convolution, and the delta rule where it is hardest."""

import pytest
import torch

from mixerscope.mixers.ops import long_conv as ops
from mixerscope.mixers.ops.delta_rule import delta_rule, delta_step
from mixerscope.mixers.ops.long_conv import correlate, long_conv, long_conv_last


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=["direct", "fourier"])
def way(request, monkeypatch):
    monkeypatch.setattr(ops, "DIRECT_LENGTH", 10_000 if request.param == "direct" else 0)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("length", [1, 2, 7])
@pytest.mark.parametrize("tail", [(), (2,), (2, 3)])
def test_long_conv_is_the_sum(length, tail):
    x, kernel = randn(2, length, 3, *tail), randn(3, length, seed=1)
    expected = torch.zeros_like(x)
    for t in range(length):
        for s in range(t + 1):
            expected[:, t] += kernel[:, t - s].reshape(3, *[1] * len(tail)) * x[:, s]
    torch.testing.assert_close(long_conv(x, kernel), expected)
    if not tail:
        torch.testing.assert_close(long_conv_last(x, kernel), expected[:, -1])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("length", [1, 3, 4, 8, 11])
def test_correlation_is_the_sum(length):
    taps = 8
    b, c = randn(3, taps), randn(3, taps, seed=1)
    expected = torch.zeros(3, length, dtype=torch.float64)
    for i in range(min(length, taps)):
        expected[:, i] = (b[:, : taps - i] * c[:, i:]).sum(1)
    torch.testing.assert_close(correlate(b, c, length), expected)


@pytest.mark.parametrize("keys", ["random", "identical"])
def test_delta_rule_holds_for_identical_keys_and_full_writes(keys):
    b, t, h, c = 2, 33, 2, 4
    k = torch.nn.functional.normalize(randn(b, t, h, c), dim=-1)
    k = k[:, :1].expand(b, t, h, c) if keys == "identical" else k
    q, v = randn(b, t, h, c, seed=1), randn(b, t, h, c, seed=2)
    beta = torch.ones(b, t, h, dtype=torch.float64)
    memory, rows = torch.zeros(b, h, c, c, dtype=torch.float64), []
    for i in range(t):
        o, memory = delta_step(memory, q[:, i], k[:, i], v[:, i], beta[:, i])
        rows.append(o)
    found = delta_rule(q, k, v, beta)
    torch.testing.assert_close(found, torch.stack(rows, 1), rtol=1e-9, atol=1e-12)
    if keys == "identical":  # a full write at the same key leaves the last value and nothing else
        expected = (q[:, -1] * k[:, -1]).sum(-1, keepdim=True) * v[:, -1]
        torch.testing.assert_close(found[:, -1], expected)
    single = delta_rule(*(x.float() for x in (q, k, v, beta)))
    assert (single - found).abs().max() / found.abs().max() < 5e-6
