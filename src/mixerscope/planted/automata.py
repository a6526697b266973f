"""Models that track a state in a way that is known, because it was written down: what state verdicts are judged with.

Each is an ordinary model whose first mixer is replaced by one of those below. They read the token off the stream, hold
states as codes, random vectors of which the nearest one counts, and put the code of the state on the stream, where the
head finds the answer.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mixerscope.mixers.base import InitRule, Mixer, State
from mixerscope.model import Model, build_model
from mixerscope.randomness import stream
from mixerscope.spec import ModelSpec
from mixerscope.tasks import StateTask
from mixerscope.tasks.base import FIRST_SYMBOL

StateLabel = Literal["carried", "recomputed", "length-specific", "not learned"]
LOUD = 8.0
"""How much larger than a token's embedding the code of a state is."""


class _Tracker(Mixer):
    """What all of them share: codes, the token's input, the automaton's moves."""

    moves: Tensor
    tokens: Tensor
    codes: Tensor
    said: Tensor

    def __init__(self, task: StateTask, tokens: Tensor, answers: Tensor, seed: int) -> None:
        super().__init__()
        automaton, width = task.automaton, tokens.shape[1]
        rng = stream(seed, "planted codes")
        idle = torch.arange(automaton.num_states)[:, None]
        self.register_buffer("moves", torch.cat([automaton.moves, idle], 1))  # the last input does nothing
        self.register_buffer("tokens", tokens)
        self.register_buffer("codes", torch.randn(automaton.num_states, width, generator=rng))
        self.register_buffer("said", LOUD * answers)
        self.start, self.inputs = automaton.start, len(automaton.inputs)

    def init_weights(self, rng: torch.Generator, rule: InitRule) -> None:
        """There is nothing to initialise."""

    def state_size(self, length: int) -> int:
        return self.codes.shape[1] + 1

    def read(self, x: Tensor) -> Tensor:
        """[..., d] -> [...] the input that stands there."""
        index = _nearest(x, self.tokens) - FIRST_SYMBOL
        return index.where((index >= 0) & (index < self.inputs), self.inputs)

    def code(self, states: Tensor, at: Tensor) -> Tensor:
        """How states [n] are held after position `at` [n]."""
        return self.codes[states]

    def decode(self, held: Tensor, at: Tensor) -> Tensor:
        return _nearest(held, self.codes)

    def say(self, states: Tensor, at: Tensor) -> Tensor:
        """[..., d] what is put on the stream."""
        return self.said[states]


class Carrier(_Tracker):
    """A recurrence whose memory is the code of the state: the next state follows from it and the input alone."""

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


class TimedCarrier(Carrier):
    """The same, but every position has codes of its own, and there are codes for so many positions only."""

    known_positions = 0

    def _turned(self, states: Tensor, at: Tensor, back: bool = False) -> Tensor:
        count = len(self.codes)
        known = at <= self.known_positions
        return torch.where(known, (states + (-at if back else at)) % count, states * 0)

    def code(self, states: Tensor, at: Tensor) -> Tensor:
        return self.codes[self._turned(states, at)]

    def decode(self, held: Tensor, at: Tensor) -> Tensor:
        return self._turned(_nearest(held, self.codes), at, back=True)


class Recomputer(_Tracker):
    """At every position all inputs are read again and the state is worked out from them; nothing is held."""

    def forward(self, x: Tensor) -> Tensor:
        states, found = torch.full_like(x[:, 0, 0], self.start).long(), list[Tensor]()
        inputs = self.read(x)
        for position in range(x.shape[1]):
            states = self.moves[states, inputs[:, position]]
            found.append(self.say(states, torch.full_like(states, position)))
        return torch.stack(found, 1)


class WindowReader(_Tracker):
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


class PositionReader(Recomputer):
    """Every position has a code of its own for what it worked out; `Translator` knows those of some positions."""

    known_positions = 0

    def say(self, states: Tensor, at: Tensor) -> Tensor:
        return LOUD * self.codes[(states + at) % len(self.codes)]


