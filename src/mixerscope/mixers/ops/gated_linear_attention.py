"""Linear attention with a decay per key channel: S_t = diag(a_t) S_{t-1} + k_t v_t^T,  o_t = S_t^T q_t  (GLA).

Shapes: q, k, log_decay = log a [b, t, h, c]; v [b, t, h, e]; the state S [b, h, c, e].
"""

import torch
from torch import Tensor

CHUNK = 8
"""Positions handled as pairs at once; memory grows with it, the number of sequential steps shrinks."""


def gated_linear_attention(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> Tensor:
    """o [b, t, h, e] from a zero state. All exponents are sums of logs of decays, so none is positive."""
    parts: list[Tensor] = []
    state: Tensor | None = None
    by_head = [x.transpose(1, 2).split(CHUNK, 2) for x in (q, k, v, log_decay)]
    for chunk in zip(*by_head, strict=True):
        out, state = _chunk(state, *chunk)
        parts.append(out)
    return torch.cat(parts, 2).transpose(1, 2)


def gated_linear_attention_step(
    state: Tensor, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor
) -> tuple[Tensor, Tensor]:
    """One position: S_{t-1}, q, k, log_decay [b, h, c] and v [b, h, e] to o_t [b, h, e] and S_t."""
    state = log_decay.exp().unsqueeze(-1) * state + k.unsqueeze(-1) * v.unsqueeze(-2)
    return torch.einsum("bhc,bhce->bhe", q, state), state


def channel_decay(until: Tensor, since: Tensor, *, diagonal: int) -> Tensor:
    """exp(until_i - since_j) [b, h, i, j, c] for running sums of log decays; zero where j > i + diagonal."""
    t = since.shape[2]
    hidden = torch.ones(t, t, dtype=torch.bool, device=since.device).triu(1 + diagonal)
    exponent = until.unsqueeze(3) - since.unsqueeze(2)
    return exponent.masked_fill(hidden.unsqueeze(-1), float("-inf")).exp()


def _chunk(state: Tensor | None, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> tuple[Tensor, Tensor]:
    total = log_decay.cumsum(2)  # [b, h, t, c]: decay since the start of the chunk
    left = k.unsqueeze(2) * channel_decay(total, total, diagonal=0)  # [b, h, i, j, c]: what is left of k_j at i
    out = (left @ q.unsqueeze(-1)).squeeze(-1) @ v
    last = total[:, :, -1:]
    after = (k * (last - total).exp()).mT @ v
    if state is not None:
        out = out + (q * total.exp()) @ state
        after = after + last.exp().mT * state
    return out, after
