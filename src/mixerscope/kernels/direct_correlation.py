"""Triton bodies for the correlation by direct sums (`mixers/ops/direct_correlation.py` defines it).

One program a channel; all sums are made inside it, in a fixed order.
"""

# The arguments of kernels and the tuples in them are Triton's, of which type checkers know nothing.
# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
# pyright: reportMissingImports=false

import triton
import triton.language as tl
from torch import Tensor

from mixerscope.kernels.layout import whole_rows

AT_ONCE = 1024
"""The most taps that are held in registers at once."""
WARPS = 4


def forward(b: Tensor, c: Tensor, length: int) -> Tensor:
    """k [m, d, length]."""
    b, c = whole_rows(b), whole_rows(c)
    models, channels, taps = b.shape
    k = b.new_empty(models, channels, length)
    _correlation_forward[(models * channels,)](
        b, c, k, b.stride(0), c.stride(0), CHANNELS=channels, TAPS=taps, LENGTH=length,
        BLOCK=min(AT_ONCE, triton.next_power_of_2(taps)), PADDED=triton.next_power_of_2(length), num_warps=WARPS,
    )  # fmt: skip
    return k


def backward(grad: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of b and c."""
    grad, b, c = grad.contiguous(), whole_rows(b), whole_rows(c)
    models, channels, taps = b.shape
    grad_b, grad_c = b.new_empty(b.shape), c.new_empty(c.shape)
    _correlation_backward[(models * channels,)](
        grad, b, c, grad_b, grad_c, b.stride(0), c.stride(0), CHANNELS=channels, TAPS=taps, LENGTH=grad.shape[2],
        BLOCK=min(AT_ONCE, triton.next_power_of_2(taps)), num_warps=WARPS,
    )  # fmt: skip
    return grad_b, grad_c


@triton.jit
def _correlation_forward(
    b, c, k, b_row, c_row,
    CHANNELS: tl.constexpr, TAPS: tl.constexpr, LENGTH: tl.constexpr, BLOCK: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    model, channel = program // CHANNELS, program % CHANNELS
    b += model * b_row + channel * TAPS
    c += model * c_row + channel * TAPS
    lags = tl.arange(0, PADDED)
    sums = tl.zeros([PADDED], tl.float32)
    for start in range(0, TAPS, BLOCK):
        at = start + tl.arange(0, BLOCK)
        taps = tl.load(b + at, mask=at < TAPS, other=0.0).to(tl.float32)
        for lag in range(LENGTH):
            later = tl.load(c + at + lag, mask=at + lag < TAPS, other=0.0).to(tl.float32)
            sums += tl.where(lags == lag, tl.sum(taps * later, 0), 0.0)
    tl.store(k + program * LENGTH + lags, sums, mask=lags < LENGTH)


@triton.jit
def _correlation_backward(
    grad, b, c, grad_b, grad_c, b_row, c_row,
    CHANNELS: tl.constexpr, TAPS: tl.constexpr, LENGTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    model, channel = program // CHANNELS, program % CHANNELS
    b += model * b_row + channel * TAPS
    c += model * c_row + channel * TAPS
    for start in range(0, TAPS, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < TAPS
        of_b, of_c = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
        for lag in range(LENGTH):
            g = tl.load(grad + program * LENGTH + lag).to(tl.float32)
            of_b += g * tl.load(c + at + lag, mask=at + lag < TAPS, other=0.0).to(tl.float32)
            of_c += g * tl.load(b + at - lag, mask=inside & (at >= lag), other=0.0).to(tl.float32)
        tl.store(grad_b + program * TAPS + at, of_b, mask=inside)
        tl.store(grad_c + program * TAPS + at, of_c, mask=inside)
