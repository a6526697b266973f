"""The head and its loss in one must be torch's own product and cross-entropy."""

import pytest
import torch
from torch.nn import functional as F

from mixerscope.kernels.precision import TF32_TOLERANCE
from mixerscope.machine import MATMUL_PRECISION
from mixerscope.model import build_model
from mixerscope.tasks import UNSCORED
from mixerscope.training import head
from mixerscope.training.objective import Answer, cross_entropy
from mixerscope.training.stack import _Loss
from tests.conftest import tiny_spec


def numbers(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def some_targets(*shape, vocabulary, unscored=0):
    targets = torch.randint(vocabulary, shape, generator=torch.Generator().manual_seed(1))
    targets[..., :unscored] = UNSCORED
    return targets


def with_gradients(loss, x, table):
    x, table = x.detach().requires_grad_(), table.detach().requires_grad_()
    found = loss(x, table)
    return found.detach(), *torch.autograd.grad(found.sum(), (x, table))


@pytest.mark.parametrize("unscored", [0, 3, 7])
def test_one_model(unscored):
    x, table = numbers(7, 5), numbers(11, 5, seed=1)
    targets = some_targets(7, vocabulary=11, unscored=unscored)
    found = with_gradients(lambda x, table: 2 * head.head_loss(x, table, targets), x, table)
    expected = with_gradients(
        lambda x, table: 2 * F.cross_entropy(x @ table.T, targets, ignore_index=UNSCORED), x, table
    )
    assert expected[0].isnan() == (unscored == 7)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14, equal_nan=True)


@pytest.mark.parametrize("shared", [True, False])
def test_stacked_models(shared):
    x, table = numbers(3, 7, 5), numbers(3, 11, 5, seed=1)
    targets = some_targets(*(() if shared else (3,)), 7, vocabulary=11, unscored=2)
    dims = (0, 0, None if shared else 0)
    found = with_gradients(lambda x, table: torch.vmap(head.head_loss, dims)(x, table, targets), x, table)
    for i in range(3):
        mine = targets if shared else targets[i]
        expected = with_gradients(
            lambda x, table, mine=mine: F.cross_entropy(x @ table.T, mine, ignore_index=UNSCORED), x[i], table[i]
        )
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a[i], b, rtol=1e-12, atol=1e-14)


def test_the_table_is_not_copied_and_its_gradient_is_in_one_piece(monkeypatch):
    """It is a view into rows that hold all parameters, and the largest of them."""
    flat = numbers(3, 70, dtype=torch.float32)
    table = flat[:, :55].unflatten(1, (11, 5)).requires_grad_()
    x, targets = numbers(3, 7, 5, dtype=torch.float32), some_targets(7, vocabulary=11)
    seen = {}

    def watched(name, inputs, plain, changes, tolerance, faster):
        seen[name] = [t.data_ptr() for t in inputs if isinstance(t, torch.Tensor)], inputs
        return plain

    monkeypatch.setattr(head, "body", watched)
    losses = torch.vmap(head.head_loss, (0, 0, None))(x, table, targets)
    [grad] = torch.autograd.grad(losses.sum(), table)
    assert seen["head_loss"][0][1] == seen["head_loss_backward"][0][2] == flat.data_ptr()
    assert seen["head_loss"][1][1].stride() == (70, 5, 1)
    assert seen["head_loss"][0][2] == targets.data_ptr()
    assert grad.is_contiguous()


def test_a_step_differentiates_the_loss_of_the_models_logits():
    spec = tiny_spec("attention").model.changed(init="small_model")
    model = build_model(spec, 13, 0).double()
    tokens = some_targets(2, 6, vocabulary=13)
    read, targets = torch.tensor([[5, 2], [4, 0]]), torch.tensor([[3, 1], [12, UNSCORED]])
    found = _Loss(model, Answer())(model.token_embedding(tokens), read, targets, {})
    expected = cross_entropy(model(tokens, read), targets)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    parameters = list(model.parameters())
    for a, b in zip(torch.autograd.grad(found, parameters), torch.autograd.grad(expected, parameters), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-14)


