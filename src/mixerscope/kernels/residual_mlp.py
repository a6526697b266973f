# pyright: reportGeneralTypeIssues=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""x + mlp(norm(x)) as Triton kernels: the counterparts of the two operators in `model/residual_mlp.py`.

A program holds some rows of one model and goes through the hidden units in chunks, so that nothing of them is written
out; the backward pass makes them again. There a program has one chunk, and goes through some blocks of rows: the five
products of a chunk wait for each other, and programs beside it fill the time.
"""

# pyright: reportArgumentType=false, reportOperatorIssue=false, reportIndexIssue=false, reportMissingImports=false

import triton
import triton.language as tl
from torch import Tensor

from mixerscope.kernels.layout import whole_rows
from mixerscope.kernels.residual import blocks_of_rows, finished, normed, padded, precision, weight_strides

MOST_ROWS, MOST_ROWS_IF_EXACT = 64, 32
"""Of a block forward. Exact products hold their factors in several parts, which would not fit into registers."""
BACKWARD_ROWS = 32
"""Of a block backward: with more, two programs would not fit beside each other."""
CHUNK = 64
"""Hidden units at a time."""
WARPS, BACKWARD_WARPS, BACKWARD_WARPS_IF_EXACT = 8, 4, 8
STAGES = 1
"""Of the loop over chunks: whether the next one's weights are read ahead."""


def forward(x: Tensor, *arguments: Tensor | float) -> Tensor:
    """x + mlp(norm(x)) [m, n, d] for x [m, n, d]; see `plain_residual_mlp` for the other arguments."""
    *weights, epsilon, exact = arguments
    x, weights = x.contiguous(), [whole_rows(weight) for weight in weights]
    out = x.new_empty(x.shape)
    sizes = _sizes(x, weights, epsilon, exact)
    strides, _ = weight_strides(weights)
    grid = (triton.cdiv(x.shape[1], sizes["ROWS"]), x.shape[0])
    _mlp_forward[grid](x, *weights, out, x.shape[1], *strides, **sizes)
    return out


def backward(grad: Tensor, x: Tensor, *arguments: Tensor | float) -> tuple[Tensor, ...]:
    """The gradients of x and of the six weights."""
    *weights, epsilon, exact = arguments
    grad, x, weights = grad.contiguous(), x.contiguous(), [whole_rows(weight) for weight in weights]
    models, rows, width = x.shape
    sizes = _sizes(x, weights, epsilon, exact)
    sizes["num_warps"] = BACKWARD_WARPS_IF_EXACT if exact else BACKWARD_WARPS
    splits = triton.cdiv(sizes["HIDDEN"], sizes["CHUNK"])
    sizes["ROWS"], sizes["BLOCKS"], count = blocks_of_rows(rows, BACKWARD_ROWS, splits * models)
    length = sum(weight[0].numel() for weight in weights) + (splits - 1) * 2 * width
    of_n, parts = x.new_empty(splits, *x.shape), x.new_empty(models, count, length)
    strides, _ = weight_strides(weights)
    _mlp_backward[(count, splits, models)](grad, x, *weights[:5], of_n, parts, rows, length, *strides[:5], **sizes)
    return finished(parts, of_n, grad, x, weights, epsilon)


def _sizes(x: Tensor, weights: list[Tensor], epsilon: float, exact: bool) -> dict:
    rows, width = x.shape[1:]
    hidden = weights[2].shape[1]
    most = MOST_ROWS_IF_EXACT if exact else MOST_ROWS
    return {
        "STEP": weight_strides(weights)[1], "WIDTH": width, "HIDDEN": hidden, "PADDED": padded(width),
        "ROWS": padded(min(rows, most)), "CHUNK": min(CHUNK, padded(hidden)), "EPSILON": epsilon,
        "PRECISION": precision(exact), "num_warps": WARPS, "num_stages": STAGES,
    }  # fmt: skip


@triton.jit
def _gelu(h):
    """The exact one, and its derivative."""
    below = 0.5 * (1.0 + tl.erf(h * 0.7071067811865476))
    return h * below, below + h * tl.exp(-0.5 * h * h) * 0.3989422804014327


@triton.jit
def _rows_of(at, model, row, rows, column, WIDTH: tl.constexpr):
    """Pointers to rows of a model, and which of them are real."""
    inside = (row < rows)[:, None] & (column < WIDTH)[None, :]
    return at + (model * rows + row)[:, None] * WIDTH + column[None, :], inside


@triton.jit
def _chunk(up_at, up_bias_at, down_at, unit, column, WIDTH: tl.constexpr, HIDDEN: tl.constexpr):
    """The weights of some hidden units: into them [c, d] and [c], and out of them [d, c]."""
    real_unit, real_column = unit < HIDDEN, column < WIDTH
    up = tl.load(up_at + unit[:, None] * WIDTH + column[None, :], real_unit[:, None] & real_column[None, :], 0.0)
    down = tl.load(down_at + column[:, None] * HIDDEN + unit[None, :], real_column[:, None] & real_unit[None, :], 0.0)
    return up, tl.load(up_bias_at + unit, real_unit, 0.0), down


@triton.jit
def _store_chunk(out_at, of_up, of_up_bias, of_down, unit, column, WIDTH: tl.constexpr, HIDDEN: tl.constexpr):
    """The same for their gradients, which lie one after the other."""
    real_unit, real_column = unit < HIDDEN, column < WIDTH
    to_up = out_at + unit[:, None] * WIDTH + column[None, :]
    tl.store(to_up, of_up, real_unit[:, None] & real_column[None, :])
    tl.store(out_at + HIDDEN * WIDTH + unit, of_up_bias, real_unit)
    to_down = out_at + HIDDEN * (WIDTH + 1) + column[:, None] * HIDDEN + unit[None, :]
    tl.store(to_down, of_down, real_column[:, None] & real_unit[None, :])


