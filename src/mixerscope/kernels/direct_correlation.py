"""Triton bodies for the correlation by direct sums (`mixers/ops/direct_correlation.py` defines it).

One product at a time, each tap would be read once for every lag. So taps are taken in short blocks and the sums made by
matrix products. Forward, with b's blocks as rows [p, r] and beside each what c holds from its first tap on [p, s],
sums[r, s] = sum_p b[p, r] c[p, s], and a lag is a diagonal of it, s - r. Backward, the gradients of the lags stand on
these diagonals: grad_b[p, r] = sum_s c[p, s] grad[s - r], and grad_c likewise from the taps of b before. A tap is then
read as often as blocks reach over it. All sums are made inside a program, in a fixed order.
"""

# The arguments of kernels and the tuples in them are Triton's, of which type checkers know nothing.
# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
# pyright: reportMissingImports=false

import triton
import triton.language as tl
from torch import Tensor

from mixerscope.kernels.layout import whole_rows

BLOCK, REACH = 16, 64
"""Taps of a block, the fewest that fill a product, and how far it reaches: over 48 lags, which 35 positions need.
Twice as many taps would be read half as often, but 35 lags do not fit into a reach of 64 then."""
BLOCKS, WARPS = 64, 2
"""Blocks of a program's product: all of 1024 taps, so that all reading is under way at once."""
BACKWARD_BLOCKS, BACKWARD_WARPS = 64, 2


def forward(b: Tensor, c: Tensor, length: int) -> Tensor:
    """k [m, d, length]."""
    b, c = whole_rows(b), whole_rows(c)
    models, channels, taps = b.shape
    k = b.new_empty(models, channels, length)
    reach = _reach(length)
    _correlation_forward[(models * channels, triton.cdiv(length, reach - BLOCK))](
        b, c, k, b.stride(0), c.stride(0), CHANNELS=channels, TAPS=taps, LENGTH=length,
        BLOCK=BLOCK, REACH=reach, BLOCKS=_blocks(taps, BLOCKS), num_warps=WARPS,
    )  # fmt: skip
    return k


def backward(grad: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of b and c."""
    grad, b, c = grad.contiguous(), whole_rows(b), whole_rows(c)
    models, channels, taps = b.shape
    length, blocks = grad.shape[2], _blocks(taps, BACKWARD_BLOCKS)
    grad_b, grad_c = b.new_empty(b.shape), c.new_empty(c.shape)
    _correlation_backward[(models * channels, triton.cdiv(taps, blocks * BLOCK), 2)](
        grad, b, c, grad_b, grad_c, b.stride(0), c.stride(0), CHANNELS=channels, TAPS=taps, LENGTH=length,
        BLOCK=BLOCK, REACH=_reach(length), BLOCKS=blocks, num_warps=BACKWARD_WARPS,
    )  # fmt: skip
    return grad_b, grad_c


def _reach(length: int) -> int:
    return min(REACH, triton.next_power_of_2(length + BLOCK))


def _blocks(taps: int, most: int) -> int:
    """A product has 16 terms at least."""
    return min(most, max(16, triton.next_power_of_2(triton.cdiv(taps, BLOCK))))


@triton.jit
def _correlation_forward(
    b, c, k, b_row, c_row,
    CHANNELS: tl.constexpr, TAPS: tl.constexpr, LENGTH: tl.constexpr,
    BLOCK: tl.constexpr, REACH: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    b += program // CHANNELS * b_row + program % CHANNELS * TAPS
    c += program // CHANNELS * c_row + program % CHANNELS * TAPS
    LAGS: tl.constexpr = REACH - BLOCK  # a whole number of blocks, so that rows of c begin where 16 bytes do
    first = tl.program_id(1) * LAGS
    r, s = tl.arange(0, BLOCK), tl.arange(0, REACH)
    sums = tl.zeros([BLOCK, REACH], tl.float32)
    for start in range(0, TAPS, BLOCKS * BLOCK):
        begin = start + BLOCK * tl.arange(0, BLOCKS)
        here, later = begin[None, :] + r[:, None], first + begin[:, None] + s[None, :]
        of_b = tl.load(b + here, mask=here < TAPS, other=0.0).to(tl.float32)
        of_c = tl.load(c + later, mask=later < TAPS, other=0.0).to(tl.float32)
        sums = _add_product(sums, of_b, of_c)
    # Row r begins with lag -r: moved by r, all rows begin with the first lag, and end with what is left out below.
    lags = tl.sum(tl.gather(sums, (r[:, None] + s[None, :]) % REACH, 1), 0)
    tl.store(k + program * LENGTH + first + s, lags.to(k.dtype.element_ty), mask=(s < LAGS) & (first + s < LENGTH))


@triton.jit
def _correlation_backward(
    grad, b, c, grad_b, grad_c, b_row, c_row,
    CHANNELS: tl.constexpr, TAPS: tl.constexpr, LENGTH: tl.constexpr,
    BLOCK: tl.constexpr, REACH: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    # They share nothing but the gradient of the lags; apart, each needs half the registers.
    if tl.program_id(2) == 0:
        _gradient(grad, c, grad_b, c_row, True, CHANNELS, TAPS, LENGTH, BLOCK, REACH, BLOCKS)
    else:
        _gradient(grad, b, grad_c, b_row, False, CHANNELS, TAPS, LENGTH, BLOCK, REACH, BLOCKS)


@triton.jit
def _gradient(
    grad, other, found, row, LATER: tl.constexpr,
    CHANNELS: tl.constexpr, TAPS: tl.constexpr, LENGTH: tl.constexpr,
    BLOCK: tl.constexpr, REACH: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """That of one factor, from the taps of the other: the later ones of c, the earlier ones of b."""
    program = tl.program_id(0).to(tl.int64)
    other += program // CHANNELS * row + program % CHANNELS * TAPS
    begin = (tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)) * BLOCK
    r, s = tl.arange(0, BLOCK), tl.arange(0, REACH)
    total = tl.zeros([BLOCKS, BLOCK], tl.float32)
    for reached in range(0, LENGTH + BLOCK - 1, REACH):
        if LATER:
            away = reached + s
            lag = away[:, None] - r[None, :]
        else:
            away = BLOCK - REACH - reached + s
            lag = r[None, :] - away[:, None]
        of_lags = tl.load(grad + program * LENGTH + lag, mask=(lag >= 0) & (lag < LENGTH), other=0.0).to(tl.float32)
        there = begin[:, None] + away[None, :]
        taps = tl.load(other + there, mask=(there >= 0) & (there < TAPS), other=0.0).to(tl.float32)
        total = _add_product(total, taps, of_lags)
    here = begin[:, None] + r[None, :]
    tl.store(found + program * TAPS + here, total.to(found.dtype.element_ty), mask=here < TAPS)


@triton.jit
def _add_product(total, x, y):
    """As "tf32x3" does, three products of tensor cores of the leading bits and of what they leave; only that leading
    bits are cut off and not rounded, which takes two instructions a number where that takes five."""
    large_x, large_y = _leading_bits(x), _leading_bits(y)
    total = tl.dot(x - large_x, large_y, total, input_precision="tf32")
    total = tl.dot(large_x, y - large_y, total, input_precision="tf32")
    return tl.dot(large_x, large_y, total, input_precision="tf32")


@triton.jit
def _leading_bits(x):
    """Ten bits of the fraction, as tensor cores read them."""
    return (x.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
