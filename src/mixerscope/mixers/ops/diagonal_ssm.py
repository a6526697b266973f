"""S4D: the convolution kernel of a diagonal state space model.

A = -exp(a_log) + i w, discretised by the bilinear rule with step dt; z = dt A / 2:
abar = (1 + z) / (1 - z), cbar = B C dt / (1 - z), kernel[l] = 2 Re sum_n cbar_n abar_n^l.

One operator from the parameters to the kernel: as separate operations it would write tensors of all modes times all
lags to memory several times over. It has a leading stack axis, one batching rule and one gradient.
Shapes: a_log, w [m, h, n]; b, c [m, h, n, 2] real and imaginary parts; dt [m, h]; kernel [m, h, t].
"""

import torch
from torch import Tensor

from mixerscope.kernels import body
from mixerscope.mixers.ops.operator import stacked_operator


def diagonal_kernel(a_log: Tensor, w: Tensor, b: Tensor, c: Tensor, dt: Tensor, length: int) -> Tensor:
    """[h, length]: the first lags. a_log, w [h, n]; b, c [h, n, 2]; dt [h]."""
    return _kernel(a_log[None], w[None], b[None], c[None], dt[None], length).squeeze(0)


def discretise(a_log: Tensor, w: Tensor, b: Tensor, c: Tensor, dt: Tensor) -> tuple[Tensor, Tensor]:
    """abar and cbar, complex [..., h, n]."""
    a, b, c, dt = _complex(a_log, w, b, c, dt)
    below = 1 - dt * a / 2
    return (1 + dt * a / 2) / below, b * c * dt / below


def _complex(a_log: Tensor, w: Tensor, b: Tensor, c: Tensor, dt: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A, B, C as complex numbers, and dt to go with them; there are none of half precision."""
    real = torch.promote_types(a_log.dtype, torch.float32)
    a_log, w, b, c, dt = (x.to(real) for x in (a_log, w, b, c, dt))
    return torch.complex(-a_log.exp(), w), torch.complex(*b.unbind(-1)), torch.complex(*c.unbind(-1)), dt[..., None]


def _forward(a_log: Tensor, w: Tensor, b: Tensor, c: Tensor, dt: Tensor, length: int) -> Tensor:
    inputs = (a_log, w, b, c, dt, length)
    return body("diagonal_kernel", inputs, plain_diagonal_kernel)(*inputs)


def _backward(
    grad: Tensor, a_log: Tensor, w: Tensor, b: Tensor, c: Tensor, dt: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    inputs = (grad, a_log, w, b, c, dt)
    return body("diagonal_kernel_backward", inputs, plain_diagonal_kernel_backward)(*inputs)


def plain_diagonal_kernel(a_log: Tensor, w: Tensor, b: Tensor, c: Tensor, dt: Tensor, length: int) -> Tensor:
    """The kernel [m, h, length]."""
    # Lag by lag, so that no tensor of all modes times all lags is made.
    abar, term = discretise(a_log, w, b, c, dt)
    lags: list[Tensor] = []
    for lag in range(length):
        if lag:
            term = term * abar
        lags.append(term.real.sum(-1))
    return (2 * torch.stack(lags, -1)).to(a_log.dtype)


def plain_diagonal_kernel_backward(
    grad: Tensor, a_log: Tensor, w: Tensor, b: Tensor, c: Tensor, dt: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of a_log, w, b, c and dt."""
    a, b_, c_, dt_ = _complex(a_log, w, b, c, dt)
    q = 1 / (1 - dt_ * a / 2)
    abar, bc = (1 + dt_ * a / 2) * q, b_ * c_
    # Horner's rule: value = sum_l grad[l] abar^l, and slope, its derivative by abar.
    value, slope = torch.zeros_like(abar), torch.zeros_like(abar)
    for g in grad.to(dt_.dtype).unsqueeze(-1).unbind(-2)[::-1]:
        slope = torch.addcmul(value, slope, abar)
        value = value * abar + g
    # The loss changes by 2 Re(value dcbar + cbar slope dabar); what follows is the chain rule through z and B C.
    by_z = bc * dt_ * q.square() * (value + 2 * q * slope)
    by_bc = 2 * value * dt_ * q
    grad_dt = (2 * value * bc * q + by_z * a).real.sum(-1)
    kind = a_log.dtype
    grad_a_log, grad_w = (dt_ * by_z.real * a.real).to(kind), (-dt_ * by_z.imag).to(kind)
    return grad_a_log, grad_w, _parts(by_bc * c_).to(kind), _parts(by_bc * b_).to(kind), grad_dt.to(kind)


def _parts(by: Tensor) -> Tensor:
    """The gradient [..., 2] by real and imaginary part of x, where the loss changes by Re(by dx)."""
    return torch.view_as_real(by.conj().resolve_conj())


def _empty(a_log: Tensor, w: Tensor, b: Tensor, c: Tensor, dt: Tensor, length: int) -> Tensor:
    return a_log.new_empty(*a_log.shape[:2], length)


_kernel, _kernel_backward = stacked_operator("diagonal_kernel", _forward, _backward, _empty)
