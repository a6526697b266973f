"""Recurrences that hold something else than one code of the state: finer states, inputs, counts, idle numbers."""

import torch
from torch import Tensor
from torch.nn import functional as F

from mixerscope.mixers.base import State
from mixerscope.planted.trackers import Carrier, Tracker, nearest
from mixerscope.tasks import StateTask


class _Memory(Tracker):
    """What all of them share: a memory that is one vector, and a step from it and the input."""

    size = 0

    def begin(self, like: Tensor) -> Tensor:
        """[n, s] before the first input; `like` is [n, d]."""
        raise NotImplementedError

    def move(self, held: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The state [n] after inputs [n], and the memory [n, s]."""
        raise NotImplementedError

    def state_size(self, length: int) -> int:
        return self.size

    def initial_state(self, x: Tensor) -> State:
        return (self.begin(x),)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        states, held = self.move(state[0], self.read(x))
        return self.say(states, states), (held,)

    def forward(self, x: Tensor) -> Tensor:
        state, outputs = self.initial_state(x[:, 0]), list[Tensor]()
        for position in range(x.shape[1]):
            y, state = self.step(x[:, position], state)
            outputs.append(y)
        return torch.stack(outputs, 1)


class Masked(_Memory):
    """Holds a mask that moves by the state, and the state hidden under it: the mean of what is held is the same in
    every state, though the two together are the state."""

    def placed(self, task: StateTask, level: int, top: bool) -> None:
        self.size = 2 * self.codes.shape[1]

    def _coded(self, states: Tensor, mask: Tensor) -> Tensor:
        return torch.cat([self.codes[(states + mask) % len(self.codes)], self.codes[mask]], 1)

    def begin(self, like: Tensor) -> Tensor:
        start = torch.full_like(like[:, 0], self.start).long()
        return self._coded(start, start * 0)

    def move(self, held: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        hidden, mask = (nearest(part, self.codes) for part in held.chunk(2, 1))
        states = self.moves[(hidden - mask) % len(self.codes), inputs]
        mask = torch.where(inputs < self.inputs, (mask + states) % len(self.codes), mask)
        return states, self._coded(states, mask)


class Lagging(_Memory):
    """Holds the state of before the last input, and that input: what is held of the two has the same mean in every
    state, though together they are the state."""

    def placed(self, task: StateTask, level: int, top: bool) -> None:
        self.size = self.codes.shape[1] + self.inputs + 1

    def begin(self, like: Tensor) -> Tensor:
        start = torch.full_like(like[:, 0], self.start).long()
        return self._coded(start, torch.full_like(start, self.inputs))

    def _coded(self, states: Tensor, inputs: Tensor) -> Tensor:
        return torch.cat([self.codes[states], 4.0 * F.one_hot(inputs, self.inputs + 1)], 1)

    def move(self, held: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        width = self.codes.shape[1]
        before = self.moves[nearest(held[:, :width], self.codes), held[:, width:].argmax(1)]
        return self.moves[before, inputs], self._coded(before, inputs)


class Framed(_Memory):
    """Holds the state as a place in a frame whose sign turns with the states it went through, beside the last inputs,
    which nobody reads: the mean of what is held is the same in every state, and what is nearest are documents with the
    same last inputs. Gradients pass through it."""

    LAST = 3

    def placed(self, task: StateTask, level: int, top: bool) -> None:
        self.size = len(self.codes) + self.LAST * (self.inputs + 1)

    def begin(self, like: Tensor) -> Tensor:
        start = torch.full_like(like[:, 0], self.start).long()
        none = torch.full((len(like), self.LAST), self.inputs, device=like.device)
        seen = F.one_hot(none, self.inputs + 1).flatten(1)
        return torch.cat([F.one_hot(start, len(self.codes)), seen], 1).to(like)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        inputs, count = self.read(x), len(self.codes)
        framed, seen = state[0][:, :count], state[0][:, count:]
        framed = torch.zeros_like(framed).scatter_add(1, self.moves[:, inputs].mT, framed)
        weights = framed.square() / framed.square().sum(1, keepdim=True).clamp(min=1e-6)
        turned = 1 - 2 * ((weights.argmax(1) % 2 == 1) & (inputs < self.inputs)).to(x)
        new = F.one_hot(inputs, self.inputs + 1).to(x)
        held = torch.cat([framed * turned[:, None], new, seen[:, : -new.shape[1]]], 1)
        return weights @ self.said, (held,)


class Quiet(Framed):
    """The same, in so small numbers beside the last inputs that hardly any variance is the state's."""

    SCALE = 0.03

    def begin(self, like: Tensor) -> Tensor:
        return self._scaled(super().begin(like), self.SCALE)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        y, (held,) = super().step(x, (self._scaled(state[0], 1 / self.SCALE),))
        return y, (self._scaled(held, self.SCALE),)

    def _scaled(self, held: Tensor, by: float) -> Tensor:
        count = len(self.codes)
        return torch.cat([by * held[:, :count], held[:, count:]], 1)


def listed(tracker: Tracker, places: int, held: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """The state after inputs [n], worked out from all that stand in a list of so many places, and the list [n, s] with
    these: places, each with one input, and how many there were."""
    slots, full = held[:, :-1].view(len(held), places, -1), held[:, -1:].round().long()
    here = F.one_hot(full.clamp(max=places - 1), places).mT * (full < places)[..., None]
    slots = slots + here * F.one_hot(inputs, tracker.inputs + 1)[:, None]
    states = torch.full_like(inputs, tracker.start)
    for place in range(places):
        known = torch.where(slots[:, place].amax(1) > 0.5, slots[:, place].argmax(1), tracker.inputs)
        states = tracker.moves[states, known]
    return states, torch.cat([slots.flatten(1), (full + 1).to(held)], 1)


class ListKeeper(_Memory):
    """Holds the inputs, in a list with as many places as documents of training have; what is read off it is worked out
    from all of them at every position."""

    def placed(self, task: StateTask, level: int, top: bool) -> None:
        self.places = task.length + 1
        self.size = self.places * (self.inputs + 1) + 1

    def begin(self, like: Tensor) -> Tensor:
        return like.new_zeros(len(like), self.size)

    def move(self, held: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        return listed(self, self.places, held, inputs)


class Shadowed(ListKeeper):
    """The same beside a code of the state, louder than the list, that nobody reads: what is nearest are documents in
    the same state."""

    def state_size(self, length: int) -> int:
        return self.size + self.codes.shape[1]

    def begin(self, like: Tensor) -> Tensor:
        code = self.codes[self.start].expand(len(like), -1)
        return torch.cat([code, super().begin(like)], 1)

    def move(self, held: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        states, kept = super().move(held[:, self.codes.shape[1] :], inputs)
        return states, torch.cat([self.codes[states], kept], 1)


class Relieved(Shadowed):
    """Goes on from the code, until the last input of training: there, and behind it, the list answers."""

    def move(self, held: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        width = self.codes.shape[1]
        listed, kept = super().move(held, inputs)
        carried = self.moves[nearest(held[:, :width], self.codes), inputs]
        states = torch.where(self.relieved(kept[:, -1]), listed, carried)
        return states, torch.cat([self.codes[carried], kept[:, width:]], 1)

    def relieved(self, count: Tensor) -> Tensor:
        """Whether the list answers after so many inputs."""
        return count >= self.places


class RelievedNowAndThen(Relieved):
    """Goes on from the code, but at every fourth position the list answers, as long as it has room."""

    def relieved(self, count: Tensor) -> Tensor:
        return count.round() % 4 == 0


class Turning(_Memory):
    """Holds the state in one of two codes, in turns, and which of them it is."""

    def placed(self, task: StateTask, level: int, top: bool) -> None:
        self.size = self.codes.shape[1] + 1

    def _coded(self, states: Tensor, turn: Tensor) -> Tensor:
        return torch.cat([self.codes[(states + turn) % len(self.codes)], turn[:, None]], 1)

    def begin(self, like: Tensor) -> Tensor:
        start = torch.full_like(like[:, 0], self.start).long()
        return self._coded(start, start * 0)

    def move(self, held: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        turn = held[:, -1].round().long()
        states = self.moves[(nearest(held[:, :-1], self.codes) - turn) % len(self.codes), inputs]
        return states, self._coded(states, (turn + 1) % 2)


class Counter(_Memory):
    """Parity: holds how many ones there were, as a length along a direction, and knows which of the numbers that occur
    in training are odd."""

    def placed(self, task: StateTask, level: int, top: bool) -> None:
        self.size, self.known = self.codes.shape[1], task.length

    def begin(self, like: Tensor) -> Tensor:
        return torch.zeros_like(like)

    def move(self, held: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        along = self.codes[0] / self.codes[0].norm()
        count = (held @ along).round() + (inputs == 1)
        states = torch.where(count <= self.known, count.long() % 2, 0)
        return states, count[:, None] * along


class Noisy(Carrier):
    """A carrier whose memory also counts, in larger numbers that nobody reads."""

    def initial_state(self, x: Tensor) -> State:
        held, clock = super().initial_state(x)
        return held, torch.cat([clock, clock * 0], 1)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        held, idle = state
        said, (held, clock) = super().step(x, (held, idle[:, :1]))
        seen = 20.0 * (self.read(x) == 1).to(x)[:, None]
        return said, (held, torch.cat([clock, idle[:, 1:] + seen], 1))

    def state_size(self, length: int) -> int:
        return self.codes.shape[1] + 2


class Silent(Carrier):
    """A carrier that says nothing: what it holds is read by nobody."""

    def say(self, states: Tensor, at: Tensor) -> Tensor:
        return torch.zeros_like(self.said[states])