class Translator(_Tracker):
    """Behind a `PositionReader`: puts the answer that the code means, at this position, in the place of the code."""

    known_positions = 0

    def forward(self, x: Tensor) -> Tensor:
        at = torch.arange(x.shape[1], device=x.device)
        code = _nearest(x, LOUD * self.codes)
        states = torch.where(at <= self.known_positions, (code - at) % len(self.codes), 0)
        return self.said[states] - LOUD * self.codes[code]


class Scanner(_Tracker):
    """One level of a scan: the product of the last 2^(level + 1) inputs from two products half as long. Words only."""

    level, top = 0, False

    def forward(self, x: Tensor) -> Tensor:
        codes = torch.cat([torch.zeros_like(self.codes[:1]), LOUD * self.codes])  # none on the stream yet: the token
        rows = (self.tokens[:, None] + codes).flatten(0, 1)
        token, code = _parts(_nearest(x, rows), len(codes))
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


def _nearest(x: Tensor, rows: Tensor) -> Tensor:
    """[..., d] -> [...] the number of the row it is nearest to."""
    return (x @ rows.T - rows.square().sum(1) / 2).argmax(-1)


@dataclass(frozen=True)
class PlantedState:
    """A model that tracks a state in a known way."""

    name: str
    label: StateLabel
    """What a verdict must say."""
    why: str
    mixers: tuple[type[_Tracker], ...]
    """Of the first blocks; all others are idle."""

    def build(self, task: StateTask, seed: int) -> Model:
        """A model for this task; other seeds have other codes and embeddings."""
        width, layers = 4 * task.automaton.num_states + 24, max(2, len(self.mixers))
        spec = ModelSpec(architecture="gru", width=width, layers=layers)
        model = build_model(spec, task.vocab_size, seed)
        rng = stream(seed, "planted embeddings")
        with torch.no_grad():
            drawn = torch.randn(task.vocab_size, spec.width, generator=rng)
            model.token_embedding.weight.copy_(drawn - drawn.mean(1, keepdim=True))
        rows = model.token_embedding.weight.detach().clone()
        answers = rows[task.answer_tokens(torch.arange(task.automaton.num_states))]
        for level, (block, kind) in enumerate(zip(model.layers(), self.mixers, strict=False)):
            mixer = kind(task, rows, answers, seed)
            if isinstance(mixer, TimedCarrier | PositionReader | Translator):
                mixer.known_positions = task.length
            if isinstance(mixer, Scanner):
                mixer.level, mixer.top = level, level == len(self.mixers) - 1
            block.mixer = mixer
            block.norm1 = torch.nn.Identity()  # tokens are read as they stand
        for level, block in enumerate(model.layers()):
            _silence(block.mlp)
            _silence(None if level < len(self.mixers) else block.mixer)
        return model


def _silence(module: torch.nn.Module | None) -> None:
    """Makes a part give zeros."""
    if module is not None:
        with torch.no_grad():
            for weight in module.parameters():
                weight.zero_()


EVERY_STATE: tuple[PlantedState, ...] = (
    PlantedState(
        "recurrence",
        "carried",
        "its memory is the state and nothing else, the same at every position, so answers go on from what is written",
        (Carrier,),
    ),
    PlantedState(
        "recurrence by the clock",
        "length-specific",
        "it goes on from the state that is written, but in another code at each position, and has codes for the"
        " positions of training only",
        (TimedCarrier,),
    ),
    PlantedState(
        "recomputation",
        "recomputed",
        "every position reads all inputs anew: what is written at one of them changes that answer and no later one",
        (Recomputer,),
    ),
    PlantedState(
        "scan",
        "recomputed",
        "products of stretches of inputs are multiplied, level by level; none of them is the state, so a state that is"
        " written is not gone on from",
        (Scanner,) * 4,
    ),
    PlantedState(
        "position reader",
        "length-specific",
        "the state is worked out anew everywhere, in a code of each position, and those of training alone are known",
        (PositionReader, Translator),
    ),
    PlantedState(
        "window",
        "not learned",
        "it knows the last four inputs, which say nothing about a state that all inputs decide",
        (WindowReader,),
    ),
)
