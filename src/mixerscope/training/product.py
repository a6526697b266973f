"""Products of stacked matrices in strict float32, which no tensor core makes: large ones on a GPU as three of TF32.

Compiled steps and wide heads ask here. Gradients of a product are products again, so there is one operator and no
gradient. Shapes: left [m, r, k], right [m, k, c].
"""

import torch
from torch import Tensor

from mixerscope.kernels import body, wanted
from mixerscope.kernels.precision import exact_products

LEAST = 2**27
"""Numbers that are multiplied in all models, from which on the library is not asked: by a guess, since this has not
been timed. It makes 33e12 in a second, so this many take it some 8 us. `float("inf")` leaves all to the library."""
NARROWEST = 32
"""The shortest side of a factor or of the result, below which most of a tile would be empty."""
COMPARED = 4
"""Models on which kernel and plain body are compared: a program works on one, and results may be large."""


def product(left: Tensor, right: Tensor) -> Tensor:
    """As the library makes it, or by a kernel where that pays."""
    return _product(left, right) if pays(left, right) else left @ right


def pays(left: Tensor, right: Tensor) -> bool:
    """Whether products of such factors, which need not hold numbers yet, are to be the operator's."""
    if left.device.type != "cuda" or not (left.dtype == right.dtype == torch.float32):
        return False
    (models, rows, terms), columns = left.shape, right.shape[2]
    large = min(rows, terms, columns) >= NARROWEST and models * rows * terms * columns >= LEAST
    return large and exact_products() and wanted()


def plain_product(left: Tensor, right: Tensor, left_turned: bool, right_turned: bool, models: int) -> Tensor:
    """Of a factor that is turned, the transpose is given. How many `models` there are is for the kernel's tiles."""
    return torch.bmm(left.mT if left_turned else left, right.mT if right_turned else right)


def _product(left: Tensor, right: Tensor) -> Tensor:
    (left, left_turned), (right, right_turned) = _in_rows(left), _in_rows(right)
    more = (left_turned, right_turned, len(left))
    inputs, sample = (left, right, *more), (left[:COMPARED], right[:COMPARED], *more)
    faster = None if exact_products() else "tensor cores make it as it was asked for"
    return body("product", inputs, plain_product, sample=sample, faster=faster)(*inputs)


def _in_rows(factor: Tensor) -> tuple[Tensor, bool]:
    """The factor as it lies in memory, if that is in rows or in columns, and whether that is its transpose."""
    turned = factor.stride(2) != 1 and factor.stride(1) == 1
    if turned:
        return factor.mT, True
    return factor if factor.stride(2) == 1 else factor.contiguous(), False


# Whatever way factors lie, the kernel reads them there: a compiler need not copy them.
stacked_product = torch.library.custom_op(
    "mixerscope::product", _product, mutates_args=(), tags=(torch.Tag.flexible_layout,)
)


@stacked_product.register_fake
def _empty(left: Tensor, right: Tensor) -> Tensor:
    return left.new_empty(left.shape[0], left.shape[1], right.shape[2])
