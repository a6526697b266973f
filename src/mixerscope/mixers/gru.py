"""GRU."""

import torch
from torch import Tensor, nn

from mixerscope.mixers.base import InitRule, Mixer, Mover, State
from mixerscope.mixers.ops.gru_cells import gru, gru_step
from mixerscope.sites import Site

PARTS = 3
"""Reset gate, update gate, candidate."""


class GRU(Mixer):
    """GRU (Cho et al. 2014): h_t = z h_{t-1} + (1 - z) tanh(W x_t + U (r h_{t-1}) + b).

    r, z = sigmoid(W x_t + U h_{t-1} + b); hidden size = width, h_t is the output. `reset_after` takes r * (U h_{t-1})
    instead, the form of cuDNN and `torch.nn.GRU`. The cell was published bare; here it sits in the block that
    attention has. An edit of `reset_in`, `update_in` or `candidate_in` travels with the recurrence; one of
    `recurrence_out` changes what is read at its position only.
    """

    equation = (
        "r, z = sigmoid(W x_t + U h_{t-1} + b); h_t = z * h_{t-1} + (1 - z) * tanh(W_n x_t + U_n (r * h_{t-1}) + b_n)"
    )
    paper = "Cho et al. 2014, Learning phrase representations using RNN encoder-decoder"
    movers = (Mover("recurrence", "recurrence_out"),)

    def __init__(self, width: int, *, reset_after: bool = False) -> None:
        super().__init__()
        self.reset_after = reset_after
        self.input_proj = nn.Linear(width, PARTS * width)
        self.gate_recurrent = nn.Parameter(torch.empty(2 * width, width))
        self.candidate_recurrent = nn.Parameter(torch.empty(width, width))
        self.reset_in = Site()  # [b, t, d]: the current token's share, before the sigmoid
        self.update_in = Site()  # [b, t, d]: likewise
        self.candidate_in = Site()  # [b, t, d]: likewise, before the tanh
        self.recurrence_out = Site()  # [b, t, d]

    def init_weights(self, rng: torch.Generator, rule: InitRule) -> None:
        """PyTorch's rule: everything uniform in +-1/sqrt(width)."""
        for parameter in self.parameters():
            bound = self.candidate_recurrent.shape[0] ** -0.5
            nn.init.uniform_(parameter, -bound, bound, generator=rng)

    def _inputs(self, x: Tensor) -> Tensor:
        r, z, n = self.input_proj(x).chunk(PARTS, dim=-1)
        return torch.stack([self.reset_in(r), self.update_in(z), self.candidate_in(n)], -2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = gru(self._inputs(x), self.gate_recurrent, self.candidate_recurrent, reset_after=self.reset_after)
        return self.recurrence_out(hidden)

    def initial_state(self, x: Tensor) -> State:
        return (torch.zeros_like(x),)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        weights = (self.gate_recurrent, self.candidate_recurrent)
        hidden = gru_step(self._inputs(x), *weights, state[0], reset_after=self.reset_after)
        return self.recurrence_out(hidden), (hidden,)

    def state_size(self, length: int) -> int:
        return self.candidate_recurrent.shape[0]
