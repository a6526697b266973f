# pyright: reportGeneralTypeIssues=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""x + attention(norm(x)) as Triton kernels: the counterparts of the two operators in `model/residual_attention.py`.

Forward a program holds a document of one model and goes through its heads; queries, keys, values and what heads give
are kept, patterns are not. Backward a program has a document and a head and makes its pattern again; what that gives to
queries, keys and values is written out, and a second launch, over rows of whatever document, goes through one of the
four projections, where the gradients of weights are. The norm is gone through last.
"""

# pyright: reportArgumentType=false, reportOperatorIssue=false, reportIndexIssue=false, reportMissingImports=false

import triton
import triton.language as tl
from torch import Tensor

from mixerscope.kernels.layout import whole_rows
from mixerscope.kernels.residual import blocks_of_rows, finished, normed, padded, precision, weight_strides

WARPS, PROJECTION_WARPS = 4, 4
PROJECTIONS = 4
"""Queries, keys, values, and what heads give."""
MOST_ROWS, MOST_ROWS_IF_EXACT = 64, 32
"""That the second launch backward has at a time. Exact products hold their factors in several parts."""


def forward(x: Tensor, *arguments: Tensor | float) -> tuple[Tensor, Tensor]:
    """x + attention(norm(x)) [m, b, t, d] for x of that shape, and what is kept [m, b, t, 4, d].

    See `plain_residual_attention` for other arguments.
    """
    *weights, heads, alibi, epsilon, exact = arguments
    x, weights = x.contiguous(), [whole_rows(weight) for weight in weights]
    out, kept = x.new_empty(x.shape), x.new_empty(*x.shape[:3], 4, x.shape[3])
    strides, step = weight_strides(weights)
    _attention_forward[(x.shape[1], x.shape[0])](
        x, *weights, out, kept, *strides, STEP=step, EPSILON=epsilon, ALIBI=alibi, **_sizes(x, heads, exact),
        num_warps=WARPS, num_stages=1,
    )  # fmt: skip
    return out, kept


def backward(grad: Tensor, x: Tensor, *arguments: Tensor | float) -> tuple[Tensor, ...]:
    """The gradients of x and of the five weights."""
    *weights, kept, heads, alibi, epsilon, exact = arguments
    grad, x, kept, weights = grad.contiguous(), x.contiguous(), kept.contiguous(), [whole_rows(w) for w in weights]
    models, documents, length, width = x.shape
    (*others, stride_out, _), step = weight_strides(weights)
    of_qkv = x.new_empty(models, documents, length, 3, width)
    sizes = _sizes(x, heads, exact)
    _heads_backward[(documents * heads, models)](
        grad, weights[3], kept, of_qkv, stride_out, STEP=step, ALIBI=alibi, **sizes, num_warps=WARPS, num_stages=1
    )
    rows, most = documents * length, MOST_ROWS_IF_EXACT if exact else MOST_ROWS
    block, blocks, count = blocks_of_rows(rows, most, PROJECTIONS * models)
    numbers = sum(weight[0].numel() for weight in weights) + 2 * 2 * width
    of_n, parts = x.new_empty(3, *x.shape), x.new_empty(models, count, numbers)
    _projections_backward[(count, PROJECTIONS, models)](
        grad, x, *weights[:3], kept, of_qkv, of_n, parts, rows, numbers, *others,
        STEP=step, WIDTH=width, PADDED=padded(width), ROWS=block, BLOCKS=blocks, EPSILON=epsilon,
        PRECISION=precision(exact), num_warps=PROJECTION_WARPS, num_stages=1,
    )  # fmt: skip
    of_x, *found = finished(parts, of_n.flatten(2, 3), grad, x, weights, epsilon)
    return of_x.view(x.shape), *found


def _sizes(x: Tensor, heads: int, exact: bool) -> dict:
    length, width = x.shape[2:]
    return {
        "LENGTH": length, "ROWS": padded(length), "WIDTH": width, "PADDED": padded(width), "HEADS": heads,
        "CHANNELS": padded(width // heads), "SCALE": (width // heads) ** -0.5, "PRECISION": precision(exact),
    }  # fmt: skip


@triton.jit
def _document(at, number, t, column, LENGTH: tl.constexpr, WIDTH: tl.constexpr):
    """Pointers to the stream of a document, and which of them are real."""
    inside = (t < LENGTH)[:, None] & (column < WIDTH)[None, :]
    return at + (number * LENGTH + t)[:, None] * WIDTH + column[None, :], inside


@triton.jit
def _head_weight(qkv_at, which, head, channel, column, WIDTH: tl.constexpr, HEADS: tl.constexpr):
    """Pointers to what makes the queries (0), keys (1) or values (2) of a head [c, d], and which of them are real."""
    each: tl.constexpr = WIDTH // HEADS
    row = which * WIDTH + head * each + channel
    return qkv_at + row[:, None] * WIDTH + column[None, :], (channel < each)[:, None] & (column < WIDTH)[None, :]


@triton.jit
def _of_head(at, number, t, which, head, channel, PARTS: tl.constexpr, LENGTH: tl.constexpr, WIDTH: tl.constexpr,
             HEADS: tl.constexpr):  # fmt: skip
    """Pointers to the queries (0), keys (1), values (2) or results (3) of a head [t, c], and which of them are real."""
    each: tl.constexpr = WIDTH // HEADS
    row = (number * LENGTH + t) * PARTS + which
    real = (t < LENGTH)[:, None] & (channel < each)[None, :]
    return at + row[:, None] * WIDTH + (head * each + channel)[None, :], real


@triton.jit
def _out_weight(out_at, head, channel, column, WIDTH: tl.constexpr, HEADS: tl.constexpr):
    """Pointers to what a head's channels are written to the stream with [d, c], and which of them are real."""
    each: tl.constexpr = WIDTH // HEADS
    real = (column < WIDTH)[:, None] & (channel < each)[None, :]
    return out_at + column[:, None] * WIDTH + (head * each + channel)[None, :], real