@triton.jit
def _mlp_forward(
    x_at, gain_at, shift_at, up_at, up_bias_at, down_at, down_bias_at, out_at, rows,
    stride_gain, stride_shift, stride_up, stride_up_bias, stride_down, stride_down_bias,
    STEP: tl.constexpr, WIDTH: tl.constexpr, HIDDEN: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr,
    CHUNK: tl.constexpr, EPSILON: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(1).to(tl.int64)
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, PADDED)
    real_column = column < WIDTH
    from_x, inside = _rows_of(x_at, model, row, rows, column, WIDTH)
    x = tl.load(from_x, inside, 0.0)
    gain = tl.load(gain_at + model * stride_gain * STEP + column, real_column, 0.0)
    shift = tl.load(shift_at + model * stride_shift * STEP + column, real_column, 0.0)
    n = normed(x, real_column, WIDTH, EPSILON)[0] * gain[None, :] + shift[None, :]
    total = x + tl.load(down_bias_at + model * stride_down_bias * STEP + column, real_column, 0.0)[None, :]
    up_at, up_bias_at = up_at + model * stride_up * STEP, up_bias_at + model * stride_up_bias * STEP
    down_at = down_at + model * stride_down * STEP
    for start in range(0, HIDDEN, CHUNK):
        unit = start + tl.arange(0, CHUNK)
        up, up_bias, down = _chunk(up_at, up_bias_at, down_at, unit, column, WIDTH, HIDDEN)
        active = _gelu(tl.dot(n, tl.trans(up), input_precision=PRECISION) + up_bias[None, :])[0]
        total = tl.dot(active, tl.trans(down), total, input_precision=PRECISION)
    to_out, inside = _rows_of(out_at, model, row, rows, column, WIDTH)
    tl.store(to_out, total, inside)


@triton.jit
def _mlp_backward(
    grad_at, x_at, gain_at, shift_at, up_at, up_bias_at, down_at, of_n_at, parts_at, rows, length,
    stride_gain, stride_shift, stride_up, stride_up_bias, stride_down,
    STEP: tl.constexpr, WIDTH: tl.constexpr, HIDDEN: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr,
    CHUNK: tl.constexpr, EPSILON: tl.constexpr, PRECISION: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    part, split, model = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    column, unit = tl.arange(0, PADDED), split * CHUNK + tl.arange(0, CHUNK)
    real_column = column < WIDTH
    gain = tl.load(gain_at + model * stride_gain * STEP + column, real_column, 0.0)
    shift = tl.load(shift_at + model * stride_shift * STEP + column, real_column, 0.0)
    up_at, up_bias_at = up_at + model * stride_up * STEP, up_bias_at + model * stride_up_bias * STEP
    up, up_bias, down = _chunk(up_at, up_bias_at, down_at + model * stride_down * STEP, unit, column, WIDTH, HIDDEN)
    of_gain, of_shift = tl.zeros((PADDED,), tl.float32), tl.zeros((PADDED,), tl.float32)
    of_up_bias, of_down_bias = tl.zeros((CHUNK,), tl.float32), tl.zeros((PADDED,), tl.float32)
    of_up, of_down = tl.zeros((CHUNK, PADDED), tl.float32), tl.zeros((PADDED, CHUNK), tl.float32)
    for block in range(BLOCKS):
        row = (part * BLOCKS + block) * ROWS + tl.arange(0, ROWS)
        from_grad, inside = _rows_of(grad_at, model, row, rows, column, WIDTH)
        from_x, inside = _rows_of(x_at, model, row, rows, column, WIDTH)
        grad = tl.load(from_grad, inside, 0.0)
        unit_row = normed(tl.load(from_x, inside, 0.0), real_column, WIDTH, EPSILON)[0]
        n = unit_row * gain[None, :] + shift[None, :]
        active, slope = _gelu(tl.dot(n, tl.trans(up), input_precision=PRECISION) + up_bias[None, :])
        of_down = tl.dot(tl.trans(grad), active, of_down, input_precision=PRECISION)
        of_units = tl.dot(grad, down, input_precision=PRECISION) * slope
        of_up = tl.dot(tl.trans(of_units), n, of_up, input_precision=PRECISION)
        of_n = tl.dot(of_units, up, input_precision=PRECISION)
        of_up_bias += tl.sum(of_units, 0)
        of_gain += tl.sum(of_n * unit_row, 0)
        of_shift += tl.sum(of_n, 0)
        of_down_bias += tl.sum(grad, 0)
        to_n, inside = _rows_of(of_n_at, split * tl.num_programs(2) + model, row, rows, column, WIDTH)
        tl.store(to_n, of_n, inside)
    out_at = parts_at + (model * tl.num_programs(0) + part) * length
    tl.store(out_at + split * 2 * WIDTH + column, of_gain, real_column)
    tl.store(out_at + (split * 2 + 1) * WIDTH + column, of_shift, real_column)
    if split == 0:
        tl.store(out_at + length - WIDTH + column, of_down_bias, real_column)
    _store_chunk(out_at + tl.num_programs(1) * 2 * WIDTH, of_up, of_up_bias, of_down, unit, column, WIDTH, HIDDEN)
