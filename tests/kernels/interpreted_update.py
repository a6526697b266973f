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


@pytest.mark.parametrize(
    ("models", "vocabulary", "width", "count"),
    [
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


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 5e-3)])
def test_adamw_on_some_columns_of_the_rows(dtype, tolerance):
    rng = torch.Generator().manual_seed(0)
    state = [torch.rand(3, 3000, generator=rng).to(dtype) for _ in range(3)]
    grads = torch.randn(3, 1500, generator=rng).to(dtype)
    rates, decays, factors = torch.rand(3, generator=rng), torch.rand(3, generator=rng), torch.tensor([0.5, 0.7, 1.2])
    exact = [tensor.double()[:, 100:1600] for tensor in state]
    plain._adamw(*exact, grads.double(), rates.double(), decays.double(), factors.double(), *MOMENTS)
    before = [tensor.clone() for tensor in state]
    fast.adamw(*(tensor[:, 100:1600] for tensor in state), grads, rates, decays, factors, *MOMENTS)
    for tensor, expected, old in zip(state, exact, before, strict=True):
        assert close(tensor[:, 100:1600], expected, tolerance)
        assert torch.equal(tensor[:, :100], old[:, :100])
        assert torch.equal(tensor[:, 1600:], old[:, 1600:])


def test_training_with_kernels_is_training_without():
    spec = tiny_spec("attention", warmup=0.0, weight_decay=0.1)
    specs = [spec, spec.changed(seed=1, train=spec.train.changed(lr=1e-3, weight_decay=0.0))]
    with kernels.switched("plain"):
        expected = train_cohort(specs)
    for member, other in zip(train_cohort(specs), expected, strict=True):
        for name, weight in other.weights.items():
            torch.testing.assert_close(member.weights[name], weight, rtol=1e-4, atol=1e-5)
    everything = ("head_loss", "head_loss_backward", "add_rows", "adamw")
    assert all("kernel" in kernels.used()[name] for name in everything)
