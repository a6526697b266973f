"""The gated delta rule: S_t = a_t (I - b_t k_t k_t^T) S_{t-1} + b_t k_t v_t^T,  o_t = S_t^T q_t  (Gated DeltaNet).

Shapes: q, k [b, t, h, c]; v [b, t, h, e]; beta = b and log_decay = log a [b, t, h]; the state S [b, h, c, e].
"""

import torch
from torch import Tensor

from mixerscope.mixers.ops.decay_attention import pairwise_log_decay


def gated_delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor) -> Tensor:
    """o [b, t, h, e] from a zero state, as one triangular system a head.

    What position i really writes is u_i = b_i (v_i - what the decayed memory already returns for k_i), which makes
    S_t a decayed sum of k_j u_j^T and U the solution of (I + A) U = diag(b) V with A strictly lower triangular.
    """
    decay = pairwise_log_decay(log_decay).exp()  # [b, h, i, j]
    rate = beta.transpose(1, 2).unsqueeze(-1)  # [b, h, i, 1]
    overlap = (torch.einsum("bihc,bjhc->bhij", k, k) * decay * rate).tril(-1)
    written = torch.linalg.solve_triangular(overlap, rate * v.transpose(1, 2), upper=False, unitriangular=True)
    return torch.einsum("bhij,bhje->bihe", torch.einsum("bihc,bjhc->bhij", q, k) * decay, written)


def gated_delta_rule_step(
    state: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor
) -> tuple[Tensor, Tensor]:
    """One position: S_{t-1}, q, k [b, h, c], v [b, h, e], beta and log_decay [b, h] to o_t [b, h, e] and S_t."""
    state = log_decay.exp()[..., None, None] * state
    written = beta.unsqueeze(-1) * (v - torch.einsum("bhc,bhce->bhe", k, state))
    state = state + k.unsqueeze(-1) * written.unsqueeze(-2)
    return torch.einsum("bhc,bhce->bhe", q, state), state
