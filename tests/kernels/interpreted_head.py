"""The kernels of the head against their plain bodies in float64; `test_interpreted.py` runs this file."""

import pytest
import torch

from mixerscope.kernels import head as fast
from mixerscope.tasks import UNSCORED
from mixerscope.training import head as plain
from tests.kernels.tensor_cores import tensor_cores as tensor_cores


def error(found, expected):
    return ((found.double() - expected).norm() / (expected.norm() or 1.0)).item()


def inputs(models, rows, vocabulary, width, dtype=torch.float32):
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(models, rows, width, generator=rng).to(dtype)
    # As in training: a view into rows that hold more than the table.
    flat = torch.randn(models, vocabulary * width + 12, generator=rng).to(dtype)
    table = flat[:, : vocabulary * width].unflatten(1, (vocabulary, width))
    targets = torch.randint(vocabulary, (models, rows), generator=rng)
    targets[:, ::4] = UNSCORED
    targets[:, -1] = vocabulary - 1
    return torch.rand(models, generator=rng) + 0.5, x, table, targets


def compare(grad, x, table, targets, *, sums, gradients, exact=True):
    loss, total = fast.forward(x, table, targets, UNSCORED, exact)
    in_double = (x.double(), table.double(), targets)
    expected_loss, expected_total = plain.plain_head_loss(*in_double, UNSCORED, exact)
    assert error(loss, expected_loss) < sums
    assert error(total, expected_total) < sums
    found = fast.backward(grad, x, table, targets, total, UNSCORED, exact)
    expected = plain.plain_head_loss_backward(grad.double(), *in_double, expected_total, UNSCORED, exact)
    for a, b, like in zip(found, expected, (x, table), strict=True):
        assert a.dtype == like.dtype
        assert a.is_contiguous()
        assert error(a, b) < gradients


@pytest.mark.parametrize(
    ("models", "rows", "vocabulary", "width"),
    [
        (2, 32, 140, 16),
        (2, 5, 26, 33),  # rows, tokens and columns are padded
        (1, 75, 70, 20),  # more rows than a program holds
        (2, 75, 150, 20),  # and a table too large for each block of them to have a gradient of its own
        (1, 2100, 3, 4),  # more than are combined in one go
        (1, 20, 40, 130),  # tiles of fewer tokens
        (1, 3, 32 * 83 + 4, 16),  # parts of several tiles, and a last one that is not full
        (3, 1, 1, 1),
    ],
)
def test_kernels_agree_with_the_plain_body(models, rows, vocabulary, width):
    compare(*inputs(models, rows, vocabulary, width), sums=1e-6, gradients=2e-6)


@pytest.mark.parametrize(
    ("width", "exact", "products", "off"),
    [(64, True, "TF32", 2e-6), (32, True, "IEEE", 2e-6), (64, False, "TF32", 1e-2)],
)
def test_exact_products_are_so_on_tensor_cores_too(tensor_cores, width, exact, products, off):
    compare(*inputs(1, 20, 70, width), sums=off / 2, gradients=off, exact=exact)
    assert set(tensor_cores) == {products}
    if not exact:
        with pytest.raises(AssertionError):
            compare(*inputs(1, 20, 70, width), sums=1e-5, gradients=1e-5, exact=exact)


@pytest.mark.parametrize("rows", [20, 40])
def test_bfloat16_is_computed_in_float32(rows):
    compare(*inputs(2, rows, 70, 16, torch.bfloat16), sums=1e-6, gradients=4e-3)


@pytest.mark.parametrize("far", [40.0, -40.0])
def test_large_logits_do_not_overflow(far):
    """Nor does what stands beside the vocabulary, and would be the largest if all else is far below zero."""
    grad, x, table, targets = inputs(1, 8, 90, 16)
    compare(grad, x.abs() * far, table.abs(), targets, sums=1e-6, gradients=5e-5)


def test_without_scored_targets_there_is_no_loss_and_no_gradient():
    grad, x, table, targets = inputs(2, 8, 30, 16)
    targets[0] = UNSCORED
    loss, total = fast.forward(x, table, targets, UNSCORED, True)
    assert loss.isnan().tolist() == [True, False]
    for found in fast.backward(grad, x, table, targets, total, UNSCORED, True):
        assert (found.abs().amax((1, 2)) > 0).tolist() == [False, True]


def test_targets_that_models_share_are_read_where_they_are():
    _, x, table, targets = inputs(2, 8, 30, 16)
    shared = targets[:1].expand(2, 8)
    found = fast.forward(x, table, shared, UNSCORED, True)
    for a, b in zip(found, fast.forward(x, table, shared.contiguous(), UNSCORED, True), strict=True):
        assert torch.equal(a, b)


@pytest.mark.filterwarnings("ignore:All-NaN:RuntimeWarning")  # of the interpreter
def test_a_member_that_has_diverged_harms_no_other():
    grad, x, table, targets = inputs(2, 8, 30, 16)
    total = fast.forward(x, table, targets, UNSCORED, True)[1]
    expected = fast.backward(grad, x, table, targets, total, UNSCORED, True)
    table[0, 3] = float("nan")
    loss, total = fast.forward(x, table, targets, UNSCORED, True)
    assert loss.isnan().tolist() == [True, False]
    for a, b in zip(fast.backward(grad, x, table, targets, total, UNSCORED, True), expected, strict=True):
        assert torch.equal(a[1], b[1])
