"""Triton bodies for the causal convolution by direct sums (`mixers/ops/direct_conv.py` defines it).

A program holds lanes of a document, which are channels times their copies. If documents are short, a thread has a lane
of its own and all of it in registers, taps and positions, and every product is written out: nothing is read twice. Such
a program takes lanes of as many documents as it has room for, so that one compilation serves all widths. A longer
document is a tile [t, lanes] that goes through the lags; the shifted tile comes from the nearest cache. The gradient
of the kernel is written out by each document and summed afterwards, in a fixed order.
"""

# The arguments of kernels and the tuples in them are Triton's, of which type checkers know nothing.
# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
# pyright: reportMissingImports=false, reportOperatorIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 2048
"""Numbers in a tile: 16 a thread."""
WARPS = 4
SHORT = 48
"""The longest document whose lanes fit into registers: three numbers a position."""
LANES = 128
"""Of a program, if the document is short."""
SUMMED, MOST_AT_ONCE = 64, 32
"""Gradients of taps that a program adds up, all copies counted, and documents that it reads in one go."""


def forward(x: Tensor, kernel: Tensor) -> Tensor:
    """y [m, b, t, c, r]."""
    x, kernel = x.contiguous(), kernel.contiguous()
    y = x.new_empty(x.shape)
    run = _short_conv_forward if _is_short(x) else _conv_forward
    run[_grid(x)](x, kernel, y, LAGS=kernel.shape[2], **_sizes(x))
    return y


