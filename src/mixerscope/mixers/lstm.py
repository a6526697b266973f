"""LSTM."""

import math

import torch
from torch import Tensor, nn

from mixerscope.errors import UserError
from mixerscope.mixers.base import InitRule, Mixer, Mover, State
from mixerscope.mixers.ops.lstm_cells import lstm, lstm_step
from mixerscope.sites import Site

PARTS = 4
"""Input gate, forget gate, candidate, output gate."""


class LSTM(Mixer):
    """LSTM (Hochreiter & Schmidhuber 1997, forget gates by Gers et al. 2000): c_t = f c_{t-1} + i g; h_t = o tanh(c_t).

    i, f, o = sigmoid(W x_t + U h_{t-1} + b), g = tanh(the same form); hidden size = width, h_t is the output. The cell
    was published bare; here it sits in the block that attention has. An edit of `input_in` ... `output_in` travels
    with the recurrence; one of `cell`, `output_gate` or `recurrence_out` changes what is read at its position only.
    """

    equation = (
        "i, f, o = sigmoid(W x_t + U h_{t-1} + b); c_t = f * c_{t-1} + i * tanh(W_g x_t + U_g h_{t-1} + b_g); "
        "h_t = o * tanh(c_t)"
    )
    paper = "Hochreiter & Schmidhuber 1997, Long short-term memory"
    movers = (Mover("recurrence", "recurrence_out"),)

    def __init__(self, width: int, *, forget_bias: float = 1.0) -> None:
        super().__init__()
        if not math.isfinite(forget_bias):
            raise UserError(f"lstm: forget_bias = {forget_bias} must be finite")
        self.forget_bias = forget_bias
        self.input_proj = nn.Linear(width, PARTS * width)
        self.recurrent = nn.Parameter(torch.empty(PARTS * width, width))
        self.input_in = Site()  # [b, t, d]: the current token's share, before the sigmoid
        self.forget_in = Site()  # [b, t, d]: likewise
        self.candidate_in = Site()  # [b, t, d]: likewise, before the tanh
        self.output_in = Site()  # [b, t, d]: likewise, before the sigmoid
        self.cell = Site()  # [b, t, d]
        self.output_gate = Site()  # [b, t, d]
        self.recurrence_out = Site()  # [b, t, d]

    def init_weights(self, rng: torch.Generator, rule: InitRule) -> None:
        """PyTorch's rule, uniform in +-1/sqrt(width), but for the forget gate's bias (Jozefowicz et al. 2015)."""
        width = self.recurrent.shape[1]
        for parameter in (self.input_proj.weight, self.input_proj.bias, self.recurrent):
            nn.init.uniform_(parameter, -(width**-0.5), width**-0.5, generator=rng)
        with torch.no_grad():
            self.input_proj.bias[width : 2 * width] = self.forget_bias

    def _inputs(self, x: Tensor) -> Tensor:
        i, f, g, o = self.input_proj(x).chunk(PARTS, dim=-1)
        return torch.stack([self.input_in(i), self.forget_in(f), self.candidate_in(g), self.output_in(o)], -2)

    def _read(self, gate: Tensor, cell: Tensor) -> Tensor:
        return self.recurrence_out(self.output_gate(gate) * self.cell(cell).tanh())

    def forward(self, x: Tensor) -> Tensor:
        return self._read(*lstm(self._inputs(x), self.recurrent))

    def initial_state(self, x: Tensor) -> State:
        return torch.zeros_like(x), torch.zeros_like(x)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        hidden, cell = state
        gate, cell = lstm_step(self._inputs(x), self.recurrent, hidden, cell)
        return self._read(gate, cell), (gate * cell.tanh(), cell)

    def state_size(self, length: int) -> int:
        return 2 * self.recurrent.shape[1]
