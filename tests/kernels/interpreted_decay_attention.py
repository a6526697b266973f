"""The kernels of attention with decays against their plain bodies in float64.

`test_interpreted.py` runs this file.
"""

import pytest
import torch

from mixerscope.kernels import decay_attention as fast
from mixerscope.mixers.ops import decay_attention as decays
from tests.kernels.interpreted_operators import assert_agree, assert_kernels_run

SHAPES = [
    (2, 2, 5, 4, 3, 4, True, True),
    (1, 2, 12, 8, 20, 17, True, True),  # channels are padded
    (1, 1, 18, 3, 70, 40, True, True),  # and go in chunks
    (2, 1, 9, 2, 16, 33, False, False),  # as in RetNet
    (1, 2, 35, 2, 8, 8, False, True),
    (1, 1, 64, 2, 4, 4, True, True),
    (1, 3, 1, 2, 4, 4, True, True),
    (2, 1, 5, 1, 4, 4, True, True),
]


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(0)


def made(rng, models, documents, length, heads, keys, values, shared, own):
    """q, k, v, log_decay and a gradient: q and k lie in one tensor with others, as after a projection."""
    first = (models, documents, length)
    wide = torch.randn(*first, 2 * (1 if shared else heads) * keys + 3, generator=rng)
    q, k, _ = wide.split([(1 if shared else heads) * keys] * 2 + [3], -1)
    q, k = (x.unflatten(-1, (-1, keys)) for x in (q, k))
    v, grad = (torch.randn(*first, heads, values, generator=rng) for _ in range(2))
    log_decay = -torch.randn(models, documents if own else 1, length, heads, generator=rng).exp() / 4
    return (q, k, v, log_decay), grad


@pytest.mark.parametrize("sizes", SHAPES, ids=str)
def test_decay_attention(rng, sizes):
    inputs, grad = made(rng, *sizes)
    assert_agree(fast.forward, decays.plain_decay_attention, (*inputs, True), 1e-6)
    assert_agree(fast.backward, decays.plain_decay_attention_backward, (grad, *inputs, True), 2e-6)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_program_takes_as_many_heads_as_it_is_told(rng, monkeypatch, most):
    """Which changes no bit: no sum goes over heads."""
    inputs, _ = made(rng, 1, 2, 7, 6, 8, 8, True, True)
    expected = fast.forward(*inputs, True)
    monkeypatch.setattr(fast, "FORWARD_HEADS", most)
    assert torch.equal(fast.forward(*inputs, True), expected)


def test_hard_decays_keep_their_digits(rng):
    """Differences of running sums near -6000 would be off by a thousandth; decays of one lie beside e^-1000."""
    (q, k, v, log_decay), grad = made(rng, 1, 2, 40, 2, 8, 8, True, True)
    log_decay = torch.where(torch.rand(log_decay.shape, generator=rng) < 0.2, -1000.0, log_decay / 100)
    inputs = (q, k, v, log_decay)
    assert_agree(fast.forward, decays.plain_decay_attention, (*inputs, True), 1e-6)
    found = assert_agree(fast.backward, decays.plain_decay_attention_backward, (grad, *inputs, True), 2e-6)
    assert found[3].abs().max() > 0


def test_half_precision_is_computed_in_float32(rng):
    inputs, grad = made(rng, 1, 2, 6, 2, 4, 4, False, False)
    inputs, grad = [x.bfloat16() for x in inputs], grad.bfloat16()
    (o,) = assert_agree(fast.forward, decays.plain_decay_attention, (*inputs, True), 1e-2)
    grads = assert_agree(fast.backward, decays.plain_decay_attention_backward, (grad, *inputs, True), 1e-2)
    assert all(x.dtype == torch.bfloat16 for x in (o, *grads))


def test_a_member_that_has_diverged_harms_no_other(rng):
    inputs, grad = made(rng, 2, 2, 6, 2, 4, 4, True, True)
    expected = fast.backward(grad, *inputs, True)
    inputs[2][0] = float("nan")
    for ours, theirs in zip(fast.backward(grad, *inputs, True), expected, strict=True):
        assert torch.equal(ours[1], theirs[1])


@pytest.mark.parametrize("shared", [True, False])
def test_the_operator_runs_its_kernels(rng, shared):
    inputs, _ = made(rng, 2, 3, 5, 2, 4, 3, shared, shared)

    def loss(q, k, v, log_decay):
        return decays._decay_attention(q[None], k[None], v[None], log_decay[None]).square().sum()

    assert_kernels_run(loss, inputs, ("decay_attention",))
