"""The delta rule: a memory matrix that replaces what it held at a key instead of adding to it.

S_t = S_{t-1} + beta_t k_t (v_t - S_{t-1}^T k_t)^T,  o_t = S_t^T q_t.
"""

import torch
from torch import Tensor


def delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """o [b, t, h, e] for q, k [b, t, h, c], v [b, t, h, e] and beta [b, t, h], from an empty memory.

    What is written at t, u_t = beta_t (v_t - sum_{j<t} (k_j . k_t) u_j), is a triangular system in u; solving it
    gives all positions at once, and o_t = sum_{j<=t} (q_t . k_j) u_j.
    """
    q, k, v, beta = (x.transpose(1, 2) for x in (q, k, v, beta))  # [b, h, t, ...]
    beta = beta.unsqueeze(-1)
    overlap = (beta * (k @ k.mT)).tril(-1)
    # The diagonal is not read: `unitriangular` takes it as ones.
    written = torch.linalg.solve_triangular(overlap, beta * v, upper=False, unitriangular=True)
    return ((q @ k.mT).tril() @ written).transpose(1, 2)


def delta_step(memory: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """One position: memory [b, h, c, e], q, k [b, h, c], v [b, h, e], beta [b, h] to o [b, h, e] and the new memory."""
    held = torch.einsum("bhce,bhc->bhe", memory, k)
    memory = memory + torch.einsum("bhc,bhe->bhce", k, beta[..., None] * (v - held))
    return torch.einsum("bhce,bhc->bhe", memory, q), memory
