"""Finite automata as tables, and two ways to run one: step by step, and by composing its transitions."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

NOTHING = -1
"""Input of a position that holds none (before the first, and behind the last), and the label of what is not known."""

MOST_AT_ONCE = 2**21
"""Numbers in memory while transitions are composed."""


@dataclass(frozen=True, eq=False)
class Automaton:
    """States and inputs are whole numbers from 0 on; what is asked of a state is an answer."""

    transitions: Tensor
    """[s, a] the state after an input."""
    chances: Tensor
    """[s, a] how likely each input is in each state of a document, or [1, a] where the state plays no part."""
    answer: Tensor
    """[s] what is asked about each state."""
    inputs: tuple[str, ...]
    """What people call the inputs."""
    answers: tuple[str, ...]
    """What people call the answers."""
    labels: Mapping[str, Tensor]
    """Name to [s]: other things that are true of each state."""
    start: int = 0

    @property
    def num_states(self) -> int:
        return len(self.transitions)

    def run(self, inputs: Tensor, start: Tensor | None = None) -> Tensor:
        """[n, t] the state after each of the inputs [n, t], from `start` [n]; `NOTHING` leaves the state as it is."""
        transitions = self._total(inputs.device)
        state = torch.full_like(inputs[:, 0], self.start) if start is None else start
        states: list[Tensor] = []
        for position in range(inputs.shape[1]):
            state = transitions[state, inputs[:, position]]
            states.append(state)
        return torch.stack(states, 1)

    def composed(self, inputs: Tensor) -> Tensor:
        """What `run` gives from the start, otherwise: transitions are composed over ever longer stretches."""
        some = max(1, MOST_AT_ONCE // (inputs.shape[1] * self.num_states))
        return torch.cat([self._composed(part) for part in inputs.split(some)])

    def _composed(self, inputs: Tensor) -> Tensor:
        upto = self._total(inputs.device).T[inputs]  # [n, t, s]: where each state gets to by the input there
        reach = 1
        while reach < inputs.shape[1]:
            earlier, later = upto[:, :-reach], upto[:, reach:]
            upto = torch.cat([upto[:, :reach], later.gather(2, earlier)], 1)
            reach *= 2
        return upto[:, :, self.start]

    def draw(self, n: int, length: int, rng: torch.Generator) -> Tensor:
        """[n, length] inputs of documents, each as likely as `chances` says."""
        upto = self.chances.cumsum(1)
        upto = upto / upto[:, -1:]
        drawn = torch.rand(n, length, generator=rng, dtype=torch.float64)
        if len(upto) == 1:
            return torch.searchsorted(upto[0], drawn, right=True)
        state = torch.full((n,), self.start)
        inputs = torch.empty(n, length, dtype=torch.int64)
        for position in range(length):
            inputs[:, position] = (drawn[:, position, None] >= upto[state]).sum(1)
            state = self.transitions[state, inputs[:, position]]
        return inputs

    def possible(self, inputs: Tensor, start: Tensor | None = None) -> Tensor:
        """[n] whether `draw` could have given these inputs, or have gone on with them from the states `start` [n]."""
        states = self.run(inputs, start)
        first = torch.full_like(states[:, 0], self.start) if start is None else start
        before = torch.cat([first[:, None], states[:, :-1]], 1)
        allowed = self.chances.to(inputs.device).expand(self.num_states, -1)[before, inputs] > 0
        return (allowed | (inputs == NOTHING)).all(1)

    def _total(self, device: torch.device) -> Tensor:
        """[s, a + 1] the transitions, the last of which is made by `NOTHING`: to stay."""
        return torch.cat([self.transitions, torch.arange(self.num_states)[:, None]], 1).to(device)
