"""Flip-flop: what was written last."""

from functools import cache

import torch
from pydantic import Field
from torch import Tensor

from mixerscope.tasks.automaton import Automaton
from mixerscope.tasks.state_tracking import StateTask


class FlipFlop(StateTask):
    """A memory of one symbol: some inputs write it, all others leave it as it is. Nothing is ever counted."""

    presets = {"default": {}, "small": {"length": 8}, "sparse": {"ignored": 0.95, "length": 40}}

    symbols: int = Field(default=2, ge=2, le=64)
    """That can be written."""
    ignored: float = Field(default=0.8, gt=0, lt=1)
    """Share of inputs that write nothing."""

    @property
    def automaton(self) -> Automaton:
        return _memory(self.symbols, self.ignored)

    def asked(self, inputs: Tensor) -> Tensor:
        """From the first write on: before it nothing is in memory."""
        written = (inputs >= 0) & (inputs < self.symbols)
        return super().asked(inputs) & (written.cumsum(1) > 0)

    def hard(self, inputs: Tensor) -> Tensor:
        return inputs == self.symbols


@cache
def _memory(symbols: int, ignored: float) -> Automaton:
    held = torch.arange(symbols + 1)  # the last state: nothing written yet
    transitions = torch.cat([torch.arange(symbols).expand(symbols + 1, -1), held[:, None]], 1)
    chances = torch.tensor([[(1 - ignored) / symbols] * symbols + [ignored]], dtype=torch.float64)
    written = tuple(f"w{i}" for i in range(symbols))
    names = (*map(str, range(symbols)), "none")
    return Automaton(transitions, chances, held, (*written, "ignore"), names, {}, start=symbols)
