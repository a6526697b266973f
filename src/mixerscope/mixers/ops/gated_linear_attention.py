"""Linear attention with a decay per key channel: S_t = diag(a_t) S_{t-1} + k_t v_t^T,  o_t = S_t^T q_t  (GLA).

Shapes: q, k, log_decay = log a [b, t, h, c]; v [b, t, h, e]; the state S [b, h, c, e].
"""

import torch
from torch import Tensor

CHUNK = 16
"""Positions handled as pairs at once; memory grows with it, the number of sequential steps shrinks."""


def gated_linear_attention(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> Tensor:
    """o [b, t, h, e] from a zero state. All exponents are sums of logs of decays, so none is positive."""
    parts: list[Tensor] = []
    state: Tensor | None = None
    for chunk in zip(*(x.split(CHUNK, 1) for x in (q, k, v, log_decay)), strict=True):
        out, state = _chunk(state, *chunk)
        parts.append(out)
    return torch.cat(parts, 1)


def gated_linear_attention_step(
    state: Tensor, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor
) -> tuple[Tensor, Tensor]:
    """One position: S_{t-1}, q, k, log_decay [b, h, c] and v [b, h, e] to o_t [b, h, e] and S_t."""
    state = log_decay.exp().unsqueeze(-1) * state + k.unsqueeze(-1) * v.unsqueeze(-2)
    return torch.einsum("bhc,bhce->bhe", q, state), state


def channel_decay(since: Tensor, until: Tensor, *, diagonal: int) -> Tensor:
    """exp(until_i - since_j) [b, i, j, h, c] for running sums of log decays; zero where j > i + diagonal."""
    t = since.shape[1]
    hidden = torch.ones(t, t, dtype=torch.bool, device=since.device).triu(1 + diagonal)
    exponent = until.unsqueeze(2) - since.unsqueeze(1)
    return exponent.masked_fill(hidden[:, :, None, None], float("-inf")).exp()


def _chunk(state: Tensor | None, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> tuple[Tensor, Tensor]:
    total = log_decay.cumsum(1)  # decay since the start of the chunk
    decay = channel_decay(total, total, diagonal=0)
    scores = torch.einsum("bihc,bjhc,bijhc->bijh", q, k, decay)
    out = torch.einsum("bijh,bjhe->bihe", scores, v)
    last = total[:, -1]  # [b, h, c]
    after = torch.einsum("bjhc,bjhe->bhce", k * (last.unsqueeze(1) - total).exp(), v)
    if state is not None:
        out = out + torch.einsum("bihc,bhce->bihe", q * total.exp(), state)
        after = after + last.exp().unsqueeze(-1) * state
    return out, after
