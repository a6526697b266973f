"""The selective scan as Triton kernels: the counterparts of the two operators in `mixers/ops/selective_scan.py`.

A program holds the state of one document and a block of channels, [channels, n], and walks over the positions. The
forward pass keeps the state after every few positions only; the backward pass walks back in the same strides, makes
the states in between once more and has them in registers. What several programs contribute to is written out by each
and summed afterwards, so that results do not depend on the order in which programs run.
Shapes: u, dt [m, b, t, e]; a [m, e, n]; b, c [m, b, t, n]; kept states [t // stride, m, b, e, n].
"""

# The arguments of kernels and the tuples in them are Triton's, of which type checkers know nothing.
# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false, reportIndexIssue=false
# pyright: reportReturnType=false, reportMissingImports=false, reportGeneralTypeIssues=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from mixerscope.kernels.sums import summed

CHANNELS = 32
"""Of a program: few, so that there are programs enough to hide each other's waiting."""
CELLS_PER_WARP = 512
"""Numbers of a state that a warp takes: with fewer, a thread has too little to do between two sums over its warp."""
LOG2_E = tl.constexpr(1.4426950408889634)


def forward(
    u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, stride: int, keep: bool, signed: bool
) -> tuple[Tensor, Tensor]:
    """y [m, b, t, e] and, if they are to be kept, the states after every `stride` positions, in float32."""
    u, dt, a, b, c = (tensor.contiguous() for tensor in (u, dt, a, b, c))
    (models, documents, length, channels), states = u.shape, a.shape[-1]
    y = u.new_empty(u.shape)
    kept_states = length // stride if keep else 0
    kept = u.new_empty(kept_states, models, documents, channels, states, dtype=torch.float32)
    _scan_forward[_grid(u)](
        u, dt, a, b, c, y, kept, documents, models * documents, channels,
        LENGTH=length, STRIDE=stride, KEEP=keep, SIGNED=signed, STATES=states,
        CHANNELS=CHANNELS, PADDED=_padded(states), num_warps=_warps(states),
    )  # fmt: skip
    return y, kept


