"""The selective scan whose transitions reach from -1 to 1: s_t = (2 exp(dt_t A) - 1) * s_{t-1} + dt_t u_t B_t^T.

Shapes: u, dt [b, t, e]; a [e, n]; b, c [b, t, n].
"""

import torch
from torch import Tensor


def signed_scan(u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """y [b, t, e], y_t = s_t C_t, from a zero state, position by position, in float32 at least."""
    wide = torch.promote_types(u.dtype, torch.float32)
    dt_, a_, b_, c_ = (tensor.to(wide) for tensor in (dt, a, b, c))
    x = dt_ * u.to(wide)
    state = x[:, 0].unsqueeze(-1) * b_[:, 0].unsqueeze(-2)
    y = [(state * c_[:, 0].unsqueeze(-2)).sum(-1)]
    for t in range(1, x.shape[1]):
        transition = 2 * torch.exp(dt_[:, t].unsqueeze(-1) * a_) - 1
        state = transition * state + x[:, t].unsqueeze(-1) * b_[:, t].unsqueeze(-2)
        y.append((state * c_[:, t].unsqueeze(-2)).sum(-1))
    return torch.stack(y, 1).to(u.dtype)
