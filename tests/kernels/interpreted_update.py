"""The kernels of an update against plain bodies in float64, and a whole training; `test_interpreted.py` runs this."""

import pytest
import torch

from mixerscope import kernels
from mixerscope.kernels import update as fast
from mixerscope.training import train_cohort
from mixerscope.training import update as plain
from tests.conftest import tiny_spec

MOMENTS = (0.9, 0.999, 1e-8)


def close(found, expected, tolerance):
    return ((found.double() - expected).norm() / expected.norm()).item() < tolerance


@pytest.mark.parametrize(("models", "width"), [(1, 16), (3, 33)])
def test_rows_are_looked_up_where_tokens_are_cut(models, width):
    rng = torch.Generator().manual_seed(0)
    table = torch.randn(models, 40, width, generator=rng)[:, 3:-4]
    tokens = torch.randint(33, (5, 40), generator=rng)
    for asked in (tokens, tokens[:, :17], tokens.T):
        assert torch.equal(fast.look_up(table, asked), plain._look_up(table, asked))


@pytest.mark.parametrize(
    ("models", "vocabulary", "width", "count"),
    [
        (9, 90, 16, 100),
        (2, 11, 24, 70),
        (1, 90, 33, 17),
        (3, 5, 16, 40),  # few tokens, all of them often
        (2, 7, 40, 200),
    ],
)
def test_rows_of_a_token_are_summed_into_its_row_of_the_table(models, vocabulary, width, count):
    rng = torch.Generator().manual_seed(0)
    table = torch.randn(models, vocabulary, width, generator=rng)
    tokens = torch.randint(vocabulary, (count,), generator=rng)
    tokens[: count // 2] = 1  # one that stands there more often than is summed in one go
    rows = torch.randn(models, count, width, generator=rng)
    expected = table.double()
    plain._add_rows(expected, tokens, rows.double(), tokens)
    fast.add_rows(table, tokens, rows, tokens.argsort(stable=True).to(torch.int32))
    assert close(table, expected, 1e-6)


def test_a_token_may_stand_there_any_number_of_times_whatever_models_are_beside():
    rng = torch.Generator().manual_seed(0)
    together = fast.TOGETHER
    times = torch.tensor([1, 2, together, together + 1, 1, together + 2, 2 * together, 2 * together + 1])
    tokens = torch.arange(8).repeat_interleave(times)[torch.randperm(int(times.sum()), generator=rng)]
    order = tokens.argsort(stable=True).to(torch.int32)
    table, rows = torch.randn(5, 90, 24, generator=rng), torch.randn(5, len(tokens), 24, generator=rng)
    expected, alone = table.double(), table[3:4].clone()
    plain._add_rows(expected, tokens, rows.double(), order)
    fast.add_rows(table, tokens, rows, order)
    fast.add_rows(alone, tokens, rows[3:4], order)
    assert close(table, expected, 1e-6)
    assert torch.equal(table[3:4], alone)


def gradients(models, rng, dtype):
    """Of one parameter that takes several programs, of some small ones, of one that is no multiple of 16 bytes, of one
    that lies transposed, of one that lies between others, and of one that is the same for all models."""
    made = [torch.randn(models, *shape, generator=rng).to(dtype) for shape in ((40, 60), (4,), (8, 2), (7,), (5, 6))]
    turned = torch.randn(models, 12, 8, generator=rng).to(dtype).mT
    between = torch.randn(models, 9, 8, generator=rng).to(dtype)[:, 2:5]
    alike = torch.randn(1, 16, generator=rng).to(dtype).expand(models, 16)
    return [*made[:2], turned, between, alike, *made[2:]]


@pytest.mark.parametrize("at_once", [3, 64])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 5e-3)])
def test_adamw_takes_gradients_where_they_lie(dtype, tolerance, at_once, monkeypatch):
    monkeypatch.setattr(fast, "MOST_AT_ONCE", at_once)
    rng = torch.Generator().manual_seed(0)
    grads = gradients(3, rng, dtype)
    used = sum(grad[0].numel() for grad in grads)
    state = [torch.rand(3, 3000, generator=rng).to(dtype) for _ in range(3)]
    rates, decays, factors = torch.rand(3, generator=rng), torch.rand(3, generator=rng), torch.tensor([0.5, 0.7, 1.2])
    exact = [tensor.double() for tensor in state]
    settings = (rates.double(), decays.double(), factors.double())
    plain._adamw(*exact, *settings, *MOMENTS, *(grad.double() for grad in grads))
    before = [tensor.clone() for tensor in state]
    fast.adamw(*state, rates, decays, factors, *MOMENTS, *grads)
    for tensor, expected, old in zip(state, exact, before, strict=True):
        assert close(tensor[:, :used], expected[:, :used], tolerance)
        assert torch.equal(tensor[:, used:], old[:, used:])


def test_where_a_gradient_lies_changes_no_bit_of_the_update():
    """Beside others, in launches of their own, or laid in a row as plain operations do: every number by itself."""
    rng = torch.Generator().manual_seed(0)
    grads = gradients(3, rng, torch.float32)
    row = torch.cat([grad.flatten(1) for grad in grads], 1)
    state = [torch.rand(3, row.shape[1], generator=rng) for _ in range(3)]
    settings = torch.rand(3, generator=rng), torch.rand(3, generator=rng), torch.tensor([0.5, 0.7, 1.2]), *MOMENTS
    others = [tensor.clone() for tensor in state]
    fast.adamw(*state, *settings, *grads)
    fast.adamw(*others, *settings, row)
    assert all(torch.equal(a, b) for a, b in zip(state, others, strict=True))


def test_training_with_kernels_is_training_without():
    spec = tiny_spec("attention", warmup=0.0, weight_decay=0.1)
    specs = [spec, spec.changed(seed=1, train=spec.train.changed(lr=1e-3, weight_decay=0.0))]
    with kernels.switched("plain"):
        expected = train_cohort(specs)
    for member, other in zip(train_cohort(specs), expected, strict=True):
        for name, weight in other.weights.items():
            torch.testing.assert_close(member.weights[name], weight, rtol=1e-4, atol=1e-5)
    everything = ("head_loss", "head_loss_backward", "look_up", "add_rows", "adamw")
    assert all("kernel" in kernels.used()[name] for name in everything)
