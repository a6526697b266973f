"""Causal softmax attention."""

import torch
from torch import Tensor, nn

from mixerscope.errors import UserError
from mixerscope.mixers.base import REFERENCE_STD, Mixer, Move, init_linears
from mixerscope.sites import Site


class Attention(Mixer):
    """Multi-head causal self-attention (Vaswani et al. 2017): o_t = sum_{j<=t} softmax_j(q_t . k_j / sqrt(d_h)) v_j."""

    wants_positions = True
    equation = "o_t = sum_{j<=t} softmax_j(q_t . k_j / sqrt(d_h)) v_j;  y = W_o o + b"
    paper = "Vaswani et al. 2017, Attention is all you need"
    moves = (Move("attention", "heads_out"),)

    def __init__(self, width: int, *, heads: int = 1) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise UserError(f"attention: width = {width} is not divisible by heads = {heads}")
        self.heads = heads
        self.qkv_proj = nn.Linear(width, 3 * width, bias=False)
        self.out_proj = nn.Linear(width, width)
        self.q = Site()  # [b, t, h, d_h]
        self.k = Site()  # [b, t, h, d_h]
        self.v = Site()  # [b, t, h, d_h]
        self.pattern = Site()  # [b, t, h, t]: document, query position, head, key position
        self.heads_out = Site()  # [b, t, h, d_h]

    def init_weights(self, rng: torch.Generator, depth: int) -> None:
        init_linears(self, rng)
        nn.init.normal_(self.out_proj.weight, std=REFERENCE_STD / (2 * depth) ** 0.5, generator=rng)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv_proj(x).view(b, t, 3, self.heads, d // self.heads).unbind(2)
        q, k, v = self.q(q), self.k(k), self.v(v)
        scores = torch.einsum("bthc,bshc->bths", q, k) * (d // self.heads) ** -0.5
        future = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        pattern = self.pattern(scores.masked_fill(future[:, None, :], float("-inf")).softmax(-1))
        out = self.heads_out(torch.einsum("bths,bshc->bthc", pattern, v))
        return self.out_proj(out.reshape(b, t, d))

    def state_size(self, length: int) -> int:
        return 2 * length * self.out_proj.in_features
