# pyright: reportGeneralTypeIssues=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""What the kernels of both halves of a residual block share: norm, weights of stacked models, and how the backward pass
ends.

A program of the backward pass has some rows and some of the weights. It writes what it contributes to the gradients of
weights into a row that it shares with those of the same rows, and what it gives to the gradient of the norm's results
into a tensor of its own: a second launch adds all of these up, always in the same order, and goes through the norm.
"""

# pyright: reportArgumentType=false, reportOperatorIssue=false, reportIndexIssue=false, reportMissingImports=false

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

SMALLEST = 16
"""Side of a matrix that tensor cores take."""
SUMMED, FINISHED = 256, 16
"""Numbers of gradients of weights, and rows of x, that one program of the last launch has."""
PROGRAMS = 264
"""Two for each processor of a large GPU: one waits while the other computes."""
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


def blocks_of_rows(rows: int, most: int, others: int) -> tuple[int, int, int]:
    """How many rows a block has, how many blocks a program, and how many such programs there are; `others` is how many
    there are for the same rows. Decided by constants, since how sums are cut decides their last bits."""
    size = padded(min(rows, most))
    all_blocks = triton.cdiv(rows, size)
    blocks = triton.cdiv(all_blocks, max(1, PROGRAMS // others))
    return size, blocks, triton.cdiv(all_blocks, blocks)


def finished(
    parts: Tensor, of_n: Tensor, grad: Tensor, x: Tensor, weights: Sequence[Tensor], epsilon: float
) -> tuple[Tensor, ...]:
    """The gradients of x [m, n, d] and of the weights [m, ...], of which gain and shift of the norm are the first two.

    `of_n` [s, m, n, d] are contributions to the gradient of what the norm gave. `parts` [m, p, ...] begin with s
    contributions to the gradients of gain and shift, the gradients of all other weights follow one after the other.
    """
    (models, count, length), (splits, _, _, width) = parts.shape, of_n.shape
    of_x, gradients = x.new_empty(x.shape), [weight.new_empty(weight.shape) for weight in weights]
    ends = [sum(weight[0].numel() for weight in weights[: i + 1]) for i in range(len(weights))]
    missing = MOST_WEIGHTS - len(weights)
    rows, sums = x[0].numel() // width, triton.cdiv(ends[-1], SUMMED)
    (stride_gain, *_), step = weight_strides(weights)
    _finish[(sums + triton.cdiv(rows, FINISHED), models)](
        parts, of_n, grad, x, weights[0], of_x, *gradients, *gradients[-1:] * missing, sums, rows, count, length,
        stride_gain, *ends, *ends[-1:] * missing, STEP=step, SPLITS=splits, WIDTH=width, PADDED=padded(width),
        ROWS=FINISHED, PARTS=triton.next_power_of_2(count), BLOCK=SUMMED, EPSILON=epsilon, num_warps=4,
    )  # fmt: skip
    return of_x, *gradients


@triton.jit
def _finish(
    parts_at, of_n_at, grad_at, x_at, gain_at, of_x_at, a_at, b_at, c_at, d_at, e_at, f_at, sums, rows, count, length,
    stride_gain, end_a, end_b, end_c, end_d, end_e, end_f,
    STEP: tl.constexpr, SPLITS: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr,
    PARTS: tl.constexpr, BLOCK: tl.constexpr, EPSILON: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(1).to(tl.int64)
    if tl.program_id(0) < sums:
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        total = _sum_of_parts(parts_at + model * count * length, at, count, length, end_f, SPLITS, WIDTH, PARTS, BLOCK)
        _store_between(a_at, model, at, total, 0, end_a)
        _store_between(b_at, model, at, total, end_a, end_b)
        _store_between(c_at, model, at, total, end_b, end_c)
        _store_between(d_at, model, at, total, end_c, end_d)
        _store_between(e_at, model, at, total, end_d, end_e)
        _store_between(f_at, model, at, total, end_e, end_f)
    else:
        column = tl.arange(0, PADDED)
        real_column = column < WIDTH
        row = (tl.program_id(0) - sums) * ROWS + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & real_column[None, :]
        cell = (model * rows + row)[:, None] * WIDTH + column[None, :]
        of_n = tl.load(of_n_at + cell, inside, 0.0)
        for split in tl.static_range(1, SPLITS):
            of_n += tl.load(of_n_at + split * tl.num_programs(1).to(tl.int64) * rows * WIDTH + cell, inside, 0.0)
        gain = tl.load(gain_at + model * stride_gain * STEP + column, real_column, 0.0)
        unit_row, scale = normed(tl.load(x_at + cell, inside, 0.0), real_column, WIDTH, EPSILON)
        through = norm_backward(of_n * gain[None, :], unit_row, scale, WIDTH)
        tl.store(of_x_at + cell, tl.load(grad_at + cell, inside, 0.0) + through, inside)


@triton.jit
def _sum_of_parts(
    parts_at, at, count, length, numbers,
    SPLITS: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Columns `at` of what is to be summed: gain and shift, which stand there once for each split, and the others."""
    part = tl.arange(0, PARTS)
    more: tl.constexpr = (SPLITS - 1) * 2 * WIDTH
    place = tl.where(at < 2 * WIDTH, at, at + more)
    rows_at = parts_at + part[:, None] * length
    real_part = (part < count)[:, None]
    total = tl.load(rows_at + place[None, :], real_part & (at < numbers)[None, :], 0.0)
    if tl.program_id(0) * BLOCK < 2 * WIDTH:
        for split in tl.static_range(1, SPLITS):
            next_at = rows_at + split * 2 * WIDTH + at[None, :]
            total += tl.load(next_at, real_part & (at < 2 * WIDTH)[None, :], 0.0)
    return tl.sum(total, 0)


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
