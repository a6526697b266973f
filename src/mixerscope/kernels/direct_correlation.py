"""Triton bodies for the correlation by direct sums (`mixers/ops/direct_correlation.py` defines it).

A program holds some lags and some taps of a channel and goes through the others, several at once, so that reading one
does not wait for the other; all sums are made inside it, in a fixed order.
"""

# The arguments of kernels and the tuples in them are Triton's, of which type checkers know nothing.
# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
# pyright: reportMissingImports=false

import triton
import triton.language as tl
from torch import Tensor

from mixerscope.kernels.layout import whole_rows

TAPS_AT_ONCE, LAGS_AT_ONCE = 256, 16
"""Of the tile that is held in registers; gradients of b and c hold a tile each, of half as many lags."""
WARPS = 4


def forward(b: Tensor, c: Tensor, length: int) -> Tensor:
    """k [m, d, length]."""
    b, c = whole_rows(b), whole_rows(c)
    models, channels, taps = b.shape
    k = b.new_empty(models, channels, length)
    _correlation_forward[(models * channels, triton.cdiv(length, LAGS_AT_ONCE))](
        b, c, k, b.stride(0), c.stride(0), CHANNELS=channels, TAPS=taps, LENGTH=length,
        BLOCK=min(TAPS_AT_ONCE, triton.next_power_of_2(taps)), LAGS=LAGS_AT_ONCE, num_warps=WARPS,
    )  # fmt: skip
    return k


def backward(grad: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of b and c."""
    grad, b, c = grad.contiguous(), whole_rows(b), whole_rows(c)
    models, channels, taps = b.shape
    grad_b, grad_c = b.new_empty(b.shape), c.new_empty(c.shape)
    block = min(TAPS_AT_ONCE, triton.next_power_of_2(taps))
    _correlation_backward[(models * channels, triton.cdiv(taps, block))](
        grad, b, c, grad_b, grad_c, b.stride(0), c.stride(0), CHANNELS=channels, TAPS=taps, LENGTH=grad.shape[2],
        BLOCK=block, LAGS=LAGS_AT_ONCE // 2, num_warps=WARPS,
    )  # fmt: skip
    return grad_b, grad_c


@triton.jit
def _correlation_forward(
    b, c, k, b_row, c_row,
    CHANNELS: tl.constexpr, TAPS: tl.constexpr, LENGTH: tl.constexpr, BLOCK: tl.constexpr, LAGS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    model, channel = program // CHANNELS, program % CHANNELS
    b += model * b_row + channel * TAPS
    c += model * c_row + channel * TAPS
    lag = tl.program_id(1) * LAGS + tl.arange(0, LAGS)
    products = tl.zeros([LAGS, BLOCK], tl.float32)
    for start in range(0, TAPS, BLOCK):
        at = start + tl.arange(0, BLOCK)
        later = at[None, :] + lag[:, None]
        taps = tl.load(b + at, mask=at < TAPS, other=0.0).to(tl.float32)
        products += taps[None, :] * tl.load(c + later, mask=later < TAPS, other=0.0).to(tl.float32)
    tl.store(k + program * LENGTH + lag, tl.sum(products, 1), mask=lag < LENGTH)


@triton.jit
def _correlation_backward(
    grad, b, c, grad_b, grad_c, b_row, c_row,
    CHANNELS: tl.constexpr, TAPS: tl.constexpr, LENGTH: tl.constexpr, BLOCK: tl.constexpr, LAGS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    model, channel = program // CHANNELS, program % CHANNELS
    b += model * b_row + channel * TAPS
    c += model * c_row + channel * TAPS
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < TAPS
    of_b, of_c = tl.zeros([LAGS, BLOCK], tl.float32), tl.zeros([LAGS, BLOCK], tl.float32)
    for first in range(0, LENGTH, LAGS):
        lag = first + tl.arange(0, LAGS)
        g = tl.load(grad + program * LENGTH + lag, mask=lag < LENGTH, other=0.0).to(tl.float32)
        later, earlier = at[None, :] + lag[:, None], at[None, :] - lag[:, None]
        of_b += g[:, None] * tl.load(c + later, mask=later < TAPS, other=0.0).to(tl.float32)
        of_c += g[:, None] * tl.load(b + earlier, mask=(earlier >= 0) & inside[None, :], other=0.0).to(tl.float32)
    tl.store(grad_b + program * TAPS + at, tl.sum(of_b, 0), mask=inside)
    tl.store(grad_c + program * TAPS + at, tl.sum(of_c, 0), mask=inside)