def test_bfloat16_is_computed_in_float32():
    x, table = numbers(1, 7, 5, dtype=torch.bfloat16), numbers(1, 11, 5, dtype=torch.bfloat16, seed=1)
    targets = some_targets(1, 7, vocabulary=11)
    loss, total = head._head_loss(x, table, targets)
    exact_loss, exact_total = head._head_loss(x.double(), table.double(), targets)
    assert (loss.dtype, total.dtype) == (torch.float32, torch.float32)
    torch.testing.assert_close((loss, total), (exact_loss.float(), exact_total.float()))
    grads = head._head_loss_backward(torch.ones(1), x, table, targets, total)
    exact = head._head_loss_backward(torch.ones(1).double(), x.double(), table.double(), targets, exact_total)
    for found, expected in zip(grads, exact, strict=True):
        torch.testing.assert_close(found, expected.bfloat16())


def test_a_member_that_has_diverged_has_no_loss_and_harms_no_other():
    x, table, targets = numbers(2, 7, 5), numbers(2, 11, 5, seed=1), some_targets(2, 7, vocabulary=11)
    alone, _ = head._head_loss(x[1:], table[1:], targets[1:])
    table[0, 4, 2] = float("inf")
    loss, _ = head._head_loss(x, table, targets)
    assert not loss[0].isfinite()
    torch.testing.assert_close(loss[1:], alone)


def test_the_compiler_is_told_the_right_shapes():
    x, table = numbers(2, 7, 5, dtype=torch.float32), numbers(2, 11, 5, dtype=torch.float32, seed=1)
    targets = some_targets(2, 7, vocabulary=11)
    utils = ("test_schema", "test_faketensor")
    torch.library.opcheck(head._head_loss, (x, table, targets), test_utils=utils)
    total = head._head_loss(x, table, targets)[1]
    torch.library.opcheck(head._head_loss_backward, (torch.ones(2), x, table, targets, total), test_utils=utils)


@pytest.mark.parametrize(
    ("products", "dtype", "exact", "tolerance"),
    [
        ("highest", torch.float32, True, None),
        ("high", torch.float32, False, TF32_TOLERANCE),
        ("high", torch.bfloat16, False, None),
    ],
)
def test_kernels_are_held_to_what_products_were_asked_for(monkeypatch, products, dtype, exact, tolerance):
    seen = []

    def watched(name, inputs, plain, changes, tolerance, faster):
        seen.append((inputs[-1], tolerance))
        return plain

    monkeypatch.setattr(head, "body", watched)
    x, table = numbers(7, 5, dtype=dtype).requires_grad_(), numbers(11, 5, dtype=dtype, seed=1)
    with MATMUL_PRECISION.held(products):
        head.head_loss(x, table, some_targets(7, vocabulary=11)).backward()
    assert seen == [(exact, tolerance)] * 2


@pytest.mark.parametrize(
    ("products", "width", "dtype", "plain"),
    [
        ("highest", 65, torch.float32, True),
        ("highest", 64, torch.float32, False),
        ("high", 65, torch.float32, False),
        ("highest", 65, torch.bfloat16, False),
    ],
)
def test_products_that_no_tensor_core_makes_are_left_to_the_library_if_they_are_wide(
    monkeypatch, products, width, dtype, plain
):
    reasons = []

    def watched(name, inputs, plain, changes, tolerance, faster):
        reasons.append(faster)
        return plain

    monkeypatch.setattr(head, "body", watched)
    x, table = numbers(7, width, dtype=dtype).requires_grad_(), numbers(11, width, dtype=dtype, seed=1)
    with MATMUL_PRECISION.held(products):
        head.head_loss(x, table, some_targets(7, vocabulary=11)).backward()
    assert [reason is not None for reason in reasons] == [plain, plain]