def backward(grad: Tensor, x: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of x and of the kernel."""
    grad, x, kernel = grad.contiguous(), x.contiguous(), kernel.contiguous()
    grad_x = x.new_empty(x.shape)
    lags = kernel.shape[2]
    by_document = x.new_empty(*x.shape[:2], lags, *x.shape[3:], dtype=torch.float32)
    run = _short_conv_backward if _is_short(x) else _conv_backward
    run[_grid(x)](grad, x, kernel, grad_x, by_document, LAGS=lags, **_sizes(x))
    return grad_x, _by_channel(by_document, kernel)


def _by_channel(by_document: Tensor, kernel: Tensor) -> Tensor:
    """The kernel's gradient [m, c, l] from that of each document and copy [m, b, l, c, r]."""
    found = kernel.new_empty(kernel.shape)
    models, documents, lags, channels, copies = by_document.shape
    padded = triton.next_power_of_2(copies)
    block = max(1, SUMMED // padded)
    _sum_documents[(triton.cdiv(lags * channels, block), models)](
        by_document, found, lags, channels, DOCUMENTS=documents, COPIES=copies, PADDED=padded,
        AT_ONCE=min(MOST_AT_ONCE, triton.next_power_of_2(documents)), BLOCK=block, num_warps=4,
    )  # fmt: skip
    return found


def _is_short(x: Tensor) -> bool:
    return x.shape[2] <= SHORT


def _grid(x: Tensor) -> tuple[int, int]:
    documents, lanes = x.shape[0] * x.shape[1], x.shape[3] * x.shape[4]
    return (triton.cdiv(documents * lanes, LANES), 1) if _is_short(x) else (documents, triton.cdiv(lanes, _block(x)))


def _block(x: Tensor) -> int:
    """Lanes of a tile."""
    padded, lanes = triton.next_power_of_2(x.shape[2]), triton.next_power_of_2(x.shape[3] * x.shape[4])
    return min(max(TILE // padded, 4), lanes)


def _sizes(x: Tensor) -> dict[str, int]:
    _, documents, length, channels, copies = x.shape
    if _is_short(x):
        numbers = {"documents": documents, "channels": channels, "copies": copies, "count": x[:, :, 0].numel()}
        return numbers | {"LENGTH": length, "BLOCK": LANES, "num_warps": LANES // 32}
    sizes = {"DOCUMENTS": documents, "LENGTH": length, "CHANNELS": channels, "COPIES": copies}
    return sizes | {"PADDED": triton.next_power_of_2(length), "BLOCK": _block(x), "num_warps": WARPS}


@triton.jit
def _lanes(kernel, documents, channels, copies, count, LAGS: tl.constexpr, LENGTH: tl.constexpr, BLOCK: tl.constexpr):
    """Which lanes there are, how many a document has, and of each where x, its taps and their gradient begin."""
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    lanes = channels * copies
    document, lane = number // lanes, number % lanes  # documents of all models, one after the other
    taps = kernel + (document // documents * channels + lane // copies) * LAGS
    return number < count, lanes, document * LENGTH * lanes + lane, taps, document * LAGS * lanes + lane


@triton.jit
def _short_conv_forward(
    x, kernel, y,
    documents, channels, copies, count, LAGS: tl.constexpr, LENGTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    inside, lanes, here, tap, _ = _lanes(kernel, documents, channels, copies, count, LAGS, LENGTH, BLOCK)
    xs, taps = (), ()
    for t in tl.static_range(LENGTH):
        xs += (tl.load(x + here + t * lanes, inside, 0.0).to(tl.float32),)
    for lag in tl.static_range(LAGS):
        taps += (tl.load(tap + lag, inside, 0.0).to(tl.float32),)
    for t in tl.static_range(LENGTH):
        total = xs[t] * taps[0]
        for lag in tl.static_range(1, LAGS):
            if lag <= t:
                total += xs[t - lag] * taps[lag]
        tl.store(y + here + t * lanes, total.to(y.dtype.element_ty), inside)


@triton.jit
def _short_conv_backward(
    grad, x, kernel, grad_x, by_document,
    documents, channels, copies, count, LAGS: tl.constexpr, LENGTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    inside, lanes, here, tap, of_taps = _lanes(kernel, documents, channels, copies, count, LAGS, LENGTH, BLOCK)
    xs, gs, taps = (), (), ()
    for t in tl.static_range(LENGTH):
        xs += (tl.load(x + here + t * lanes, inside, 0.0).to(tl.float32),)
        gs += (tl.load(grad + here + t * lanes, inside, 0.0).to(tl.float32),)
    for lag in tl.static_range(LAGS):
        taps += (tl.load(tap + lag, inside, 0.0).to(tl.float32),)
    for t in tl.static_range(LENGTH):
        total = gs[t] * taps[0]
        for lag in tl.static_range(1, LAGS):
            if t + lag < LENGTH:
                total += gs[t + lag] * taps[lag]
        tl.store(grad_x + here + t * lanes, total.to(grad_x.dtype.element_ty), inside)
    for lag in tl.static_range(LAGS):
        total = gs[LENGTH - 1] * xs[LENGTH - 1 - lag] if lag < LENGTH else tl.zeros([BLOCK], tl.float32)
        for t in tl.static_range(LENGTH - 1):
            if t >= lag:
                total += gs[t] * xs[t - lag]
        tl.store(by_document + of_taps + lag * lanes, total, inside)


@triton.jit
def _conv_forward(
    x, kernel, y,
    LAGS: tl.constexpr, DOCUMENTS: tl.constexpr, LENGTH: tl.constexpr, CHANNELS: tl.constexpr, COPIES: tl.constexpr,
    PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    document = tl.program_id(0).to(tl.int64)  # of all models, one after the other
    lane = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    lanes: tl.constexpr = CHANNELS * COPIES
    inside = lane < lanes
    t = tl.arange(0, PADDED)
    here = document * LENGTH * lanes + t[:, None] * lanes + lane[None, :]
    taps = kernel + (document // DOCUMENTS * CHANNELS + lane // COPIES) * LAGS
    total = tl.zeros([PADDED, BLOCK], tl.float32)
    for lag in range(LAGS):
        tap = tl.load(taps + lag, mask=inside, other=0.0).to(tl.float32)
        seen = (t[:, None] >= lag) & (t[:, None] < LENGTH) & inside[None, :]
        total += tap[None, :] * tl.load(x + here - lag * lanes, mask=seen, other=0.0).to(tl.float32)
    tl.store(y + here, total, mask=(t[:, None] < LENGTH) & inside[None, :])


@triton.jit
def _conv_backward(
    grad, x, kernel, grad_x, by_document,
    LAGS: tl.constexpr, DOCUMENTS: tl.constexpr, LENGTH: tl.constexpr, CHANNELS: tl.constexpr, COPIES: tl.constexpr,
    PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    document = tl.program_id(0).to(tl.int64)
    lane = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    lanes: tl.constexpr = CHANNELS * COPIES
    inside = lane < lanes
    t = tl.arange(0, PADDED)
    here = document * LENGTH * lanes + t[:, None] * lanes + lane[None, :]
    whole = (t[:, None] < LENGTH) & inside[None, :]
    taps = kernel + (document // DOCUMENTS * CHANNELS + lane // COPIES) * LAGS
    values = tl.load(x + here, mask=whole, other=0.0).to(tl.float32)
    total = tl.zeros([PADDED, BLOCK], tl.float32)
    for lag in range(LAGS):
        tap = tl.load(taps + lag, mask=inside, other=0.0).to(tl.float32)
        seen = (t[:, None] + lag < LENGTH) & inside[None, :]
        later = tl.load(grad + here + lag * lanes, mask=seen, other=0.0).to(tl.float32)
        total += tap[None, :] * later
        of_tap = tl.sum(values * later, 0)
        tl.store(by_document + document * LAGS * lanes + lag * lanes + lane, of_tap, mask=inside)
    tl.store(grad_x + here, total, mask=whole)


@triton.jit
def _sum_documents(
    by_document, found, lags, channels,
    DOCUMENTS: tl.constexpr, COPIES: tl.constexpr, PADDED: tl.constexpr, AT_ONCE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(1).to(tl.int64)
    tap = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # all channels of a lag, then the next lag
    number = tl.arange(0, BLOCK * PADDED)
    if COPIES == PADDED:  # as they lie, so that neighbours are read in one go
        place = tl.program_id(0) * (BLOCK * COPIES) + number
        inside = place < lags * channels * COPIES
    else:
        owner, copy = tl.program_id(0) * BLOCK + number // PADDED, number % PADDED
        place = owner * COPIES + copy
        inside = (owner < lags * channels) & (copy < COPIES)
    total = tl.zeros([AT_ONCE, BLOCK * PADDED], tl.float32)
    for start in range(0, DOCUMENTS, AT_ONCE):
        document = start + tl.arange(0, AT_ONCE)
        here = by_document + (model * DOCUMENTS + document)[:, None] * (lags * channels * COPIES) + place[None, :]
        total += tl.load(here, (document < DOCUMENTS)[:, None] & inside[None, :], 0.0)
    to = found + (model * channels + tap % channels) * lags + tap // channels
    sums = tl.sum(tl.reshape(tl.sum(total, 0), [BLOCK, PADDED]), 1)
    tl.store(to, sums.to(found.dtype.element_ty), tap < lags * channels)
