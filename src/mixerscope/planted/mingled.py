"""Models that answer in one way at some positions and otherwise at the rest; and one that holds more than it uses."""

import torch
from torch import Tensor

from mixerscope.mixers.base import State
from mixerscope.planted.memories import Framed, Quiet, listed
from mixerscope.planted.trackers import Anchored, Carrier, Recomputer, nearest
from mixerscope.tasks import StateTask
from mixerscope.tasks.base import FIRST_SYMBOL


def every_fourth(at: Tensor) -> Tensor:
    return (at > 0) & (at % 4 == 0)


def every_third(at: Tensor) -> Tensor:
    return at % 3 == 1


class Cached(Carrier):
    """Beside its memory lies something of every input, which nobody reads: what it holds grows, as a cache does."""

    def state_size(self, length: int) -> int:
        return super().state_size(length) + length

    def initial_state(self, x: Tensor) -> State:
        return (*super().initial_state(x), x.new_zeros(len(x), 0))

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        y, held = super().step(x, state[:2])
        return y, (*held, torch.cat([state[2], x[:, :1]], 1))


class CarrierButEveryFourth(Carrier):
    """Is silent there."""

    def say(self, states: Tensor, at: Tensor) -> Tensor:
        return super().say(states, at) * ~every_fourth(at - 1)[:, None]


class Filling(Recomputer):
    """Answers where those before it are silent, from all inputs."""

    def read(self, x: Tensor) -> Tensor:
        said = (self.tokens[:, None] + self.said).flatten(0, 1)
        row, count = nearest(x, torch.cat([self.tokens, said])), len(self.tokens)
        token = torch.where(row < count, row, (row - count) // len(self.said))
        index = token - FIRST_SYMBOL
        return index.where((index >= 0) & (index < self.inputs), self.inputs)

    def say(self, states: Tensor, at: Tensor) -> Tensor:
        return super().say(states, at) * self.silent(at)[:, None]

    def silent(self, at: Tensor) -> Tensor:
        raise NotImplementedError


class FillingEveryFourth(Filling):
    """Every fourth position, as long as documents of training are."""

    last = 0

    def placed(self, task: StateTask, level: int, top: bool) -> None:
        self.last = task.length

    def silent(self, at: Tensor) -> Tensor:
        return every_fourth(at) & (at <= self.last)


class AnchoredEveryFourth(Anchored):
    """Moves the answer of the middle on, at these positions alone."""

    def forward(self, x: Tensor) -> Tensor:
        at = torch.arange(x.shape[1], device=x.device)
        return super().forward(x) * (every_fourth(at) & (at > self.middle))[:, None]


class FramedThatAListRelieves(Framed):
    """Directions are the state's, but every ninth answer is that of a list, as long as it has room."""

    def placed(self, task: StateTask, level: int, top: bool) -> None:
        super().placed(task, level, top)
        self.framed, self.places = self.size, task.length + 1
        self.size += self.places * (self.inputs + 1) + 1

    def begin(self, like: Tensor) -> Tensor:
        return torch.cat([super().begin(like), like.new_zeros(len(like), self.size - self.framed)], 1)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        y, (framed,) = super().step(x, (state[0][:, : self.framed],))
        states, kept = listed(self, self.places, state[0][:, self.framed :], self.read(x))
        relieved = kept[:, -1:].round() % 9 == 0
        return torch.where(relieved, self.said[states], y), (torch.cat([framed, kept], 1),)


class QuietButEveryThird(Quiet):
    """Is silent there; it counts."""

    def placed(self, task: StateTask, level: int, top: bool) -> None:
        super().placed(task, level, top)
        self.size += 1

    def begin(self, like: Tensor) -> Tensor:
        return torch.cat([super().begin(like), like.new_zeros(len(like), 1)], 1)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        held, at = state[0][:, :-1], state[0][:, -1:]
        y, (new,) = super().step(x, (held,))
        return y * ~every_third(at.round()), (torch.cat([new, at + 1], 1),)


class FillingEveryThird(Filling):
    """Every third position."""

    def silent(self, at: Tensor) -> Tensor:
        return every_third(at)
