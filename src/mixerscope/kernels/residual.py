# pyright: reportGeneralTypeIssues=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""What the kernels of both halves of a residual block share: their norm, weights of stacked models, and sums of parts.

A program writes what it contributes to the gradients of weights into a row of its own; the rows of a model are added
up by a second launch, always in the same order.
"""

# pyright: reportArgumentType=false, reportOperatorIssue=false, reportIndexIssue=false, reportMissingImports=false

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

SMALLEST = 16
"""Side of a matrix that tensor cores take."""
SUMMED = 256
"""Numbers of a gradient that one program adds up."""
MOST_WEIGHTS = 6


def padded(size: int) -> int:
    return max(SMALLEST, triton.next_power_of_2(size))


def precision(exact: bool) -> str:
    """Of products: three of tensor cores err as little as one of float32 numbers."""
    return "tf32x3" if exact else "tf32"


def weight_strides(weights: Sequence[Tensor]) -> tuple[list[int], int]:
    """How far the models of each weight [m, ...] lie apart, in steps of so many numbers.

    That they begin at multiples of 16 bytes, the compiler has to be told: only then does it read so much at once.
    """
    step = 4 if all(weight.stride(0) % 4 == 0 for weight in weights) else 1
    return [weight.stride(0) // step for weight in weights], step


def summed(parts: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The gradients of weights [m, ...] from parts [m, p, numbers of all weights, one after the other]."""
    models, count, numbers = parts.shape
    gradients = [torch.empty(weight.shape, dtype=weight.dtype, device=weight.device) for weight in weights]
    ends = [sum(weight[0].numel() for weight in weights[: i + 1]) for i in range(len(weights))]
    missing = MOST_WEIGHTS - len(weights)
    _sum_parts[(triton.cdiv(numbers, SUMMED), models)](
        parts, *gradients, *gradients[-1:] * missing, count, numbers, *ends, *ends[-1:] * missing,
        PARTS=triton.next_power_of_2(count), BLOCK=SUMMED, num_warps=4,
    )  # fmt: skip
    return tuple(gradients)


@triton.jit
def _sum_parts(
    parts_at, a_at, b_at, c_at, d_at, e_at, f_at, count, numbers, end_a, end_b, end_c, end_d, end_e, end_f,
    PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.arange(0, PARTS)
    inside = (part < count)[:, None] & (at < numbers)[None, :]
    total = tl.sum(tl.load(parts_at + (model * count + part[:, None]) * numbers + at[None, :], inside, 0.0), 0)
    _store_between(a_at, model, at, total, 0, end_a)
    _store_between(b_at, model, at, total, end_a, end_b)
    _store_between(c_at, model, at, total, end_b, end_c)
    _store_between(d_at, model, at, total, end_c, end_d)
    _store_between(e_at, model, at, total, end_d, end_e)
    _store_between(f_at, model, at, total, end_e, end_f)


@triton.jit
def _store_between(out_at, model, at, total, start, end):
    tl.store(out_at + model * (end - start) + at - start, total, (at >= start) & (at < end))


@triton.jit
def normed(x, real_column, WIDTH: tl.constexpr, EPSILON: tl.constexpr):  # noqa: ANN201
    """Rows [n, c] with mean 0 and variance 1, and what they were multiplied with."""
    mean = tl.sum(x, 1) / WIDTH
    centred = tl.where(real_column[None, :], x - mean[:, None], 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / WIDTH + EPSILON)
    return centred * scale[:, None], scale


@triton.jit
def norm_backward(of_normed, row, scale, WIDTH: tl.constexpr):  # noqa: ANN201
    """The gradient of what `normed` was given, from that of the rows it returned."""
    along = tl.sum(of_normed * row, 1) / WIDTH
    mean = tl.sum(of_normed, 1) / WIDTH
    return scale[:, None] * (of_normed - mean[:, None] - row * along[:, None])
