"""The generalised delta rule: S_t = (diag(w_t) - d_t n_t^T) S_{t-1} + k_t v_t^T,  o_t = S_t^T r_t  (RWKV-7).

n_t is the key whose content is looked up, d_t the direction in which it is taken away (RWKV-7: d_t = a_t * n_t).
Shapes: r, k, n, d, log_decay = log w [b, t, h, c]; v [b, t, h, e]; the state S [b, h, c, e], keys before values:
the transpose of how the RWKV papers write it.
"""

import torch
from torch import Tensor

from mixerscope.mixers.ops.gated_linear_attention import CHUNK, channel_decay


def generalised_delta_rule(r: Tensor, log_decay: Tensor, k: Tensor, v: Tensor, n: Tensor, d: Tensor) -> Tensor:
    """o [b, t, h, e] from a zero state: a triangular system for each chunk, the state carried between chunks."""
    parts: list[Tensor] = []
    state: Tensor | None = None
    by_head = [x.transpose(1, 2).split(CHUNK, 2) for x in (r, log_decay, k, v, n, d)]
    for chunk in zip(*by_head, strict=True):
        out, state = _chunk(state, *chunk)
        parts.append(out)
    return torch.cat(parts, 2).transpose(1, 2)


def generalised_delta_rule_step(
    state: Tensor, r: Tensor, log_decay: Tensor, k: Tensor, v: Tensor, n: Tensor, d: Tensor
) -> tuple[Tensor, Tensor]:
    """One position: S_{t-1}, r, log_decay, k, n, d [b, h, c] and v [b, h, e] to o_t [b, h, e] and S_t."""
    found = torch.einsum("bhc,bhce->bhe", n, state)
    decayed = log_decay.exp().unsqueeze(-1) * state
    state = decayed - d.unsqueeze(-1) * found.unsqueeze(-2) + k.unsqueeze(-1) * v.unsqueeze(-2)
    return torch.einsum("bhc,bhce->bhe", r, state), state


def _chunk(
    state: Tensor | None, r: Tensor, log_decay: Tensor, k: Tensor, v: Tensor, n: Tensor, d: Tensor
) -> tuple[Tensor, Tensor]:
    t = k.shape[2]  # all of [b, h, t, ...]
    total = log_decay.cumsum(2)
    before = total - log_decay  # position i looks up in S_{i-1}, which its own decay has not touched yet
    # What i sees of j < i: of the written k_j and the taken d_j, looked up with n_i or read with r_i a decay later.
    left = torch.cat([k, d], 2).unsqueeze(2) * channel_decay(before, total, diagonal=-1).repeat(1, 1, 1, 2, 1)
    seen = left @ torch.stack([n, r * log_decay.exp()], -1)  # [b, h, i, 2 j, 2]
    lookup_written, lookup_taken = seen[..., 0].split(t, -1)
    read_written, read_taken = seen[..., 1].split(t, -1)
    # found_i = S_{i-1}^T n_i depends on the found_j before it, which were taken away: a triangular system.
    known = lookup_written @ v
    if state is not None:
        known = known + (n * before.exp()) @ state
    found = torch.linalg.solve_triangular(lookup_taken, known, upper=False, unitriangular=True)
    out = read_written @ v - read_taken @ found
    out = out + (r * k).sum(-1, keepdim=True) * v - (r * d).sum(-1, keepdim=True) * found
    last = total[:, :, -1:]
    remains = (last - total).exp()
    after = (k * remains).mT @ v - (d * remains).mT @ found
    if state is not None:
        out = out + (r * total.exp()) @ state
        after = after + last.exp().mT * state
    return out, after
