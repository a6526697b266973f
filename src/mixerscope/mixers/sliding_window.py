"""Softmax attention over the latest positions only."""

import torch
from torch import Tensor, nn

from mixerscope.errors import UserError
from mixerscope.mixers.base import InitRule, Mixer, Mover, State, init_linears, init_output, require_at_least
from mixerscope.mixers.ops.softmax_attention import attention_weights
from mixerscope.sites import Site


class SlidingWindow(Mixer):
    """Sliding-window attention (Beltagy et al. 2020): causal softmax attention over the `window` latest positions.

    A position sees itself and the window - 1 before it. Projections and initialisation are those of `attention`.
    """

    wants_positions = True
    equation = "o_t = sum_{t-w < j <= t} softmax_j(q_t . k_j / sqrt(d_h)) v_j;  y = W_o o + b"
    paper = "Beltagy et al. 2020, Longformer: the long-document Transformer"
    movers = (Mover("sliding-window attention", "heads_out"),)

    def __init__(self, width: int, *, heads: int = 1, window: int = 16) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise UserError(f"sliding_window: width = {width} is not divisible by heads = {heads}")
        require_at_least(2, "sliding_window", {"window": window})
        self.heads, self.window = heads, window
        self.qkv_proj = nn.Linear(width, 3 * width, bias=False)
        self.out_proj = nn.Linear(width, width)
        self.q = Site(heads=self.heads)  # [b, t, h, d_h]
        self.k = Site(heads=self.heads)  # [b, t, h, d_h]
        self.v = Site(heads=self.heads)  # [b, t, h, d_h]
        self.pattern = Site(heads=self.heads)  # [b, t, h, t]: document, query position, head, key position
        self.heads_out = Site(heads=self.heads)  # [b, t, h, d_h]

    def init_weights(self, rng: torch.Generator, rule: InitRule) -> None:
        init_linears(self, rng, rule)
        init_output(self.out_proj, rng, rule)

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.qkv_proj(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        return self.q(q), self.k(k), self.v(v)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        pattern = self.pattern(attention_weights(q, k, window=self.window))
        return self.out_proj(self.heads_out(torch.einsum("bihj,bjhc->bihc", pattern, v)).flatten(-2))

    def forward(self, x: Tensor) -> Tensor:
        return self._attend(*self._project(x))

    def initial_state(self, x: Tensor) -> State:
        empty = x.new_zeros(x.shape[0], 0, self.heads, x.shape[1] // self.heads)
        return empty, empty

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        q, k, v = self._project(x.unsqueeze(1))
        k, v = torch.cat([state[0], k], 1), torch.cat([state[1], v], 1)
        first = max(0, k.shape[1] - (self.window - 1))
        return self._attend(q, k, v)[:, 0], (k[:, first:], v[:, first:])

    def state_size(self, length: int) -> int:
        return 2 * min(length, self.window - 1) * self.out_proj.in_features
