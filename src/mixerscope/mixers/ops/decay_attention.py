"""Linear attention with one decay per head: S_t = a_t S_{t-1} + k_t v_t^T,  o_t = S_t^T q_t  (RetNet, Mamba-2).

Shapes: q, k [b, t, h, c], or [b, t, 1, c] where heads share them; v [b, t, h, e]; log_decay = log a [b, t, h], or
[1, t, h] where documents share it; the state S [b, h, c, e].
"""

import torch
from torch import Tensor


def decay_attention(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> Tensor:
    """o [b, t, h, e] from a zero state, as one masked t x t matrix a head: no exponent is ever positive."""
    scores = torch.einsum("bihc,bjhc->bhij", q, k)
    return torch.einsum("bhij,bjhe->bihe", scores * pairwise_log_decay(log_decay).exp(), v)


def decay_attention_step(state: Tensor, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> tuple[Tensor, Tensor]:
    """One position: S_{t-1}, q, k [b, h, c], v [b, h, e] and log_decay [b, h] to o_t [b, h, e] and S_t."""
    state = log_decay.exp()[..., None, None] * state + k.unsqueeze(-1) * v.unsqueeze(-2)
    return torch.einsum("bhc,bhce->bhe", q, state), state


def pairwise_log_decay(log_decay: Tensor) -> Tensor:
    """[b, t, h] -> [b, h, i, j]: the sum over j < s <= i, and -inf where j > i.

    Summed for each pair and not as a difference of running sums, which loses digits once the sums are large.
    """
    t = log_decay.shape[1]
    ones = torch.ones(t, t, dtype=log_decay.dtype, device=log_decay.device)
    sums = (log_decay.transpose(1, 2).unsqueeze(-1) * ones.tril(-1)).cumsum(-2)
    return sums.masked_fill(ones.triu(1).bool(), float("-inf"))
