"""LSTM and GRU cells and their loops over positions, from plain operations: they stack under vmap.

`inputs` is what the current token contributes to each pre-activation, its bias included.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def lstm(inputs: Tensor, recurrent: Tensor) -> tuple[Tensor, Tensor]:
    """Output gates and cells [b, t, h] for inputs [b, t, 4, h] (input, forget, candidate, output), weight [4h, h]."""
    hidden = cell = torch.zeros_like(inputs[:, 0, 0])
    gates: list[Tensor] = []
    cells: list[Tensor] = []
    for at_t in inputs.unbind(1):
        gate, cell = lstm_step(at_t, recurrent, hidden, cell)
        hidden = gate * cell.tanh()
        gates.append(gate)
        cells.append(cell)
    return torch.stack(gates, 1), torch.stack(cells, 1)


def lstm_step(inputs: Tensor, recurrent: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Output gate and new cell [b, h] for inputs [b, 4, h]; the new hidden state is gate * tanh(cell)."""
    i, f, g, o = (inputs + F.linear(hidden, recurrent).view(inputs.shape)).unbind(1)
    return o.sigmoid(), f.sigmoid() * cell + i.sigmoid() * g.tanh()


def gru(inputs: Tensor, gates: Tensor, candidate: Tensor, *, reset_after: bool) -> Tensor:
    """Hidden states [b, t, h] for inputs [b, t, 3, h] (reset, update, candidate), weights [2h, h] and [h, h]."""
    hidden = torch.zeros_like(inputs[:, 0, 0])
    states: list[Tensor] = []
    for at_t in inputs.unbind(1):
        hidden = gru_step(at_t, gates, candidate, hidden, reset_after=reset_after)
        states.append(hidden)
    return torch.stack(states, 1)


def gru_step(inputs: Tensor, gates: Tensor, candidate: Tensor, hidden: Tensor, *, reset_after: bool) -> Tensor:
    """The new hidden state [b, h] for inputs [b, 3, h]."""
    r, z, n = inputs.unbind(1)
    from_gates = F.linear(hidden, gates)
    width = hidden.shape[-1]
    r, z = (r + from_gates[:, :width]).sigmoid(), (z + from_gates[:, width:]).sigmoid()
    recalled = r * F.linear(hidden, candidate) if reset_after else F.linear(r * hidden, candidate)
    return z * hidden + (1 - z) * (n + recalled).tanh()