def backward(
    grad: Tensor, u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, kept: Tensor, stride: int, signed: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of u, dt, a, b and c."""
    grad, u, dt, a, b, c, kept = (tensor.contiguous() for tensor in (grad, u, dt, a, b, c, kept))
    (models, documents, length, channels), states = u.shape, a.shape[-1]
    blocks = _grid(u)[1]
    grad_u, grad_dt = torch.empty_like(u), torch.empty_like(dt)
    of_a = u.new_empty(models, documents, channels, states, dtype=torch.float32)
    of_b, of_c = (u.new_empty(1, blocks, models, documents, length, states, dtype=torch.float32) for _ in "bc")
    _scan_backward[_grid(u)](
        grad, u, dt, a, b, c, kept, grad_u, grad_dt, of_a, of_b, of_c,
        documents, models * documents, channels,
        LENGTH=length, STRIDE=stride, SIGNED=signed, STATES=states,
        CHANNELS=CHANNELS, PADDED=_padded(states), num_warps=_warps(states),
    )  # fmt: skip
    grad_a, grad_b, grad_c = summed((of_a, of_b, of_c), u.dtype)
    return grad_u, grad_dt, grad_a.to(a.dtype), grad_b.view(b.shape).to(b.dtype), grad_c.view(c.shape).to(c.dtype)


def _grid(u: Tensor) -> tuple[int, int]:
    return u.shape[0] * u.shape[1], -(-u.shape[3] // CHANNELS)


def _padded(states: int) -> int:
    """The next power of two: Triton's ranges have no other lengths."""
    return 1 << (states - 1).bit_length()


def _warps(states: int) -> int:
    return min(16, max(1, CHANNELS * _padded(states) // CELLS_PER_WARP))


# LENGTH is known when a kernel is compiled, which costs a second per length and spares the loop its bookkeeping.
# Masks are always tensors and loop bounds always constants: what Triton's interpreter does not take is not used.


@triton.jit
def _transition(dt, a, SIGNED: tl.constexpr):
    """What a position leaves of the state before it, [channels, n]. Past the end dt is zero, and all is left."""
    decay = tl.exp2(dt[:, None] * a)
    return 2 * decay - 1 if SIGNED else decay


@triton.jit
def _scan_forward(
    u_at, dt_at, a_at, b_at, c_at, y_at, kept_at, documents, all_documents, channels,
    LENGTH: tl.constexpr, STRIDE: tl.constexpr, KEEP: tl.constexpr, SIGNED: tl.constexpr, STATES: tl.constexpr,
    CHANNELS: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    document = tl.program_id(0).to(tl.int64)  # of all models, one after the other
    e = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    n = tl.arange(0, PADDED)
    real_e, real_n = e < channels, n < STATES
    real = real_e[:, None] & real_n[None, :]
    cell = e[:, None] * STATES + n[None, :]
    a = tl.load(a_at + document // documents * channels * STATES + cell, real, 0.0).to(tl.float32)
    a *= LOG2_E  # powers of two are what the hardware computes
    state = tl.zeros((CHANNELS, PADDED), tl.float32)
    for start in range(0, LENGTH, STRIDE):
        # All that a stride reads is asked for at once: stores in between would keep later loads waiting.
        dts, xs, bs, cs = (), (), (), ()
        for i in tl.static_range(STRIDE):
            row = document * LENGTH + start + i
            here = tl.full((1,), start + i, tl.int32) < LENGTH
            here_e, here_n = real_e & here, real_n & here
            dt = tl.load(dt_at + row * channels + e, here_e, 0.0).to(tl.float32)
            dts += (dt,)
            xs += (dt * tl.load(u_at + row * channels + e, here_e, 0.0).to(tl.float32),)
            bs += (tl.load(b_at + row * STATES + n, here_n, 0.0).to(tl.float32),)
            cs += (tl.load(c_at + row * STATES + n, here_n, 0.0).to(tl.float32),)
        for i in tl.static_range(STRIDE):
            state = _transition(dts[i], a, SIGNED) * state + xs[i][:, None] * bs[i][None, :]
            row = document * LENGTH + start + i
            here_e = real_e & (tl.full((1,), start + i, tl.int32) < LENGTH)
            tl.store(y_at + row * channels + e, tl.sum(state * cs[i][None, :], 1), here_e)
        if KEEP:
            full = real & (tl.full((1, 1), start + STRIDE, tl.int32) <= LENGTH)
            tl.store(kept_at + (start // STRIDE * all_documents + document) * channels * STATES + cell, state, full)


@triton.jit
def _scan_backward(
    grad_at, u_at, dt_at, a_at, b_at, c_at, kept_at, grad_u_at, grad_dt_at, of_a_at, of_b_at, of_c_at,
    documents, all_documents, channels,
    LENGTH: tl.constexpr, STRIDE: tl.constexpr, SIGNED: tl.constexpr, STATES: tl.constexpr,
    CHANNELS: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    document = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1).to(tl.int64)
    e = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    n = tl.arange(0, PADDED)
    real_e, real_n = e < channels, n < STATES
    real = real_e[:, None] & real_n[None, :]
    cell = e[:, None] * STATES + n[None, :]
    a = tl.load(a_at + document // documents * channels * STATES + cell, real, 0.0).to(tl.float32)
    a *= LOG2_E  # powers of two are what the hardware computes
    of_a = tl.zeros((CHANNELS, PADDED), tl.float32)
    g = tl.zeros((CHANNELS, PADDED), tl.float32)  # the loss by the state
    strides: tl.constexpr = (LENGTH + STRIDE - 1) // STRIDE
    for back in range(strides):
        start = (strides - 1 - back) * STRIDE
        # Past the end everything is read as zero: the state stays what it is, and nothing flows back.
        dts, us, bs, cs, grads = (), (), (), (), ()
        for i in tl.static_range(STRIDE):
            row = document * LENGTH + start + i
            here = tl.full((1,), start + i, tl.int32) < LENGTH
            here_e, here_n = real_e & here, real_n & here
            dts += (tl.load(dt_at + row * channels + e, here_e, 0.0).to(tl.float32),)
            us += (tl.load(u_at + row * channels + e, here_e, 0.0).to(tl.float32),)
            bs += (tl.load(b_at + row * STATES + n, here_n, 0.0).to(tl.float32),)
            cs += (tl.load(c_at + row * STATES + n, here_n, 0.0).to(tl.float32),)
            grads += (tl.load(grad_at + row * channels + e, here_e, 0.0).to(tl.float32),)
        # The state before the stride was kept at the end of the one before; the first begins at zero.
        before = kept_at + ((start // STRIDE - 1) * all_documents + document) * channels * STATES + cell
        states = (tl.load(before, real & (tl.full((1, 1), start, tl.int32) > 0), 0.0),)
        decays = ()
        for i in tl.static_range(STRIDE):
            decays += (_transition(dts[i], a, SIGNED),)
            states += (decays[i] * states[i] + (dts[i] * us[i])[:, None] * bs[i][None, :],)
        for i in tl.static_range(STRIDE - 1, -1, -1):
            row = document * LENGTH + start + i
            here = tl.full((1,), start + i, tl.int32) < LENGTH
            here_e, here_n = real_e & here, real_n & here
            g += grads[i][:, None] * cs[i][None, :]
            part = (block * all_documents * LENGTH + row) * STATES
            tl.store(of_c_at + part + n, tl.sum(grads[i][:, None] * states[i + 1], 0), here_n)
            tl.store(of_b_at + part + n, tl.sum((dts[i] * us[i])[:, None] * g, 0), here_n)
            of_x = tl.sum(g * bs[i][None, :], 1)
            of_exponent = g * (decays[i] + 1 if SIGNED else decays[i]) * states[i]
            g *= decays[i]
            of_a += of_exponent * dts[i][:, None]
            tl.store(grad_u_at + row * channels + e, dts[i] * of_x, here_e)
            of_dt = us[i] * of_x + tl.sum(of_exponent * a, 1) * (1 / LOG2_E)
            tl.store(grad_dt_at + row * channels + e, of_dt, here_e)
    tl.store(of_a_at + document * channels * STATES + cell, of_a, real)
