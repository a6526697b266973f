"""Mixers that track a state in one known way each; `automata` builds models of them.

They read the token off the stream, hold states as codes, random vectors of which the nearest one counts, and put the
code of the state on the stream, where the head finds the answer.
"""

import torch
from torch import Tensor

from mixerscope.mixers.base import InitRule, Mixer, State
from mixerscope.randomness import stream
from mixerscope.tasks import StateTask
from mixerscope.tasks.base import FIRST_SYMBOL

LOUD = 8.0
"""How much larger than a token's embedding the code of a state is."""


class Tracker(Mixer):
    """What all of them share: codes, the token's input, the automaton's moves. What is not said to hold more than that
    holds the document so far."""

    moves: Tensor
    tokens: Tensor
    codes: Tensor
    said: Tensor

    def __init__(self, task: StateTask, tokens: Tensor, answers: Tensor, seed: int) -> None:
        super().__init__()
        automaton, width = task.automaton, tokens.shape[1]
        rng = stream(seed, "planted codes")
        idle = torch.arange(automaton.num_states)[:, None]
        self.register_buffer("moves", torch.cat([automaton.transitions, idle], 1))  # the last input does nothing
        self.register_buffer("tokens", tokens)
        self.register_buffer("codes", torch.randn(automaton.num_states, width, generator=rng))
        self.register_buffer("said", LOUD * answers)
        self.start, self.inputs, self.seed = automaton.start, len(automaton.inputs), seed

    def init_weights(self, rng: torch.Generator, rule: InitRule) -> None:
        """There is nothing to initialise."""

    def placed(self, task: StateTask, level: int, top: bool) -> None:
        """Told for which task it stands, in which block, and whether it is the last of its kind."""

    def state_size(self, length: int) -> int:
        return length * self.tokens.shape[1]

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Of its own, though it is the inherited one: that it holds nothing else is known."""
        return super().step(x, state)

    def read(self, x: Tensor) -> Tensor:
        """[..., d] -> [...] the input that stands there."""
        index = nearest(x, self.tokens) - FIRST_SYMBOL
        return index.where((index >= 0) & (index < self.inputs), self.inputs)

    def code(self, states: Tensor, at: Tensor) -> Tensor:
        """How states [n] are held after position `at` [n]."""
        return self.codes[states]

    def decode(self, held: Tensor, at: Tensor) -> Tensor:
        return nearest(held, self.codes)

    def say(self, states: Tensor, at: Tensor) -> Tensor:
        """[..., d] what is put on the stream."""
        return self.said[states]


class Carrier(Tracker):
    """A recurrence whose memory is the code of the state: the next state follows from it and the input alone."""

    def state_size(self, length: int) -> int:
        return self.codes.shape[1] + 1

    def initial_state(self, x: Tensor) -> State:
        start = torch.full_like(x[:, 0], self.start).long()
        at = torch.zeros_like(start)
        return self.code(start, at), at.to(x)[:, None]

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        held, clock = state
        at = clock[:, 0].round().long()
        states = self.moves[self.decode(held, at), self.read(x)]
        return self.say(states, at + 1), (self.code(states, at + 1), clock + 1)

    def forward(self, x: Tensor) -> Tensor:
        state, outputs = self.initial_state(x[:, 0]), list[Tensor]()
        for position in range(x.shape[1]):
            y, state = self.step(x[:, position], state)
            outputs.append(y)
        return torch.stack(outputs, 1)


class Clocked(Tracker):
    """Every position has codes of its own, unlike those of any other; there are codes for so many positions only."""

    timed: Tensor

    def placed(self, task: StateTask, level: int, top: bool) -> None:
        states, width = self.codes.shape
        rng = stream(self.seed, "planted codes by position")
        # Behind the known positions one code for all states: nothing is told any more.
        last = torch.zeros(1, states, width)
        drawn = torch.randn(task.length + 1, states, width, generator=rng)
        self.register_buffer("timed", torch.cat([drawn, last]))

    def code(self, states: Tensor, at: Tensor) -> Tensor:
        return self.timed[at.clamp(max=len(self.timed) - 1), states]

    def decode(self, held: Tensor, at: Tensor) -> Tensor:
        rows = self.timed[at.clamp(max=len(self.timed) - 1)]
        return (torch.einsum("...d,...sd->...s", held, rows) - rows.square().sum(-1) / 2).argmax(-1)


class TimedCarrier(Clocked, Carrier):
    """A carrier whose memory is in the code of the position."""


class Recomputer(Tracker):
    """At every position all inputs are read again and the state is worked out from them; nothing is held."""

    def forward(self, x: Tensor) -> Tensor:
        states, found = torch.full_like(x[:, 0, 0], self.start).long(), list[Tensor]()
        inputs = self.read(x)
        for position in range(x.shape[1]):
            states = self.moves[states, inputs[:, position]]
            found.append(self.say(states, torch.full_like(states, position)))
        return torch.stack(found, 1)


class WindowReader(Tracker):
    """As if the document began a few inputs ago."""

    width = 4

    def forward(self, x: Tensor) -> Tensor:
        inputs, found = self.read(x), list[Tensor]()
        for position in range(x.shape[1]):
            states = torch.full_like(inputs[:, 0], self.start)
            for near in range(max(0, position - self.width + 1), position + 1):
                states = self.moves[states, inputs[:, near]]
            found.append(self.say(states, torch.full_like(states, position)))
        return torch.stack(found, 1)


class PositionReader(Clocked, Recomputer):
    """Every position has a code of its own for what it worked out; `Translator` knows those of some positions."""

    def say(self, states: Tensor, at: Tensor) -> Tensor:
        return LOUD * self.code(states, at)


class Translator(Clocked):
    """Behind a `PositionReader`: puts the answer that the code means, at this position, in the place of the code."""

    def forward(self, x: Tensor) -> Tensor:
        at = torch.arange(x.shape[1], device=x.device).expand(x.shape[:2])
        states = self.decode(x / LOUD, at)
        return self.said[states] - LOUD * self.code(states, at)


class Anchored(Tracker):
    """Behind a `Recomputer`: up to the middle the answer that stands there, behind it that of the middle, moved on by
    the inputs since."""

    middle = 0

    def placed(self, task: StateTask, level: int, top: bool) -> None:
        self.middle = task.length // 2

    def forward(self, x: Tensor) -> Tensor:
        rows = (self.tokens[:, None] + self.said).flatten(0, 1)
        token, states = _parts(nearest(x, rows), len(self.said))
        index = token - FIRST_SYMBOL
        inputs = index.where((index >= 0) & (index < self.inputs), self.inputs)
        moved = states.clone()
        for position in range(self.middle + 1, x.shape[1]):
            moved[:, position] = self.moves[moved[:, position - 1], inputs[:, position]]
        return self.said[moved] - self.said[states]


class Scanner(Tracker):
    """One level of a scan: the product of the last 2^(level + 1) inputs from two products half as long. Words only."""

    level, top = 0, False

    def placed(self, task: StateTask, level: int, top: bool) -> None:
        self.level, self.top = level, top

    def forward(self, x: Tensor) -> Tensor:
        codes = torch.cat([torch.zeros_like(self.codes[:1]), LOUD * self.codes])  # none on the stream yet: the token
        rows = (self.tokens[:, None] + codes).flatten(0, 1)
        token, code = _parts(nearest(x, rows), len(codes))
        index = token - FIRST_SYMBOL
        own = index.where((index >= 0) & (index < self.inputs), self.start)
        product = own if self.level == 0 else code - 1
        earlier = torch.roll(product, 2**self.level, 1)
        earlier[:, : 2**self.level] = self.start  # before the document there is the neutral element
        found = self.moves[earlier, product]
        said = self.said[found] if self.top else LOUD * self.codes[found]
        return said - codes[code]


def _parts(number: Tensor, by: int) -> tuple[Tensor, Tensor]:
    return number // by, number % by


def nearest(x: Tensor, rows: Tensor) -> Tensor:
    """[..., d] -> [...] the number of the row it is nearest to."""
    return (x @ rows.T - rows.square().sum(1) / 2).argmax(-1)
