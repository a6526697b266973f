# pyright: reportGeneralTypeIssues=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""Triton kernels of a step's ends: rows out of the table, rows into its gradient, and AdamW.

See `mixerscope.training.update`.
"""

from collections.abc import Sequence
from itertools import accumulate

import triton
import triton.language as tl
from torch import Tensor

from mixerscope.kernels.layout import whole_rows
from mixerscope.kernels.residual import weight_strides

BLOCK, WARPS = 1024, 4
"""Of the update."""
MOST_AT_ONCE = 64
"""Gradients in one launch: where each lies is an argument of its own, of which a kernel takes four kilobytes."""
ALIGNED = 4
"""Numbers that are read in one go."""
LOOKED_UP = 1024
"""Numbers that a program looks up."""
ADDED, TOGETHER, ADDING_WARPS = 512, 8, 4
"""Numbers of one token, of one or several models, that a program adds to, and rows that it reads at once if the token
stands there often."""
OFTEN = 8
"""Rows a token on average, from which on a program reads all tokens: summed by the first place of each, the rows of a
token that fills every second place would be one long queue."""
PLACES, COLUMNS = 64, 32
"""That a program reads in one go if tokens are few."""

Piece = tuple[Tensor, int, int, int]
"""A gradient [k, ...], the column its parameter begins at, how many columns that has, and how far models are apart."""


@triton.jit
def _look_up(
    table, tokens, rows, count, length, stride_table, stride_tokens,
    STEP: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(1).to(tl.int64)
    place, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, PADDED)
    token = tl.load(tokens + place // length * stride_tokens + place % length, place < count, 0)
    inside = (place < count)[:, None] & (column < WIDTH)[None, :]
    found = tl.load(table + model * stride_table * STEP + token[:, None] * WIDTH + column[None, :], inside, 0.0)
    tl.store(rows + (model * count + place)[:, None] * WIDTH + column[None, :], found, inside)


def look_up(table: Tensor, tokens: Tensor) -> Tensor:
    table, tokens = whole_rows(table), tokens if tokens.stride(1) == 1 else tokens.contiguous()
    models, _, width = table.shape
    rows = table.new_empty(models, *tokens.shape, width)
    padded = triton.next_power_of_2(width)
    at_once = max(1, LOOKED_UP // padded)
    [stride_table], step = weight_strides([table])
    _look_up[(triton.cdiv(tokens.numel(), at_once), models)](
        table, tokens, rows, tokens.numel(), tokens.shape[1], stride_table, tokens.stride(0),
        STEP=step, WIDTH=width, PADDED=padded, ROWS=at_once, num_warps=4,
    )  # fmt: skip
    return rows


@triton.jit
def _add_rows(
    table, tokens, rows, order, count, models, width,
    stride_table, stride_row_model,
    WIDTH: tl.constexpr, MODELS: tl.constexpr, TOGETHER: tl.constexpr,
):  # fmt: skip
    # A program per place in the sorted order and some models; the first place of a token sums all rows of that token.
    # In associative recall nearly all tokens stand there once, so most programs add one row to another and do little
    # else. The two that stand in every document come first in the order, so that nothing waits for them in the end.
    parts = tl.cdiv(models, MODELS)
    place = tl.program_id(0) // parts
    at = tl.load(order + place)
    token = tl.load(tokens + at)
    if tl.load(tokens + tl.load(order + place - 1, place > 0, 0), place > 0, -1) == token:
        return
    model = (tl.program_id(0) % parts * MODELS + tl.arange(0, MODELS)).to(tl.int64)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    inside = (model < models) & (column < width)
    target = table + model * stride_table + token * width + column
    row = rows + model * stride_row_model + column
    held = tl.load(target, inside, 0.0).to(tl.float32)
    total = tl.load(row + at.to(tl.int64) * width, inside, 0.0).to(tl.float32)
    place += 1
    more = tl.load(tokens + tl.load(order + place, place < count, 0), place < count, -1) == token
    while more:  # adding what each thread has read itself
        places = place + tl.arange(0, TOGETHER)
        each = tl.load(order + places, places < count, 0)
        mine = tl.load(tokens + each, places < count, -1) == token
        part = row[None, :, :] + each.to(tl.int64)[:, None, None] * width
        total += tl.sum(tl.load(part, mine[:, None, None] & inside[None, :, :], 0.0).to(tl.float32), 0)
        place += TOGETHER
        more = tl.sum(mine.to(tl.int32), 0) == TOGETHER
    tl.store(target, (held + total).to(table.dtype.element_ty), inside)


@triton.jit
def _add_rows_of_few(
    table, tokens, rows, width, stride_table, stride_row_model,
    COUNT: tl.constexpr, PLACES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    # A program per token, model and some columns goes through all places and takes the rows of its token.
    token, model = tl.program_id(0), tl.program_id(1).to(tl.int64)
    columns = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < width
    total = tl.zeros((PLACES, COLUMNS), tl.float32)
    for start in range(0, COUNT, PLACES):
        place = start + tl.arange(0, PLACES)
        mine = tl.load(tokens + place, place < COUNT, -1) == token
        part = rows + model * stride_row_model + place.to(tl.int64)[:, None] * width + columns[None, :]
        total += tl.load(part, mine[:, None] & inside[None, :], 0.0).to(tl.float32)
    target = table + model * stride_table + token * width + columns
    added = tl.load(target, inside, 0.0).to(tl.float32) + tl.sum(total, 0)
    tl.store(target, added.to(table.dtype.element_ty), inside)


def add_rows(table: Tensor, tokens: Tensor, rows: Tensor, order: Tensor) -> None:
    models, vocabulary, width = table.shape
    rows, tokens = rows.contiguous(), tokens.contiguous()
    if len(tokens) >= OFTEN * vocabulary:
        _add_rows_of_few[(vocabulary, models, triton.cdiv(width, COLUMNS))](
            table, tokens, rows, width, table.stride(0), rows.stride(0),
            COUNT=len(tokens), PLACES=PLACES, COLUMNS=COLUMNS, num_warps=4,
        )  # fmt: skip
        return
    padded = triton.next_power_of_2(width)
    models_at_once = max(1, ADDED // padded)  # however many there are: sums are then the same to the last bit
    _add_rows[(len(tokens) * triton.cdiv(models, models_at_once),)](
        table, tokens, rows, order, len(tokens), models, width, table.stride(0), rows.stride(0),
        WIDTH=padded, MODELS=models_at_once, TOGETHER=TOGETHER, num_warps=ADDING_WARPS,
    )  # fmt: skip


@triton.jit
def _adamw(
    weights, first, second, grads, rates, decays, factors,
    BLOCKS: tl.constexpr, STARTS: tl.constexpr, SIZES: tl.constexpr, STRIDES: tl.constexpr, COUNT: tl.constexpr,
    ROW: tl.constexpr, BETA1: tl.constexpr, BETA2: tl.constexpr, EPSILON: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    model, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    # The last gradient that begins with this block or before it.
    grad, begins, start, size, stride = grads[0], BLOCKS[0], STARTS[0], SIZES[0], STRIDES[0]
    for i in tl.static_range(1, COUNT):
        reached = block >= BLOCKS[i]
        grad, begins = tl.where(reached, grads[i], grad), tl.where(reached, BLOCKS[i], begins)
        start, size = tl.where(reached, STARTS[i], start), tl.where(reached, SIZES[i], size)
        stride = tl.where(reached, STRIDES[i], stride)
    at = (block - begins) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    rate = tl.load(rates + model)
    schedule, step_factor, second_factor = tl.load(factors), tl.load(factors + 1), tl.load(factors + 2)
    here = model * ROW + start + at
    g = tl.load(grad + model * stride + at, inside, 0.0).to(tl.float32)
    m = tl.load(first + here, inside, 0.0).to(tl.float32)
    v = tl.load(second + here, inside, 0.0).to(tl.float32)
    w = tl.load(weights + here, inside, 0.0).to(tl.float32)
    m += (g - m) * (1 - BETA1)
    v = v * BETA2 + g * g * (1 - BETA2)
    w *= 1 - rate * schedule * tl.load(decays + model)
    w -= m / (tl.sqrt(v) * second_factor + EPSILON) * (rate * step_factor)
    tl.store(first + here, m.to(first.dtype.element_ty), inside)
    tl.store(second + here, v.to(second.dtype.element_ty), inside)
    tl.store(weights + here, w.to(weights.dtype.element_ty), inside)


def adamw(
    weights: Tensor, first: Tensor, second: Tensor, rates: Tensor, decays: Tensor, factors: Tensor,
    beta1: float, beta2: float, epsilon: float, *grads: Tensor,
) -> None:  # fmt: skip
    for pieces in _launches(weights, grads):
        found, starts, sizes, strides = zip(*pieces, strict=True)
        blocks = [triton.cdiv(size, BLOCK) for size in sizes]
        _adamw[(sum(blocks), len(weights))](
            weights, first, second, found, rates, decays, factors,
            BLOCKS=tuple(accumulate(blocks[:-1], initial=0)), STARTS=starts, SIZES=sizes, STRIDES=strides,
            COUNT=len(found), ROW=weights.stride(0), BETA1=beta1, BETA2=beta2, EPSILON=epsilon, BLOCK=BLOCK,
            num_warps=WARPS,
        )  # fmt: skip


def _launches(weights: Tensor, grads: Sequence[Tensor]) -> list[list[Piece]]:
    """The gradients in as few launches as can be. One that does not begin and end at multiples of 16 bytes would keep
    others beside it from being read so much at a time."""
    pieces: list[Piece] = []
    start = 0
    for grad in grads:
        grad = whole_rows(grad)
        pieces.append((grad, start, grad[0].numel(), grad.stride(0)))
        start += grad[0].numel()
    apart = [piece for piece in pieces if any(number % ALIGNED for number in (*piece[1:], weights.stride(0)))]
    together = [piece for piece in pieces if not any(piece is other for other in apart)]
    return [
        kind[first : first + MOST_AT_ONCE] for kind in (together, apart) for first in range(0, len(kind), MOST_AT_ONCE)
    ]
