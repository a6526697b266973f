"""Triton bodies for LSTM and GRU cells (`mixers/ops/lstm_cells.py` and `gru_cells.py` define them).

One program a model and a few documents walks through all positions with the state and the recurrent weights at hand,
where the plain bodies launch several operations a position. Where products are to be those of float32 numbers, each is
three of tensor cores, which err as little.
"""

# The arguments of kernels and the tuples in them are Triton's, of which type checkers know nothing.
# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
# pyright: reportMissingImports=false

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from mixerscope.kernels.layout import whole_rows
from mixerscope.kernels.residual import precision

DOCUMENTS = 16
"""Of one program: the least size Triton multiplies matrices at."""
ROOM = 3 * 128 * 128
"""Numbers of weights that a program has room for; exact products hold them in several parts, and take more."""
WARPS = 8
WIDEST = 128
"""Of a state: of wider ones not even one weight finds room."""


def lstm(inputs: Tensor, recurrent: Tensor, keep: bool, exact: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Output gates and cells [m, b, t, h], and the other three parts in float32 if they are to be kept."""
    inputs, recurrent = inputs.contiguous(), whole_rows(recurrent)
    models, documents, length, _, width = inputs.shape
    gates, cells = (inputs.new_empty(models, documents, length, width) for _ in range(2))
    kept = inputs.new_empty(models, documents, length if keep else 0, 3, width, dtype=torch.float32)
    _lstm_forward[_grid(gates)](
        inputs, recurrent, gates, cells, kept, recurrent.stride(0), KEEP=keep, **_sizes(gates, exact, 4)
    )
    return gates, cells, kept


def lstm_backward(
    by_gates: Tensor, by_cells: Tensor, recurrent: Tensor, gates: Tensor, cells: Tensor, kept: Tensor, exact: bool
) -> tuple[Tensor, Tensor]:
    """The gradients of inputs and recurrent."""
    by_gates, by_cells, gates, cells = (x.contiguous() for x in (by_gates, by_cells, gates, cells))
    rows = whole_rows(recurrent)
    by_sums = gates.new_empty(*gates.shape[:3], 4, gates.shape[3], dtype=torch.float32)
    before = torch.empty_like(gates, dtype=torch.float32)
    _lstm_backward[_grid(gates)](
        by_gates, by_cells, rows, gates, cells, kept, by_sums, before, rows.stride(0), **_sizes(gates, exact, 4)
    )
    by_recurrent = torch.bmm(by_sums.flatten(3).flatten(1, 2).mT, before.flatten(1, 2))
    return by_sums.to(gates.dtype), by_recurrent.to(recurrent.dtype)


def gru(
    inputs: Tensor, gates: Tensor, candidate: Tensor, reset_after: bool, keep: bool, exact: bool
) -> tuple[Tensor, Tensor]:
    """Hidden states [m, b, t, h], and the three parts in float32 if they are to be kept."""
    inputs, gates, candidate = inputs.contiguous(), whole_rows(gates), whole_rows(candidate)
    models, documents, length, _, width = inputs.shape
    states = inputs.new_empty(models, documents, length, width)
    kept = inputs.new_empty(models, documents, length if keep else 0, 3, width, dtype=torch.float32)
    _gru_forward[_grid(states)](
        inputs, gates, candidate, states, kept, gates.stride(0), candidate.stride(0),
        RESET_AFTER=reset_after, KEEP=keep, **_sizes(states, exact, 3),
    )  # fmt: skip
    return states, kept


def gru_backward(
    by_states: Tensor, gates: Tensor, candidate: Tensor, states: Tensor, kept: Tensor, reset_after: bool, exact: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of inputs, gates and candidate."""
    by_states, states = by_states.contiguous(), states.contiguous()
    of_gates, of_candidate = whole_rows(gates), whole_rows(candidate)
    by_sums = torch.empty_like(kept)
    # Of the candidate's product: its gradient, and what it was multiplied with.
    by_recalled, recalled_from = (torch.empty_like(states, dtype=torch.float32) for _ in range(2))
    _gru_backward[_grid(states)](
        by_states, of_gates, of_candidate, states, kept, by_sums, by_recalled, recalled_from,
        of_gates.stride(0), of_candidate.stride(0), RESET_AFTER=reset_after,
        **_sizes(states, exact, 3, twice=1 if reset_after else 0),
    )  # fmt: skip
    before = F.pad(states[:, :, :-1].float(), (0, 0, 1, 0)).flatten(1, 2)
    by_gates = torch.bmm(by_sums[:, :, :, :2].flatten(3).flatten(1, 2).mT, before)
    by_candidate = torch.bmm(by_recalled.flatten(1, 2).mT, recalled_from.flatten(1, 2))
    return by_sums.to(states.dtype), by_gates.to(gates.dtype), by_candidate.to(candidate.dtype)


def _grid(states: Tensor) -> tuple[int, int]:
    return states.shape[0], triton.cdiv(states.shape[1], DOCUMENTS)


def _sizes(states: Tensor, exact: bool, weights: int, twice: int = 0) -> dict[str, int | str]:
    """For states [m, b, t, h] and so many weights [h, h] that are multiplied with at each position, so many of them as
    they are and transposed."""
    _, documents, length, width = states.shape
    if width > WIDEST:
        raise ValueError(f"states are {width} wide, and more than {WIDEST} do not fit")
    padded = max(DOCUMENTS, triton.next_power_of_2(width))
    exact = exact or states.dtype != torch.float32  # what is bfloat16 is multiplied as float32
    return {
        "count": documents, "length": length, "WIDTH": width, "PADDED": padded, "DOCUMENTS": DOCUMENTS,
        "HELD": _at_hand(padded, weights, twice, exact), "P": precision(exact),
        "num_warps": WARPS if padded >= 64 else 4, "num_stages": 1,
    }  # fmt: skip


def _at_hand(padded: int, weights: int, twice: int, exact: bool) -> int:
    """How many of the weights a program can have at hand; the others pass through the room of one, or of two."""
    if padded <= 64:
        return weights
    if exact:
        return 0
    room = ROOM // padded**2
    return weights if weights + twice <= room else room - 1 - twice


@triton.jit
def _tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def _weight(pointer, stride, part, WIDTH: tl.constexpr, PADDED: tl.constexpr, TRANSPOSED: tl.constexpr):
    """[h, h] of this program's model: rows `part` h and on."""
    row, column = tl.arange(0, PADDED)[:, None], tl.arange(0, PADDED)[None, :]
    real = (row < WIDTH) & (column < WIDTH)
    at = (part * WIDTH + column) * WIDTH + row if TRANSPOSED else (part * WIDTH + row) * WIDTH + column
    return tl.load(pointer + tl.program_id(0).to(tl.int64) * stride + at, real, 0.0).to(tl.float32)


@triton.jit
def _held(
    pointer, stride, part, WIDTH: tl.constexpr, PADDED: tl.constexpr, TRANSPOSED: tl.constexpr, IS_HELD: tl.constexpr
):  # fmt: skip
    """A weight to have at hand, if there is room for it."""
    return _weight(pointer, stride, part, WIDTH, PADDED, TRANSPOSED) if IS_HELD else 0.0


@triton.jit
def _product(
    state, held, pointer, stride, part, WIDTH: tl.constexpr, PADDED: tl.constexpr, TRANSPOSED: tl.constexpr,
    IS_HELD: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """State [b, h] times a weight that is at hand, or loaded each time."""
    matrix = held if IS_HELD else _weight(pointer, stride, part, WIDTH, PADDED, TRANSPOSED)
    return tl.dot(state, matrix, input_precision=P)


@triton.jit
def _places(count, length, WIDTH: tl.constexpr, PADDED: tl.constexpr, DOCUMENTS: tl.constexpr):
    """[b, 1] the number of each document's first position, [1, h] channels, and [b, h] which of them are real."""
    document = tl.program_id(1) * DOCUMENTS + tl.arange(0, DOCUMENTS)
    first = (tl.program_id(0).to(tl.int64) * count + document) * length
    channel = tl.arange(0, PADDED)
    return first[:, None], channel[None, :], (document < count)[:, None] & (channel < WIDTH)[None, :]


@triton.jit
def _load(pointer, real):
    return tl.load(pointer, real, 0.0).to(tl.float32)


@triton.jit
def _three(pointer, row, channel, real, WIDTH: tl.constexpr):
    """The three parts [b, h] of a position."""
    at = pointer + row * 3 * WIDTH + channel
    return _load(at, real), _load(at + WIDTH, real), _load(at + 2 * WIDTH, real)


@triton.jit
def _four(pointer, row, channel, real, WIDTH: tl.constexpr):
    """The four parts [b, h] of a position."""
    at = pointer + row * 4 * WIDTH + channel
    return _load(at, real), _load(at + WIDTH, real), _load(at + 2 * WIDTH, real), _load(at + 3 * WIDTH, real)


@triton.jit
def _of_lstm(kept, cells, gates, by_cells, by_gates, first, row, channel, real, WIDTH: tl.constexpr):
    """What the backward pass reads at a position: its parts, cell and output gate before it, and two gradients."""
    here, there = row * WIDTH + channel, real & (row >= first)
    earlier = real & (row > first)
    i, f, g = _three(kept, row, channel, there, WIDTH)
    return (
        i, f, g, _load(cells + here - WIDTH, earlier), _load(gates + here - WIDTH, earlier),
        _load(by_cells + here, there), _load(by_gates + here, there),
    )  # fmt: skip


@triton.jit
def _lstm_forward(
    inputs, recurrent, gates, cells, kept, stride, count, length, KEEP: tl.constexpr,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, DOCUMENTS: tl.constexpr, HELD: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    first, channel, real = _places(count, length, WIDTH, PADDED, DOCUMENTS)
    of_i = _held(recurrent, stride, 0, WIDTH, PADDED, True, HELD > 0)
    of_f = _held(recurrent, stride, 1, WIDTH, PADDED, True, HELD > 1)
    of_g = _held(recurrent, stride, 2, WIDTH, PADDED, True, HELD > 2)
    of_o = _held(recurrent, stride, 3, WIDTH, PADDED, True, HELD > 3)
    hidden, cell = tl.zeros([DOCUMENTS, PADDED], tl.float32), tl.zeros([DOCUMENTS, PADDED], tl.float32)
    x_i, x_f, x_g, x_o = _four(inputs, first, channel, real, WIDTH)
    for t in range(length):
        i = tl.sigmoid(x_i + _product(hidden, of_i, recurrent, stride, 0, WIDTH, PADDED, True, HELD > 0, P))
        f = tl.sigmoid(x_f + _product(hidden, of_f, recurrent, stride, 1, WIDTH, PADDED, True, HELD > 1, P))
        g = _tanh(x_g + _product(hidden, of_g, recurrent, stride, 2, WIDTH, PADDED, True, HELD > 2, P))
        o = tl.sigmoid(x_o + _product(hidden, of_o, recurrent, stride, 3, WIDTH, PADDED, True, HELD > 3, P))
        # What the next position needs is asked for before it is needed.
        x_i, x_f, x_g, x_o = _four(inputs, first + t + 1, channel, real & (first + t + 1 < first + length), WIDTH)
        cell = f * cell + i * g
        hidden = tl.where(real, o * _tanh(cell), 0.0)
        here = (first + t) * WIDTH + channel
        tl.store(gates + here, o.to(gates.dtype.element_ty), real)
        tl.store(cells + here, cell.to(cells.dtype.element_ty), real)
        if KEEP:
            parts = kept + (first + t) * 3 * WIDTH + channel
            tl.store(parts, i, real)
            tl.store(parts + WIDTH, f, real)
            tl.store(parts + 2 * WIDTH, g, real)


@triton.jit
def _lstm_backward(
    by_gates, by_cells, recurrent, gates, cells, kept, by_sums, before, stride, count, length,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, DOCUMENTS: tl.constexpr, HELD: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    first, channel, real = _places(count, length, WIDTH, PADDED, DOCUMENTS)
    of_i = _held(recurrent, stride, 0, WIDTH, PADDED, False, HELD > 0)
    of_f = _held(recurrent, stride, 1, WIDTH, PADDED, False, HELD > 1)
    of_g = _held(recurrent, stride, 2, WIDTH, PADDED, False, HELD > 2)
    of_o = _held(recurrent, stride, 3, WIDTH, PADDED, False, HELD > 3)
    by_hidden, by_later = tl.zeros([DOCUMENTS, PADDED], tl.float32), tl.zeros([DOCUMENTS, PADDED], tl.float32)
    last = first + length - 1
    cell = tl.load(cells + last * WIDTH + channel, real, 0.0).to(tl.float32)
    o = tl.load(gates + last * WIDTH + channel, real, 0.0).to(tl.float32)
    i, f, g, cell_before, gate_before, from_cells, from_gates = _of_lstm(
        kept, cells, gates, by_cells, by_gates, first, last, channel, real, WIDTH
    )
    for back in range(length):
        t = length - 1 - back
        here = (first + t) * WIDTH + channel
        tl.store(before + here, gate_before * _tanh(cell_before), real)
        read = _tanh(cell)
        by_cell = by_later + from_cells + by_hidden * o * (1 - read * read)
        by_o = (from_gates + by_hidden * read) * o * (1 - o)
        by_i, by_f = by_cell * g * i * (1 - i), by_cell * cell_before * f * (1 - f)
        by_g = by_cell * i * (1 - g * g)
        sums = by_sums + (first + t) * 4 * WIDTH + channel
        tl.store(sums, by_i, real)
        tl.store(sums + WIDTH, by_f, real)
        tl.store(sums + 2 * WIDTH, by_g, real)
        tl.store(sums + 3 * WIDTH, by_o, real)
        # What the position before needs is asked for before the products, which take long.
        next_i, next_f, next_g, next_c, next_o, more_c, more_o = _of_lstm(
            kept, cells, gates, by_cells, by_gates, first, first + t - 1, channel, real, WIDTH
        )
        by_hidden = (
            _product(by_i, of_i, recurrent, stride, 0, WIDTH, PADDED, False, HELD > 0, P)
            + _product(by_f, of_f, recurrent, stride, 1, WIDTH, PADDED, False, HELD > 1, P)
            + _product(by_g, of_g, recurrent, stride, 2, WIDTH, PADDED, False, HELD > 2, P)
            + _product(by_o, of_o, recurrent, stride, 3, WIDTH, PADDED, False, HELD > 3, P)
        )
        by_later, cell, o = by_cell * f, cell_before, gate_before
        i, f, g, from_cells, from_gates = next_i, next_f, next_g, more_c, more_o
        cell_before, gate_before = next_c, next_o


@triton.jit
def _of_gru(kept, states, by_states, first, row, channel, real, WIDTH: tl.constexpr):
    """What the backward pass reads at a position: its parts, the state before it, and a gradient."""
    here, there = row * WIDTH + channel, real & (row >= first)
    r, z, n = _three(kept, row, channel, there, WIDTH)
    return r, z, n, _load(states + here - WIDTH, real & (row > first)), _load(by_states + here, there)


@triton.jit
def _gru_forward(
    inputs, gates, candidate, states, kept, stride_gates, stride_candidate, count, length,
    RESET_AFTER: tl.constexpr, KEEP: tl.constexpr,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, DOCUMENTS: tl.constexpr, HELD: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    first, channel, real = _places(count, length, WIDTH, PADDED, DOCUMENTS)
    of_r = _held(gates, stride_gates, 0, WIDTH, PADDED, True, HELD > 0)
    of_z = _held(gates, stride_gates, 1, WIDTH, PADDED, True, HELD > 1)
    of_n = _held(candidate, stride_candidate, 0, WIDTH, PADDED, True, HELD > 2)
    hidden = tl.zeros([DOCUMENTS, PADDED], tl.float32)
    x_r, x_z, x_n = _three(inputs, first, channel, real, WIDTH)
    for t in range(length):
        r = tl.sigmoid(x_r + _product(hidden, of_r, gates, stride_gates, 0, WIDTH, PADDED, True, HELD > 0, P))
        z = tl.sigmoid(x_z + _product(hidden, of_z, gates, stride_gates, 1, WIDTH, PADDED, True, HELD > 1, P))
        if RESET_AFTER:
            recalled = r * _product(hidden, of_n, candidate, stride_candidate, 0, WIDTH, PADDED, True, HELD > 2, P)
        else:
            recalled = _product(r * hidden, of_n, candidate, stride_candidate, 0, WIDTH, PADDED, True, HELD > 2, P)
        n = _tanh(x_n + recalled)
        x_r, x_z, x_n = _three(inputs, first + t + 1, channel, real & (first + t + 1 < first + length), WIDTH)
        hidden = tl.where(real, z * hidden + (1 - z) * n, 0.0)
        tl.store(states + (first + t) * WIDTH + channel, hidden.to(states.dtype.element_ty), real)
        if KEEP:
            parts = kept + (first + t) * 3 * WIDTH + channel
            tl.store(parts, r, real)
            tl.store(parts + WIDTH, z, real)
            tl.store(parts + 2 * WIDTH, n, real)


@triton.jit
def _gru_backward(
    by_states, gates, candidate, states, kept, by_sums, by_recalled, recalled_from, stride_gates, stride_candidate,
    count, length, RESET_AFTER: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, DOCUMENTS: tl.constexpr,
    HELD: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    first, channel, real = _places(count, length, WIDTH, PADDED, DOCUMENTS)
    of_r = _held(gates, stride_gates, 0, WIDTH, PADDED, False, HELD > 0)
    of_z = _held(gates, stride_gates, 1, WIDTH, PADDED, False, HELD > 1)
    of_n = _held(candidate, stride_candidate, 0, WIDTH, PADDED, False, HELD > 2)
    total = tl.zeros([DOCUMENTS, PADDED], tl.float32)  # dL/dh_t, without what h_t is read for
    r, z, n, hidden, from_states = _of_gru(kept, states, by_states, first, first + length - 1, channel, real, WIDTH)
    for back in range(length):
        t = length - 1 - back
        here = (first + t) * WIDTH + channel
        total += from_states
        next_r, next_z, next_n, next_hidden, from_states = _of_gru(
            kept, states, by_states, first, first + t - 1, channel, real, WIDTH
        )
        by_z, by_n = total * (hidden - n) * z * (1 - z), total * (1 - z) * (1 - n * n)
        if RESET_AFTER:
            inner = by_n * r
            by_before = _product(inner, of_n, candidate, stride_candidate, 0, WIDTH, PADDED, False, HELD > 2, P)
            by_r = (
                by_n
                * _product(
                    hidden,
                    tl.trans(of_n) if HELD > 2 else 0.0,
                    candidate,
                    stride_candidate,
                    0,
                    WIDTH,
                    PADDED,
                    True,
                    HELD > 2,
                    P,
                )
                * r
                * (1 - r)
            )
            tl.store(by_recalled + here, inner, real)
            tl.store(recalled_from + here, hidden, real)
        else:
            through = _product(by_n, of_n, candidate, stride_candidate, 0, WIDTH, PADDED, False, HELD > 2, P)
            by_before = through * r
            by_r = through * hidden * r * (1 - r)
            tl.store(by_recalled + here, by_n, real)
            tl.store(recalled_from + here, r * hidden, real)
        sums = by_sums + (first + t) * 3 * WIDTH + channel
        tl.store(sums, by_r, real)
        tl.store(sums + WIDTH, by_z, real)
        tl.store(sums + 2 * WIDTH, by_n, real)
        total = (
            total * z
            + by_before
            + _product(by_r, of_r, gates, stride_gates, 0, WIDTH, PADDED, False, HELD > 0, P)
            + _product(by_z, of_z, gates, stride_gates, 1, WIDTH, PADDED, False, HELD > 1, P)
        )
        r, z, n, hidden = next_r, next_z, next_n, next_hidden
