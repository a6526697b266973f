"""Triton bodies for the S4D kernel (`mixers/ops/diagonal_ssm.py` defines it).

One program a head walks through all its modes in blocks. Powers are advanced by complex multiplication: as accurate
as sines of large angles in float32, and far cheaper. All sums are made inside a program, in a fixed order.
"""

# The arguments of kernels and the tuples in them are Triton's, of which type checkers know nothing.
# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
# pyright: reportMissingImports=false

import triton
import triton.language as tl
from torch import Tensor

from mixerscope.kernels.layout import whole_rows

AT_ONCE = 512
"""The most modes of a head that are held in registers at once."""
FORWARD_WARPS = 1
"""Every position is a sum over all modes: within a warp it needs no waiting for others, and half the instructions that
four warps have, of 16 modes a thread."""


def forward(a_log: Tensor, w: Tensor, b: Tensor, c: Tensor, dt: Tensor, length: int) -> Tensor:
    """The kernel [m, h, length]."""
    m, h, n = a_log.shape
    a_log, w, b, c, dt = (whole_rows(x) for x in (a_log, w, b, c, dt))
    kernel = a_log.new_empty(m, h, length)
    strides = [x.stride(0) for x in (a_log, w, b, c, dt)]
    block = min(AT_ONCE, triton.next_power_of_2(n))
    _diagonal_forward[(m * h,)](
        a_log, w, b, c, dt, kernel, *strides,
        HEADS=h, MODES=n, LENGTH=length, BLOCK=block, PADDED=triton.next_power_of_2(length), num_warps=FORWARD_WARPS,
    )  # fmt: skip
    return kernel