@triton.jit
def _pattern(q, k, t, head, SCALE: tl.constexpr, HEADS: tl.constexpr, ALIBI: tl.constexpr, P: tl.constexpr):
    """softmax_j(q_i . k_j / sqrt(c)) [t, t] over the positions up to i."""
    scores = tl.dot(q, tl.trans(k), input_precision=P) * SCALE
    if ALIBI:
        slope = tl.exp2(-8.0 * (head + 1) / HEADS)
        scores -= slope * (t[:, None] - t[None, :]).to(tl.float32)
    scores = tl.where(t[:, None] >= t[None, :], scores, float("-inf"))
    above = tl.exp(scores - tl.max(scores, 1)[:, None])
    return above / tl.sum(above, 1)[:, None]


@triton.jit
def _projected(
    n, qkv_at, kept_at, number, t, which, head, channel, column,
    LENGTH: tl.constexpr, WIDTH: tl.constexpr, HEADS: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Queries, keys or values of a head [t, c], which are kept."""
    from_weight, real = _head_weight(qkv_at, which, head, channel, column, WIDTH, HEADS)
    found = tl.dot(n, tl.trans(tl.load(from_weight, real, 0.0)), input_precision=P)
    to_kept, real = _of_head(kept_at, number, t, which, head, channel, 4, LENGTH, WIDTH, HEADS)
    tl.store(to_kept, found, real)
    return found


@triton.jit
def _attention_forward(
    x_at, gain_at, shift_at, qkv_at, out_at, out_bias_at, y_at, kept_at,
    stride_gain, stride_shift, stride_qkv, stride_out, stride_out_bias,
    STEP: tl.constexpr, LENGTH: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr,
    HEADS: tl.constexpr, CHANNELS: tl.constexpr, SCALE: tl.constexpr, ALIBI: tl.constexpr, EPSILON: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(1).to(tl.int64)
    t, column, channel = tl.arange(0, ROWS), tl.arange(0, PADDED), tl.arange(0, CHANNELS)
    real_column = column < WIDTH
    number = model * tl.num_programs(0) + tl.program_id(0)
    from_x, inside = _document(x_at, number, t, column, LENGTH, WIDTH)
    x = tl.load(from_x, inside, 0.0)
    gain = tl.load(gain_at + model * stride_gain * STEP + column, real_column, 0.0)
    shift = tl.load(shift_at + model * stride_shift * STEP + column, real_column, 0.0)
    n = normed(x, real_column, WIDTH, EPSILON)[0] * gain[None, :] + shift[None, :]
    total = x + tl.load(out_bias_at + model * stride_out_bias * STEP + column, real_column, 0.0)[None, :]
    qkv_at, out_at = qkv_at + model * stride_qkv * STEP, out_at + model * stride_out * STEP
    for head in range(HEADS):
        q = _projected(n, qkv_at, kept_at, number, t, 0, head, channel, column, LENGTH, WIDTH, HEADS, PRECISION)
        k = _projected(n, qkv_at, kept_at, number, t, 1, head, channel, column, LENGTH, WIDTH, HEADS, PRECISION)
        pattern = _pattern(q, k, t, head, SCALE, HEADS, ALIBI, PRECISION)
        v = _projected(n, qkv_at, kept_at, number, t, 2, head, channel, column, LENGTH, WIDTH, HEADS, PRECISION)
        mixed = tl.dot(pattern, v, input_precision=PRECISION)
        to_kept, real = _of_head(kept_at, number, t, 3, head, channel, 4, LENGTH, WIDTH, HEADS)
        tl.store(to_kept, mixed, real)
        from_out, real = _out_weight(out_at, head, channel, column, WIDTH, HEADS)
        total = tl.dot(mixed, tl.trans(tl.load(from_out, real, 0.0)), total, input_precision=PRECISION)
    to_y, inside = _document(y_at, number, t, column, LENGTH, WIDTH)
    tl.store(to_y, total, inside)


@triton.jit
def _heads_backward(
    grad_at, out_at, kept_at, of_qkv_at, stride_out,
    STEP: tl.constexpr, LENGTH: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr,
    HEADS: tl.constexpr, CHANNELS: tl.constexpr, SCALE: tl.constexpr, ALIBI: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    model, head = tl.program_id(1).to(tl.int64), tl.program_id(0) % HEADS
    t, column, channel = tl.arange(0, ROWS), tl.arange(0, PADDED), tl.arange(0, CHANNELS)
    number = (model * tl.num_programs(0) + tl.program_id(0)) // HEADS
    from_grad, inside = _document(grad_at, number, t, column, LENGTH, WIDTH)
    from_out, real = _out_weight(out_at + model * stride_out * STEP, head, channel, column, WIDTH, HEADS)
    grad = tl.load(from_grad, inside, 0.0)
    of_mixed = tl.dot(grad, tl.load(from_out, real, 0.0), input_precision=PRECISION)
    from_q, real = _of_head(kept_at, number, t, 0, head, channel, 4, LENGTH, WIDTH, HEADS)
    q = tl.load(from_q, real, 0.0)
    k = tl.load(from_q + WIDTH, real, 0.0)
    v = tl.load(from_q + 2 * WIDTH, real, 0.0)
    pattern = _pattern(q, k, t, head, SCALE, HEADS, ALIBI, PRECISION)
    of_pattern = tl.dot(of_mixed, tl.trans(v), input_precision=PRECISION)
    of_scores = pattern * (of_pattern - tl.sum(pattern * of_pattern, 1)[:, None]) * SCALE
    to_q, real = _of_head(of_qkv_at, number, t, 0, head, channel, 3, LENGTH, WIDTH, HEADS)
    tl.store(to_q, tl.dot(of_scores, k, input_precision=PRECISION), real)
    tl.store(to_q + WIDTH, tl.dot(tl.trans(of_scores), q, input_precision=PRECISION), real)
    tl.store(to_q + 2 * WIDTH, tl.dot(tl.trans(pattern), of_mixed, input_precision=PRECISION), real)


@triton.jit
def _projections_backward(
    grad_at, x_at, gain_at, shift_at, qkv_at, kept_at, of_qkv_at, of_n_at, parts_at, rows, length,
    stride_gain, stride_shift, stride_qkv,
    STEP: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr, BLOCKS: tl.constexpr,
    EPSILON: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    part, which, model = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    column, channel = tl.arange(0, PADDED), tl.arange(0, PADDED)
    real_column = column < WIDTH
    parts_at = parts_at + (model * tl.num_programs(0) + part) * length
    # Behind the three contributions to the gradients of gain and shift.
    to_weight, real = _head_weight(parts_at + 3 * 2 * WIDTH, which, 0, channel, column, WIDTH, 1)
    of_weight = tl.zeros((PADDED, PADDED), tl.float32)
    if which < 3:
        gain = tl.load(gain_at + model * stride_gain * STEP + column, real_column, 0.0)
        shift = tl.load(shift_at + model * stride_shift * STEP + column, real_column, 0.0)
        from_weight, real = _head_weight(qkv_at + model * stride_qkv * STEP, which, 0, channel, column, WIDTH, 1)
        weight = tl.load(from_weight, real, 0.0)
        of_gain, of_shift = tl.zeros((PADDED,), tl.float32), tl.zeros((PADDED,), tl.float32)
        for block in range(BLOCKS):
            place, cell, inside = _cells(part * BLOCKS + block, model, rows, column, WIDTH, ROWS)
            unit_row = normed(tl.load(x_at + cell, inside, 0.0), real_column, WIDTH, EPSILON)[0]
            n = unit_row * gain[None, :] + shift[None, :]
            from_projected = of_qkv_at + (place * 3 + which)[:, None] * WIDTH + column[None, :]
            of_projected = tl.load(from_projected, inside, 0.0)
            of_weight = tl.dot(tl.trans(of_projected), n, of_weight, input_precision=PRECISION)
            of_n = tl.dot(of_projected, weight, input_precision=PRECISION)
            of_gain += tl.sum(of_n * unit_row, 0)
            of_shift += tl.sum(of_n, 0)
            tl.store(of_n_at + which * tl.num_programs(2).to(tl.int64) * rows * WIDTH + cell, of_n, inside)
        tl.store(parts_at + which * 2 * WIDTH + column, of_gain, real_column)
        tl.store(parts_at + (which * 2 + 1) * WIDTH + column, of_shift, real_column)
    else:
        of_out_bias = tl.zeros((PADDED,), tl.float32)
        for block in range(BLOCKS):
            place, cell, inside = _cells(part * BLOCKS + block, model, rows, column, WIDTH, ROWS)
            grad = tl.load(grad_at + cell, inside, 0.0)
            mixed = tl.load(kept_at + (place * 4 + 3)[:, None] * WIDTH + column[None, :], inside, 0.0)
            of_weight = tl.dot(tl.trans(grad), mixed, of_weight, input_precision=PRECISION)
            of_out_bias += tl.sum(grad, 0)
        tl.store(parts_at + length - WIDTH + column, of_out_bias, real_column)
    tl.store(to_weight, of_weight, real)


@triton.jit
def _cells(block, model, rows, column, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """Which rows of all models a block has, where their numbers are, and which of them are real."""
    row = block * ROWS + tl.arange(0, ROWS)
    place = model * rows + row
    return place, place[:, None] * WIDTH + column[None, :], (row < rows)[:, None] & (column < WIDTH)[None, :]
