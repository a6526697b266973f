"""Softmax attention weights under a causal mask, with or without a window."""

import torch
from torch import Tensor


def attention_weights(q: Tensor, k: Tensor, window: int | None = None) -> Tensor:
    """softmax_j(q_i . k_j / sqrt(c)) [b, i, h, j] for q [b, i, h, c] and k [b, j, h, c].

    The last query stands at the last key. A query sees its own position and those before it; with a window only the
    `window` latest of these.
    """
    queries, keys = q.shape[1], k.shape[1]
    scores = torch.einsum("bihc,bjhc->bihj", q, k) * q.shape[-1] ** -0.5
    positions = torch.arange(keys, device=q.device)
    distance = positions[keys - queries :, None] - positions  # [i, j]
    hidden = distance < 0
    if window is not None:
        hidden = hidden | (distance >= window)
    return scores.masked_fill(hidden[:, None, :], float("-inf")).softmax(-1)