def backward(
    grad: Tensor, a_log: Tensor, w: Tensor, b: Tensor, c: Tensor, dt: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of a_log, w, b, c and dt."""
    m, h, n = a_log.shape
    grad, (a_log, w, b, c, dt) = grad.contiguous(), (whole_rows(x) for x in (a_log, w, b, c, dt))
    grad_a_log, grad_w, grad_b, grad_c, grad_dt = (x.new_empty(x.shape) for x in (a_log, w, b, c, dt))
    strides = [x.stride(0) for x in (a_log, w, b, c, dt)]
    block = min(AT_ONCE, triton.next_power_of_2(n))
    _diagonal_backward[(m * h,)](
        grad, a_log, w, b, c, dt, grad_a_log, grad_w, grad_b, grad_c, grad_dt, *strides,
        HEADS=h, MODES=n, LENGTH=grad.shape[2], BLOCK=block, num_warps=_warps(block),
    )  # fmt: skip
    return grad_a_log, grad_w, grad_b, grad_c, grad_dt


def _warps(block: int) -> int:
    return max(1, min(4, block // 32))


@triton.jit
def _product(a_real, a_imag, b_real, b_imag):
    return a_real * b_real - a_imag * b_imag, a_real * b_imag + a_imag * b_real


@triton.jit
def _complex(pointer, at, inside):
    real = tl.load(pointer + 2 * at, mask=inside, other=0.0).to(tl.float32)
    imag = tl.load(pointer + 2 * at + 1, mask=inside, other=0.0).to(tl.float32)
    return real, imag


@triton.jit
def _discretised(a_real, a_imag, step):
    """1 / (1 - z) and abar = (1 + z) / (1 - z) for z = step A / 2."""
    x, y = step * a_real / 2, step * a_imag / 2
    size = (1 - x) * (1 - x) + y * y
    q_real, q_imag = (1 - x) / size, y / size
    abar_real, abar_imag = _product(1 + x, y, q_real, q_imag)
    return q_real, q_imag, abar_real, abar_imag


@triton.jit
def _diagonal_forward(
    a_log, w, b, c, dt, kernel, a_log_row, w_row, b_row, c_row, dt_row,
    HEADS: tl.constexpr, MODES: tl.constexpr, LENGTH: tl.constexpr, BLOCK: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    model, head = program // HEADS, program % HEADS
    a_log += model * a_log_row + head * MODES
    w += model * w_row + head * MODES
    b += model * b_row + head * 2 * MODES
    c += model * c_row + head * 2 * MODES
    step = tl.load(dt + model * dt_row + head).to(tl.float32)
    lag = tl.arange(0, PADDED)
    sums = tl.zeros([PADDED], tl.float32)
    for start in range(0, MODES, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < MODES
        a_real = -tl.exp(tl.load(a_log + at, mask=inside, other=0.0).to(tl.float32))
        a_imag = tl.load(w + at, mask=inside, other=0.0).to(tl.float32)
        q_real, q_imag, abar_real, abar_imag = _discretised(a_real, a_imag, step)
        b_real, b_imag = _complex(b, at, inside)
        c_real, c_imag = _complex(c, at, inside)
        bc_real, bc_imag = _product(b_real, b_imag, c_real, c_imag)
        # Modes outside have B = C = 0 and add nothing.
        real, imag = _product(2 * step * bc_real, 2 * step * bc_imag, q_real, q_imag)
        for position in range(LENGTH):
            sums += tl.where(lag == position, tl.sum(real, 0), 0.0)
            real, imag = _product(real, imag, abar_real, abar_imag)
    tl.store(kernel + program * LENGTH + lag, sums, mask=lag < LENGTH)


@triton.jit
def _diagonal_backward(
    grad, a_log, w, b, c, dt, grad_a_log, grad_w, grad_b, grad_c, grad_dt,
    a_log_row, w_row, b_row, c_row, dt_row,
    HEADS: tl.constexpr, MODES: tl.constexpr, LENGTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    model, head = program // HEADS, program % HEADS
    a_log += model * a_log_row + head * MODES
    w += model * w_row + head * MODES
    b += model * b_row + head * 2 * MODES
    c += model * c_row + head * 2 * MODES
    step = tl.load(dt + model * dt_row + head).to(tl.float32)
    by_step = tl.zeros([BLOCK], tl.float32)
    for start in range(0, MODES, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < MODES
        a_real = -tl.exp(tl.load(a_log + at, mask=inside, other=0.0).to(tl.float32))
        a_imag = tl.load(w + at, mask=inside, other=0.0).to(tl.float32)
        q_real, q_imag, abar_real, abar_imag = _discretised(a_real, a_imag, step)
        # Horner's rule: value = sum_l grad[l] abar^l, and slope, its derivative by abar.
        value_real, value_imag = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
        slope_real, slope_imag = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
        for back in range(LENGTH):
            g = tl.load(grad + program * LENGTH + LENGTH - 1 - back).to(tl.float32)
            slope_real, slope_imag = _product(slope_real, slope_imag, abar_real, abar_imag)
            slope_real += value_real
            slope_imag += value_imag
            value_real, value_imag = _product(value_real, value_imag, abar_real, abar_imag)
            value_real += g
        b_real, b_imag = _complex(b, at, inside)
        c_real, c_imag = _complex(c, at, inside)
        bc_real, bc_imag = _product(b_real, b_imag, c_real, c_imag)
        # The chain rule, step by step as in the plain body: bc q, then by z, by B C, by dt.
        bcq_real, bcq_imag = _product(bc_real, bc_imag, q_real, q_imag)
        slope_real, slope_imag = _product(2 * slope_real, 2 * slope_imag, q_real, q_imag)
        sum_real, sum_imag = _product(value_real + slope_real, value_imag + slope_imag, q_real, q_imag)
        z_real, z_imag = _product(step * bcq_real, step * bcq_imag, sum_real, sum_imag)
        by_bc_real, by_bc_imag = _product(2 * step * value_real, 2 * step * value_imag, q_real, q_imag)
        by_step += 2 * (value_real * bcq_real - value_imag * bcq_imag) + z_real * a_real - z_imag * a_imag
        by_b_real, by_b_imag = _product(by_bc_real, by_bc_imag, c_real, c_imag)
        by_c_real, by_c_imag = _product(by_bc_real, by_bc_imag, b_real, b_imag)
        out = program * MODES + at
        tl.store(grad_a_log + out, (step * z_real * a_real), mask=inside)
        tl.store(grad_w + out, (-step * z_imag), mask=inside)
        tl.store(grad_b + 2 * out, by_b_real, mask=inside)
        tl.store(grad_b + 2 * out + 1, (-by_b_imag), mask=inside)
        tl.store(grad_c + 2 * out, by_c_real, mask=inside)
        tl.store(grad_c + 2 * out + 1, (-by_c_imag), mask=inside)
    tl.store(grad_dt + program, tl.sum(by_step, 0))
