"""Causal softmax attention."""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mixerscope.errors import UserError
from mixerscope.mixers.base import InitRule, Mixer, Mover, State, init_linears, init_output
from mixerscope.mixers.ops.residual_attention import LONGEST, alibi_slopes, residual_attention
from mixerscope.mixers.ops.rotary import rotate
from mixerscope.mixers.ops.softmax_attention import attention_weights
from mixerscope.sites import Site


class Attention(Mixer):
    """Multi-head causal self-attention (Vaswani et al. 2017): o_t = sum_{j<=t} softmax_j(q_t . k_j / sqrt(d_h)) v_j.

    `relative` puts positions inside attention: `rope` turns queries and keys by their position (Su et al. 2021),
    `alibi` takes slope * (t - j) off the score, with slopes 2^(-8 i / heads) (Press et al. 2022). With either, the
    model has no learned positions unless they are asked for.
    """

    wants_positions = True
    equation = "o_t = sum_{j<=t} softmax_j(q_t . k_j / sqrt(d_h)) v_j;  y = W_o o + b"
    paper = "Vaswani et al. 2017, Attention is all you need"
    movers = (Mover("attention", "heads_out"),)

    def __init__(self, width: int, *, heads: int = 1, relative: Literal["none", "rope", "alibi"] = "none") -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise UserError(f"attention: width = {width} is not divisible by heads = {heads}")
        if relative == "rope" and width // heads % 2:
            raise UserError(f"attention: rope needs an even head dimension, got width / heads = {width // heads}")
        self.heads, self.relative = heads, relative
        self.qkv_proj = nn.Linear(width, 3 * width, bias=False)
        self.out_proj = nn.Linear(width, width)
        self.q = Site(heads=self.heads)  # [b, t, h, d_h], before any rotation
        self.k = Site(heads=self.heads)  # [b, t, h, d_h], before any rotation
        self.v = Site(heads=self.heads)  # [b, t, h, d_h]
        self.pattern = Site(heads=self.heads)  # [b, t, h, t]: document, query position, head, key position
        self.heads_out = Site(heads=self.heads)  # [b, t, h, d_h]

    @classmethod
    def order_blind(cls, options: Mapping[str, Any]) -> bool:
        return options.get("relative", "none") == "none"

    def init_weights(self, rng: torch.Generator, rule: InitRule) -> None:
        init_linears(self, rng, rule)
        init_output(self.out_proj, rng, rule)

    def _project(self, x: Tensor) -> tuple[Tensor, ...]:
        """[b, t, d] -> q, k, v, each [b, t, h, d_h]."""
        b, t, d = x.shape
        return self.qkv_proj(x).view(b, t, 3, self.heads, d // self.heads).unbind(2)

    def _weights(self, q: Tensor, k: Tensor) -> Tensor:
        """q [b, t, h, c], k [b, s, h, c] -> [b, t, h, s]; the last query stands where the last key stands."""
        slopes: Tensor | None = None
        if self.relative == "alibi":
            slopes = alibi_slopes(self.heads, q)
        return attention_weights(q, k, slopes=slopes)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self._project(x)
        q, k, v = self.q(q), self.k(k), self.v(v)
        if self.relative == "rope":
            q, k = rotate(q), rotate(k)
        pattern = self.pattern(self._weights(q, k))
        out = self.heads_out(torch.einsum("bths,bshc->bthc", pattern, v))
        return self.out_proj(out.flatten(2))

    def residual(self, x: Tensor, norm: nn.LayerNorm) -> Tensor | None:
        if self.relative == "rope" or x.shape[1] > LONGEST:
            return None
        return residual_attention(x, norm, self.qkv_proj, self.out_proj, self.heads, self.relative == "alibi")

    def forward_at(self, x: Tensor, at: Tensor) -> Tensor:
        """One query per document: keys and values need not be computed, since q . (W_k x) = (W_k^T q) . x."""
        if self.relative != "none":
            return super().forward_at(x, at)
        w_q, w_k, w_v = self.qkv_proj.weight.view(3, self.heads, -1, x.shape[-1])  # [h, c, d] each
        q = torch.einsum("bd,hcd->bhc", x[torch.arange(len(x), device=x.device), at], w_q)
        seen_by = torch.einsum("bhc,hcd->bhd", q, w_k)
        scores = torch.einsum("bhd,bsd->bhs", seen_by, x) * q.shape[-1] ** -0.5
        later = torch.arange(x.shape[1], device=x.device) > at[:, None, None]
        pattern = scores.masked_fill(later, float("-inf")).softmax(-1)
        out = torch.einsum("bhd,hcd->bhc", torch.einsum("bhs,bsd->bhd", pattern, x), w_v)
        return self.out_proj(out.flatten(1))

    def initial_state(self, x: Tensor) -> State:
        """An empty cache of keys and values."""
        empty = x.new_zeros(x.shape[0], 0, self.heads, x.shape[1] // self.heads)
        return empty, empty

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        q, k, v = self._project(x[:, None])
        if self.relative == "rope":
            position = state[0].shape[1]
            q, k = rotate(q, position), rotate(k, position)
        keys, values = torch.cat([state[0], k], 1), torch.cat([state[1], v], 1)
        out = torch.einsum("bths,bshc->bthc", self._weights(q, keys), values)
        return self.out_proj(out.flatten(1)), (keys, values)

    def state_size(self, length: int) -> int:
        return 2 * length * self.out_proj.in_features
