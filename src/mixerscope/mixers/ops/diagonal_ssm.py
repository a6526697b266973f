"""S4D: a diagonal state space model, in real arithmetic so that it stacks and compiles like everything else.

A = -exp(a_log) + i w, discretised by the bilinear rule with step dt:
abar = (1 + dt A / 2) / (1 - dt A / 2), cbar = B C dt / (1 - dt A / 2), kernel[l] = 2 Re sum_n cbar_n abar_n^l.
"""

import torch
from torch import Tensor


def diagonal_kernel(a_log: Tensor, w: Tensor, b: Tensor, c: Tensor, dt: Tensor, length: int) -> Tensor:
    """[h, length]: the first lags. a_log, w [h, n]; b, c [h, n, 2] real and imaginary parts; dt [h]."""
    log_size, angle, (real, imaginary) = discretise(a_log, w, b, c, dt)
    lag = torch.arange(length, dtype=a_log.dtype, device=a_log.device)
    size, turn = torch.exp(log_size[..., None] * lag), angle[..., None] * lag  # [h, n, l]
    return 2 * (size * (real[..., None] * turn.cos() - imaginary[..., None] * turn.sin())).sum(1)


def discretise(
    a_log: Tensor, w: Tensor, b: Tensor, c: Tensor, dt: Tensor
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """log |abar|, the angle of abar, and cbar as (real, imaginary), each [h, n]."""
    half = dt[:, None] / 2
    x, y = -half * a_log.exp(), half * w  # dt A / 2
    up, down = (1 + x).square() + y.square(), (1 - x).square() + y.square()
    log_size = (up.log() - down.log()) / 2
    angle = torch.atan2(y, 1 + x) + torch.atan2(y, 1 - x)
    # B C times dt / (1 - dt A / 2) = dt (1 - x + i y) / |1 - dt A / 2|^2.
    (b_real, b_imag), (c_real, c_imag) = b.unbind(-1), c.unbind(-1)
    bc_real, bc_imag = b_real * c_real - b_imag * c_imag, b_real * c_imag + b_imag * c_real
    scale = dt[:, None] / down
    return log_size, angle, (scale * (bc_real * (1 - x) - bc_imag * y), scale * (bc_real * y + bc_imag * (1 - x)))
