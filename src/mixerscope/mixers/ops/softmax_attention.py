"""Softmax attention weights under a causal mask, with or without a window."""

import torch
from torch import Tensor


def attention_weights(q: Tensor, k: Tensor, *, window: int | None = None, slopes: Tensor | None = None) -> Tensor:
    """softmax_j(q_i . k_j / sqrt(c)) [b, i, h, j] for q [b, i, h, c] and k [b, j, h, c].

    The last query stands where the last key stands. A query sees its own position and those before it; with a window
    only the `window` latest of these. `slopes` [h] takes slope * (i - j) off each score.
    """
    queries, keys = q.shape[1], k.shape[1]
    at = torch.arange(keys, device=q.device)
    behind = at[keys - queries :, None, None] - at  # [i, 1, j]: how far back the key is
    scores = torch.einsum("bihc,bjhc->bihj", q, k) * q.shape[-1] ** -0.5
    if slopes is not None:
        scores = scores - slopes[:, None] * behind
    hidden = behind < 0
    if window is not None:
        hidden = hidden | (behind >= window)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1)
