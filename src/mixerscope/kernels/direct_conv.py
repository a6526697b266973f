"""Triton bodies for the causal convolution by direct sums (`mixers/ops/direct_conv.py` defines it).

A program holds one document and a block of lanes, which are channels times their copies, as a tile [t, lanes], and
goes through the lags: the shifted tile comes from the nearest cache. The gradient of the kernel is written out by each
document and summed afterwards, in a fixed order.
"""

# The arguments of kernels and the tuples in them are Triton's, of which type checkers know nothing.
# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
# pyright: reportMissingImports=false

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 2048
"""Numbers in a tile: 16 a thread."""
WARPS = 4


def forward(x: Tensor, kernel: Tensor) -> Tensor:
    """y [m, b, t, c, r]."""
    x, kernel = x.contiguous(), kernel.contiguous()
    y = x.new_empty(x.shape)
    _forward[_grid(x)](x, kernel, y, LAGS=kernel.shape[2], **_sizes(x), num_warps=WARPS)
    return y


def backward(grad: Tensor, x: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of x and of the kernel."""
    grad, x, kernel = grad.contiguous(), x.contiguous(), kernel.contiguous()
    grad_x = x.new_empty(x.shape)
    lags = kernel.shape[2]
    by_document = x.new_empty(*x.shape[:2], lags, *x.shape[3:], dtype=torch.float32)
    _backward[_grid(x)](grad, x, kernel, grad_x, by_document, LAGS=lags, **_sizes(x), num_warps=WARPS)
    return grad_x, by_document.sum((1, 4)).mT.contiguous().to(kernel.dtype)


def _grid(x: Tensor) -> tuple[int, int]:
    return x.shape[0] * x.shape[1], triton.cdiv(x.shape[3] * x.shape[4], _sizes(x)["BLOCK"])


def _sizes(x: Tensor) -> dict[str, int]:
    _, documents, length, channels, copies = x.shape
    padded = triton.next_power_of_2(length)
    return {
        "DOCUMENTS": documents, "LENGTH": length, "CHANNELS": channels, "COPIES": copies,
        "PADDED": padded, "BLOCK": min(max(TILE // padded, 4), triton.next_power_of_2(channels * copies)),
    }  # fmt: skip


@triton.jit
def _forward(
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
def _backward(
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
