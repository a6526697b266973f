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
    for chunk in zip(*(x.split(CHUNK, 1) for x in (r, log_decay, k, v, n, d)), strict=True):
        out, state = _chunk(state, *chunk)
        parts.append(out)
    return torch.cat(parts, 1)


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
    total = log_decay.cumsum(1)
    before = total - log_decay  # position i looks up in S_{i-1}, which its own decay has not touched yet
    # found_i = S_{i-1}^T n_i is a decayed sum over j < i of what was written, less what was taken away: a
    # triangular system, since found_i depends on the found_j before it.
    lookup = n.unsqueeze(2) * channel_decay(total, before, diagonal=-1)  # [b, i, j, h, c]
    known = torch.einsum("bijhc,bjhc,bjhe->bhie", lookup, k, v)
    if state is not None:
        known = known + torch.einsum("bihc,bhce->bhie", n * before.exp(), state)
    taken = torch.einsum("bijhc,bjhc->bhij", lookup, d)
    found = torch.linalg.solve_triangular(taken, known, upper=False, unitriangular=True).transpose(1, 2)
    readout = r.unsqueeze(2) * channel_decay(total, total, diagonal=0)
    out = torch.einsum("bijhc,bjhc,bjhe->bihe", readout, k, v)
    out = out - torch.einsum("bijhc,bjhc,bjhe->bihe", readout, d, found)
    last = total[:, -1]
    left = (last.unsqueeze(1) - total).exp()
    after = torch.einsum("bjhc,bjhe->bhce", k * left, v) - torch.einsum("bjhc,bjhe->bhce", d * left, found)
    if state is not None:
        out = out + torch.einsum("bihc,bhce->bihe", r * total.exp(), state)
        after = after + last.exp().unsqueeze(-1) * state
    return out, after
