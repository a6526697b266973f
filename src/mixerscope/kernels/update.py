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
ADDED, TOGETHER = 256, 16
"""Numbers of one token, of one or several models, that a program adds to, and rows that it sums in one go."""
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
    place = tl.program_id(0)
    places = place - 1 + tl.arange(0, TOGETHER)
    known = (places >= 0) & (places < count)
    at = tl.load(order + places, known, 0)
    theirs = tl.load(tokens + at, known, -1)
    token = tl.sum(tl.where(places == place, theirs, 0), 0)
    if tl.sum(tl.where(places == place - 1, theirs, 0), 0) == token:
        return
    model = (tl.program_id(1) * MODELS + tl.arange(0, MODELS)).to(tl.int64)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    inside = (model < models) & (column < width)
    target = table + model * stride_table + token * width + column
    held = tl.load(target, inside, 0.0).to(tl.float32)
    mine = theirs == token
    total = _sum_of_rows(rows + model * stride_row_model + column, at, mine, inside, width)
    start = place - 1 + TOGETHER
    more = tl.sum(mine.to(tl.int32), 0) == TOGETHER - 1
    while more:
        places = start + tl.arange(0, TOGETHER)
        at = tl.load(order + places, places < count, 0)
        mine = (places < count) & (tl.load(tokens + at) == token)
        total += _sum_of_rows(rows + model * stride_row_model + column, at, mine, inside, width)
        start += TOGETHER
        more = tl.sum(mine.to(tl.int32), 0) == TOGETHER
    tl.store(target, (held + total).to(table.dtype.element_ty), inside)


@triton.jit
def _sum_of_rows(row_at, at, mine, inside, width):
    """Of rows `at` those that are `mine`, of some models [m, d]."""
    part = row_at[None, :, :] + at.to(tl.int64)[:, None, None] * width
    return tl.sum(tl.load(part, mine[:, None, None] & inside[None, :, :], 0.0).to(tl.float32), 0)


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
    models_at_once = min(triton.next_power_of_2(models), max(1, ADDED // padded))
    _add_rows[(len(tokens), triton.cdiv(models, models_at_once))](
        table, tokens, rows, order, len(tokens), models, width, table.stride(0), rows.stride(0),
        WIDTH=padded, MODELS=models_at_once, TOGETHER=TOGETHER, num_warps=4,
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
