"""Which products of stacked matrices are the operator's, and that it is the library's product to all who ask."""

import pytest
import torch

from mixerscope import kernels
from mixerscope.machine import MATMUL_PRECISION
from mixerscope.training import head, product


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def factors(rows, terms, columns, models=35, device="cuda", dtype=torch.float32):
    """That hold no numbers, as the compiler asks about them."""
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        empty = [torch.empty(models, *shape, dtype=dtype, device="cpu") for shape in ((rows, terms), (terms, columns))]
        return [torch._subclasses.FakeTensor(x.fake_mode, x.to("meta"), torch.device(device)) for x in empty]


@pytest.mark.parametrize(
    ("shape", "settings", "expected"),
    [
        ((1120, 256, 1024), {}, True),
        ((1120, 64, 192), {}, True),
        ((1120, 64, 64), {"models": 7}, False),  # the library is done with it in no time
        ((1120, 4096, 8), {}, False),  # a tile would be empty for the most part
        ((8, 4096, 1120), {}, False),
        ((1120, 8, 4096), {}, False),
        ((1120, 256, 1024), {"device": "cpu"}, False),
        ((1120, 256, 1024), {"dtype": torch.bfloat16}, False),
    ],
)
def test_large_products_on_a_gpu_are_the_operators(shape, settings, expected):
    assert product.pays(*factors(*shape, **settings)) == expected


def test_only_where_float32_is_wanted_and_kernels_are():
    large = factors(1120, 256, 1024)
    assert product.pays(*large)
    with MATMUL_PRECISION.held("high"):
        assert not product.pays(*large)
    with kernels.switched("plain"):
        assert not product.pays(*large)


def test_one_number_leaves_all_to_the_library(monkeypatch):
    monkeypatch.setattr(product, "LEAST", float("inf"))
    assert not product.pays(*factors(8192, 8192, 8192))


@pytest.fixture
def asked(monkeypatch):
    """What the operator asks for: a kernel, of which inputs, compared on which."""
    seen = []

    def watched(name, inputs, plain, *, sample, faster):
        seen.append((name, inputs, sample, faster))
        return plain

    monkeypatch.setattr(product, "body", watched)
    return seen


@pytest.mark.parametrize("right_turned", [False, True])
@pytest.mark.parametrize("left_turned", [False, True])
def test_the_kernel_is_given_factors_as_they_lie(asked, left_turned, right_turned):
    left, right = numbers(6, 5, 7), numbers(6, 7, 3, seed=1)
    laid = [x.mT.contiguous().mT if turned else x for x, turned in ((left, left_turned), (right, right_turned))]
    assert torch.equal(product.stacked_product(*laid), torch.bmm(*laid))
    [(name, inputs, sample, faster)] = asked
    assert (name, faster, inputs[2:]) == ("product", None, (left_turned, right_turned, 6))
    assert [x.data_ptr() for x in inputs[:2]] == [x.data_ptr() for x in laid]
    assert all(x.stride(2) == 1 for x in inputs[:2])
    assert [len(x) for x in sample[:2]] == [product.COMPARED] * 2
    assert sample[2:] == inputs[2:], "tiles are those of all models"


def test_pieces_and_weights_are_read_where_they_lie_and_only_what_lies_apart_is_copied(asked):
    left = numbers(2, 5, 12)[:, :, 3:10]
    right = numbers(2, 30)[:, 4:25].unflatten(1, (3, 7)).mT
    assert torch.equal(product.stacked_product(left, right), torch.bmm(left, right))
    apart = numbers(2, 5, 14)[:, :, ::2]
    assert torch.equal(product.stacked_product(apart, right), torch.bmm(apart, right))
    (_, first, _, _), (_, second, _, _) = asked
    assert [x.data_ptr() for x in first[:2]] == [left.data_ptr(), right.data_ptr()]
    assert second[0].data_ptr() != apart.data_ptr()


def test_elsewhere_than_in_strict_float32_the_operator_is_the_library(asked):
    with MATMUL_PRECISION.held("high"):
        product.stacked_product(numbers(1, 2, 3), numbers(1, 3, 4))
    assert asked[0][3] is not None


def test_the_compiler_is_told_the_right_shapes():
    inputs = numbers(3, 5, 7).mT, numbers(3, 5, 4)
    torch.library.opcheck(product.stacked_product, inputs, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("products", ["highest", "high"])
def test_a_wide_head_in_strict_float32_multiplies_so(monkeypatch, products):
    """All four of its products, with the numbers that the plain body gives."""
    made = []

    def watched(left, right):
        made.append((*left.shape, right.shape[2]))
        return left @ right

    monkeypatch.setattr(head, "product", watched)
    x, table = numbers(2, 7, 65).requires_grad_(), numbers(2, 11, 65, seed=1).requires_grad_()
    targets = torch.arange(7).expand(2, 7)
    with MATMUL_PRECISION.held(products):
        loss, _ = head._head_loss(x, table, targets)
        found = torch.autograd.grad(loss.sum(), (x, table))
    logits, of_x, of_table = (2, 7, 65, 11), (2, 7, 11, 65), (2, 11, 7, 65)
    assert made == ([logits, logits, of_x, of_table] if products == "highest" else [])
    expected = torch.nn.functional.cross_entropy((x @ table.mT).flatten(0, 1), targets.flatten()) * 2
    for a, b in zip(found, torch.autograd.grad(expected, (x, table)), strict=True):
        torch.testing.assert_close(a, b)
