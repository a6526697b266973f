# pyright: reportGeneralTypeIssues=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""The head and its loss as Triton kernels: the counterparts of the two operators in `training/head.py`.

A program holds a block of rows of one model and walks over a part of the vocabulary, some tokens at a time; logits
are made from the table where they are needed, forward and backward, and never written out. What the parts contribute
to a row is written out by each and combined afterwards, so that results do not depend on the order of programs.
Shapes: x [m, n, d]; table [m, v, d]; targets [m, n]; sums of exponentials, as logarithms, [m, n].
"""

# pyright: reportArgumentType=false, reportOperatorIssue=false, reportIndexIssue=false, reportMissingImports=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from mixerscope.kernels.layout import whole_rows
from mixerscope.kernels.products import three_products
from mixerscope.kernels.sums import summed

TILE = 4096
"""Numbers of the table that are multiplied with at a time, as 16 or 32 tokens: the backward pass holds several copies
of them in shared memory and in registers, and two programs should fit beside each other, one loading, one computing."""
TILE_FORWARD = 8192
"""The forward pass holds fewer: at width 256 it took 90 us with 32 tokens and 112 with 16 (35 models)."""
MOST_ROWS = 32
"""That a program holds; more are several programs forward, and backward too where the vocabulary is small."""
SMALL = 128
"""Tokens of a vocabulary whose gradient each block of rows may write out for itself: four times as much as of x. For
larger ones blocks are one launch after the other, each adding to the table's gradient, which for a state that is asked
for at 1,500 places would be fifty launches of a few programs each."""
MOST_PARTS, MOST_PARTS_IF_WIDE = 80, 37
"""Of the vocabulary: enough to fill a GPU with a few models, and few enough for gradients of x from each. If a model is
wider than `WIDE`, a program takes up so much of a GPU that more of them would only queue."""
WIDE = 64
SMALLEST = 16
"""Side of a matrix that tensor cores take."""
THREE_FROM, THREE_TO = 33, 64
"""Widths at which exact products are three of tensor cores: at 64 the backward pass then takes a third of the
instructions. Narrower ones would take as many, and two and a half times the registers; wider ones do not fit."""


def forward(x: Tensor, table: Tensor, targets: Tensor, unscored: int, exact: bool) -> tuple[Tensor, Tensor]:
    """The loss [m] and each row's logarithm of the sum of exponentials [m, n], in float32."""
    x, table, targets = x.contiguous(), whole_rows(table), whole_rows(targets)
    (models, rows, _), parts = x.shape, _parts(table, TILE_FORWARD)[0]
    # Of each part: the logarithm of its sum, and the target's logit, which is zero in all parts but its own.
    sums, picked = (x.new_empty(parts, models, rows, dtype=torch.float32) for _ in range(2))
    loss, total = x.new_empty(models, dtype=torch.float32), x.new_empty(models, rows, dtype=torch.float32)
    block = _padded(min(rows, MOST_ROWS))
    _head_forward[(parts, models, triton.cdiv(rows, block))](
        x, table, targets, sums, picked, rows, targets.stride(0), UNSCORED=unscored,
        **_sizes(x, table, exact, TILE_FORWARD), ROWS=block,
    )  # fmt: skip
    at_once = min(triton.next_power_of_2(rows), max(block, TILE // triton.next_power_of_2(parts)))
    _combine[(models,)](
        sums, picked, targets, loss, total, models, rows, parts, targets.stride(0), UNSCORED=unscored,
        ROWS=at_once, BLOCKS=triton.cdiv(rows, at_once), PARTS=triton.next_power_of_2(parts), num_warps=4,
    )  # fmt: skip
    return loss, total


def backward(
    grad: Tensor, x: Tensor, table: Tensor, targets: Tensor, total: Tensor, unscored: int, exact: bool
) -> tuple[Tensor, Tensor]:
    """The gradients of x and of the table."""
    grad, x, total = grad.contiguous(), x.contiguous(), total.contiguous()
    table, targets = whole_rows(table), whole_rows(targets)
    (models, rows, _), parts = x.shape, _parts(table, TILE)[0]
    of_x = x.new_empty(parts, *x.shape, dtype=torch.float32)
    block = _padded(min(rows, MOST_ROWS))
    blocks = triton.cdiv(rows, block)
    side_by_side = blocks if table.shape[1] <= SMALL else 1
    # What is added up later should not be rounded before.
    wide = torch.float32 if blocks > 1 else table.dtype
    of_table = x.new_empty(side_by_side, *table.shape, dtype=wide)
    for start in range(0, rows, side_by_side * block):
        _head_backward[(parts, models, side_by_side)](
            grad, x, table, targets, total, of_x, of_table, start, rows, models, targets.stride(0), UNSCORED=unscored,
            **_sizes(x, table, exact, TILE), ROWS=block, ALL=triton.next_power_of_2(rows), ADD=start > 0,
        )  # fmt: skip
    [of_x] = summed([of_x[None]], x.dtype)
    return of_x.view(x.shape), (of_table[0] if side_by_side == 1 else of_table.sum(0)).to(table.dtype)


def _padded(size: int) -> int:
    return max(SMALLEST, triton.next_power_of_2(size))


def _parts(table: Tensor, tile: int) -> tuple[int, int, int]:
    """How many parts the vocabulary has, how many tiles a part has, and how many tokens a tile."""
    tokens = min(32, max(SMALLEST, tile // _padded(table.shape[2])), _padded(table.shape[1]))
    all_tiles = triton.cdiv(table.shape[1], tokens)
    tiles = triton.cdiv(all_tiles, MOST_PARTS_IF_WIDE if table.shape[2] > WIDE else MOST_PARTS)
    return triton.cdiv(all_tiles, tiles), tiles, tokens


def _sizes(x: Tensor, table: Tensor, exact: bool, tile: int) -> dict:
    _, tiles, tokens = _parts(table, tile)
    width = x.shape[-1]
    # That models begin at multiples of 16 bytes, the compiler has to be told: only then does it read so much at once.
    step = 4 if table.stride(0) % 4 == 0 else 1
    return {
        "vocabulary": table.shape[1], "stride_table": table.stride(0) // step, "STEP": step,
        "WIDTH": width, "PADDED": _padded(width), "TOKENS": tokens, "TILES": tiles,
        # What is bfloat16 loses nothing as tf32.
        "PRODUCTS": ("three" if THREE_FROM <= width <= THREE_TO else "ieee")
        if exact and x.dtype == torch.float32
        else "tf32",
        # A third less time than with eight, timed at width 256; products without tensor cores need more threads.
        "num_warps": 8 if exact and width > WIDE else 4, "num_stages": 3,
    }  # fmt: skip


# Masks are always tensors and loop bounds always constants: what Triton's interpreter does not take is not used.


@triton.jit
def _product(left, right, PRODUCTS: tl.constexpr):
    return three_products(left, right) if PRODUCTS == "three" else tl.dot(left, right, input_precision=PRODUCTS)


@triton.jit
def _head_forward(
    x_at, table_at, targets_at, sums_at, picked_at, rows, stride_targets, vocabulary, stride_table,
    UNSCORED: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr,
    TOKENS: tl.constexpr, TILES: tl.constexpr, PRODUCTS: tl.constexpr,
):  # fmt: skip
    part, model = tl.program_id(0), tl.program_id(1).to(tl.int64)
    row = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, PADDED)
    real_row, real_column = row < rows, column < WIDTH
    cell = (model * rows + row)[:, None] * WIDTH + column[None, :]
    x = tl.load(x_at + cell, real_row[:, None] & real_column[None, :], 0.0).to(tl.float32)
    target = tl.load(targets_at + model * stride_targets + row, real_row, UNSCORED)
    most = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    picked = tl.zeros((ROWS,), tl.float32)
    for tile in range(TILES):
        token = (part * TILES + tile) * TOKENS + tl.arange(0, TOKENS)
        real_token = token < vocabulary
        weight_at = table_at + model * stride_table * STEP + token[:, None] * WIDTH + column[None, :]
        weights = tl.load(weight_at, real_token[:, None] & real_column[None, :], 0.0).to(tl.float32)
        logits = _product(x, tl.trans(weights), PRODUCTS)
        logits = tl.where(real_token[None, :], logits, float("-inf"))
        picked += tl.sum(tl.where(token[None, :] == target[:, None], logits, 0.0), 1)
        # The first tile of a part has a real token, so this is finite wherever the logits are.
        larger = tl.maximum(most, tl.max(logits, 1))
        total = total * tl.exp(most - larger) + tl.sum(tl.exp(logits - larger[:, None]), 1)
        most = larger
    out = (part * tl.num_programs(1) + model) * rows + row
    tl.store(sums_at + out, most + tl.log(total), real_row)
    tl.store(picked_at + out, picked, real_row)


@triton.jit
def _combine(
    sums_at, picked_at, targets_at, loss_at, total_at, models, rows, parts, stride_targets,
    UNSCORED: tl.constexpr, ROWS: tl.constexpr, BLOCKS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS)
    losses = tl.zeros((ROWS,), tl.float32)
    count = tl.zeros((ROWS,), tl.float32)
    for block in range(BLOCKS):
        row = block * ROWS + tl.arange(0, ROWS)
        real_row, real_part = row < rows, part < parts
        inside = real_part[:, None] & real_row[None, :]
        cell = (part[:, None] * models + model) * rows + row[None, :]
        sums = tl.where(real_part[:, None], tl.load(sums_at + cell, inside, 0.0), float("-inf"))
        most = tl.max(sums, 0)
        total = most + tl.log(tl.sum(tl.exp(sums - most[None, :]), 0))
        tl.store(total_at + model * rows + row, total, real_row)
        target = tl.load(targets_at + model * stride_targets + row, real_row, UNSCORED)
        scored = target != UNSCORED
        losses += tl.where(scored, total - tl.sum(tl.load(picked_at + cell, inside, 0.0), 0), 0.0)
        count += scored.to(tl.float32)
    number = tl.sum(count, 0)
    mean = tl.sum(losses, 0) / tl.maximum(number, 1.0)
    tl.store(loss_at + model, tl.where(number > 0, mean, float("nan")))


@triton.jit
def _head_backward(
    grad_at, x_at, table_at, targets_at, total_at, of_x_at, of_table_at, start, rows, models, stride_targets,
    vocabulary, stride_table,
    UNSCORED: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr,
    ALL: tl.constexpr, TOKENS: tl.constexpr, TILES: tl.constexpr, ADD: tl.constexpr, PRODUCTS: tl.constexpr,
):  # fmt: skip
    part, model, block = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    row = start + block * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, PADDED)
    real_row, real_column = row < rows, column < WIDTH
    inside = real_row[:, None] & real_column[None, :]
    x = tl.load(x_at + (model * rows + row)[:, None] * WIDTH + column[None, :], inside, 0.0).to(tl.float32)
    target = tl.load(targets_at + model * stride_targets + row, real_row, UNSCORED)
    total = tl.load(total_at + model * rows + row, real_row, 0.0)
    every = tl.arange(0, ALL)
    all_targets = tl.load(targets_at + model * stride_targets + every, every < rows, UNSCORED)
    count = tl.sum((all_targets != UNSCORED).to(tl.float32), 0)
    scale = tl.where(target != UNSCORED, tl.load(grad_at + model) / tl.maximum(count, 1.0), 0.0)
    of_x = tl.zeros((ROWS, PADDED), tl.float32)
    for tile in range(TILES):
        token = (part * TILES + tile) * TOKENS + tl.arange(0, TOKENS)
        real_token = token < vocabulary
        real = real_token[:, None] & real_column[None, :]
        weight_at = table_at + model * stride_table * STEP + token[:, None] * WIDTH + column[None, :]
        weights = tl.load(weight_at, real, 0.0).to(tl.float32)
        logits = _product(x, tl.trans(weights), PRODUCTS)
        logits = tl.where(real_token[None, :], logits, float("-inf"))
        of_logits = tl.exp(logits - total[:, None]) - (token[None, :] == target[:, None]).to(tl.float32)
        of_logits *= scale[:, None]
        of_table = _product(tl.trans(of_logits), x, PRODUCTS)
        of_x += _product(of_logits, weights, PRODUCTS)
        out = of_table_at + (block * models + model) * vocabulary * WIDTH + token[:, None] * WIDTH + column[None, :]
        if ADD:
            of_table += tl.load(out, real, 0.0)
        tl.store(out, of_table.to(of_table_at.dtype.element_ty), real)
    out = of_x_at + ((part * models + model) * rows + row)[:, None] * WIDTH + column[None, :]
    tl.store(out, of_x, inside)
