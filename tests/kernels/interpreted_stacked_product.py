"""The kernel of stacked products against its plain body in float64; `test_interpreted.py` runs this file."""

import pytest
import torch

from mixerscope import kernels
from mixerscope.kernels import stacked_product as fast
from mixerscope.training.product import plain_product, stacked_product
from tests.kernels.tensor_cores import tensor_cores as tensor_cores

ROUNDING = 2.0**-21
"""Of one product: rests have a bit more than tensor cores read, and the product of two rests is left out."""


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def small(monkeypatch):
    """Tiles of few numbers: several of each kind without many numbers."""
    for name, size in {"ROWS": 32, "SMALL_ROWS": 16, "COLUMNS": 32, "SMALL_COLUMNS": 16, "TERMS": 16}.items():
        monkeypatch.setattr(fast, name, size)
    monkeypatch.setattr(fast, "PROCESSORS", 8)
    monkeypatch.setattr(fast, "SHORTEST", 32)


def numbers(rng, models, rows, columns, turned=False):
    """A stack of factors that lies in one tensor with others, row by row, as pieces and weights do."""
    inside = (columns, rows) if turned else (rows, columns)
    whole = torch.randn(models, inside[0] + 1, inside[1] + 3, generator=rng)
    return whole[:, 1:, 3:] if inside[1] % 4 else whole.flatten(1)[:, : inside[0] * inside[1]].unflatten(1, inside)


def off(found, left, right):
    """The largest error of a number of the result, of the sum of what was added up for it, signs aside."""
    left, right = left.double(), right.double()
    sums = left.abs() @ right.abs()
    return ((found.double() - left @ right).abs() / sums.where(sums > 0, 1)).max().item()


def made(rng, shape, left_turned, right_turned):
    models, rows, terms, columns = shape
    left, right = numbers(rng, models, rows, terms, left_turned), numbers(rng, models, terms, columns, right_turned)
    found = fast.product(left, right, left_turned, right_turned, models)
    assert found.shape == (models, rows, columns)
    assert found.is_contiguous()
    return off(found, left.mT if left_turned else left, right.mT if right_turned else right)


@pytest.mark.parametrize("right_turned", [False, True])
@pytest.mark.parametrize("left_turned", [False, True])
@pytest.mark.parametrize(
    "shape",
    [
        (2, 64, 32, 48),  # whole tiles
        (2, 37, 21, 45),  # none
        (1, 9, 20, 50),  # turned, and columns of few tokens
        (1, 17, 200, 6),  # several programs share a tile, the last of them with fewer terms
        (1, 5, 68, 40),  # both
        (3, 1, 1, 1),
    ],
)
def test_products_with_any_factor_turned(small, tensor_cores, rng, shape, left_turned, right_turned):
    assert made(rng, shape, left_turned, right_turned) < ROUNDING
    assert set(tensor_cores) == {"TF32"}


@pytest.mark.parametrize("shape", [(1, 130, 70, 140), (2, 70, 600, 33), (1, 32, 40, 200)])
def test_products_of_the_sizes_that_are_used(tensor_cores, rng, shape):
    assert made(rng, shape, False, True) < ROUNDING


def test_sizes_meet_all_cases(small):
    """Of the tests above: large and small tiles, and shared ones."""
    assert fast._sizes(2, 64, 48, 32) == (32, 32, fast.WARPS, 1)
    assert fast._sizes(1, 50, 9, 20) == (16, 16, fast.SMALL_WARPS, 1)
    assert fast._sizes(1, 17, 6, 200)[3] == 6
    assert fast._sizes(1, 40, 5, 68)[3] == 2


@pytest.mark.parametrize(("apart", "times"), [(1, 1), (40, 4)])
@pytest.mark.parametrize("terms", [64, 1120])
def test_errors_are_of_the_size_of_float32s_own(tensor_cores, rng, terms, apart, times):
    """Where one product outweighs all that it is added to, its own error counts, which is larger."""
    left, right = numbers(rng, 2, 40, terms), numbers(rng, 2, terms, 36)
    left, right = (x * 2.0 ** torch.randint(1 - apart, apart, x.shape, generator=rng) for x in (left, right))
    found = fast.product(left, right, False, False, 2)
    assert off(found, left, right) < ROUNDING
    exact = left.double() @ right.double()
    ours, the_librarys = ((result.double() - exact).norm() for result in (found, left @ right))
    assert ours < times * the_librarys
    cut = [x.view(torch.int32).bitwise_and(-8192).view(torch.float32) for x in (left.contiguous(), right.contiguous())]
    assert off(cut[0] @ cut[1], left, right) > 100 * ROUNDING, "as tensor cores alone would multiply them"


def test_zeros_stay_zeros_and_powers_of_two_move_no_bit(tensor_cores, rng):
    left, right = numbers(rng, 1, 40, 64), numbers(rng, 1, 64, 36)
    left[:, 3], right[:, :, 5] = 0, 0
    found = fast.product(left, right, False, False, 1)
    assert not found[:, 3].any()
    assert not found[:, :, 5].any()
    assert (found == 0).sum() == 40 + 36 - 1
    assert torch.equal(fast.product(left / 4, right * 8, False, False, 1), found * 2)


def test_a_member_that_has_diverged_harms_no_other(rng):
    left, right = numbers(rng, 2, 20, 33), numbers(rng, 2, 33, 18)
    expected = fast.product(left, right, False, False, 2)
    left[0, 3, 4] = float("nan")
    found = fast.product(left, right, False, False, 2)
    assert torch.equal(found[1], expected[1])
    assert not found[0, 3].isfinite().any()
    assert torch.equal(found[0, 4:], expected[0, 4:])


def test_a_part_of_the_models_is_computed_as_in_the_whole(small, rng):
    """As kernel and plain body are compared on a few of them."""
    left, right = numbers(rng, 9, 40, 64), numbers(rng, 9, 64, 36)
    whole = fast.product(left, right, False, False, 9)
    assert fast._sizes(2, 40, 36, 64) != fast._sizes(9, 40, 36, 64)
    assert torch.equal(fast.product(left[:2], right[:2], False, False, 9), whole[:2])


@pytest.mark.parametrize("turn", [lambda x: x, lambda x: x.mT.contiguous().mT, lambda x: x.repeat(1, 1, 2)[..., ::2]])
def test_the_operator_runs_its_kernel_wherever_factors_lie(rng, turn):
    left, right = turn(numbers(rng, 2, 20, 33)), turn(numbers(rng, 2, 33, 18))
    found = stacked_product(left, right)
    assert off(found, left, right) < ROUNDING
    with kernels.switched("plain"):
        assert torch.equal(stacked_product(left, right), plain_product(left, right, False, False, 2))
    assert kernels.used()["product"] == "kernel; plain: asked for"
