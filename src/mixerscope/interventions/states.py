"""The state of a mixer as a site: what it carries from one position to the next.

`blocks.i.mixer.state` exists for every mixer with a step form. At position t it is the state *after* t, all its parts
flattened into one vector, so that every edit works on it. Writing it means: what the mixer gives at positions up to t
is that of the unedited run, and from t + 1 on the recurrence goes on from the state that was written.

Most states have one size; a window, and a cache of keys and values, grow with the position. Vectors of early positions
then end in zeros that mean nothing and are cut off again before the state is used.
"""

from collections.abc import Callable
from math import prod

import torch
from torch import Tensor, nn

from mixerscope.errors import UserError
from mixerscope.mixers import Mixer
from mixerscope.mixers.base import State
from mixerscope.model import layers_of

STATE = "mixer.state"
"""Name of the site within its block."""


def has_step_form(mixer: Mixer) -> bool:
    """Whether the mixer says what it carries, and does not fall back on its whole history."""
    return type(mixer).step is not Mixer.step


def state_sites(model: nn.Module) -> list[str]:
    """The state sites of a model; foreign ones do not say what theirs carry."""
    return [f"blocks.{i}.{STATE}" for i, block in enumerate(layers_of(model)) if has_step_form(block.mixer)]


def is_state(site: str) -> bool:
    return site.endswith(f".{STATE}")


def mixer_of(model: nn.Module, site: str) -> Mixer:
    """The mixer whose state a site is."""
    return layers_of(model)[int(site.split(".")[1])].mixer


def demand_one_size(mixer: Mixer, site: str, places: Tensor) -> None:
    """Refuses to mix the states of documents where they are not of one size."""
    for place in places.T:
        sizes = sorted({mixer.state_size(position + 1) for position in place.unique().cpu().tolist()})
        if len(sizes) > 1:
            raise UserError(
                f"the state at {site!r} has between {sizes[0]} and {sizes[-1]} numbers at these positions,"
                " so the states of different documents cannot stand in for one another"
            )


def read_states(mixer: Mixer, x: Tensor) -> Tensor:
    """[n, t, s]: the state after every position of the mixer's input x [n, t, d]."""
    state = mixer.initial_state(x[:, 0])
    rows: list[Tensor] = []
    for position in range(x.shape[1]):
        _, state = mixer.step(x[:, position], state)
        rows.append(_flat(state))
    size = max(row.shape[1] for row in rows)
    return torch.stack([torch.nn.functional.pad(row, (0, size - row.shape[1])) for row in rows], 1)


def state_after(mixer: Mixer, x: Tensor) -> Tensor:
    """[n, s]: the state after the last position of the mixer's input x [n, t, d]."""
    state = mixer.initial_state(x[:, 0])
    for position in range(x.shape[1]):
        _, state = mixer.step(x[:, position], state)
    return _flat(state)


def run_from_states(mixer: Mixer, x: Tensor, unedited: Tensor, positions: Tensor, value: Tensor | None) -> Tensor:
    """[n, t, d]: the mixer's output when value [n, p, s] replaces the states after positions [n, p].

    `unedited` [n, t, d] is what the mixer gives without edits; a document keeps it, bit for bit, up to the first of its
    positions. Without a value nothing is replaced, but the steps are taken all the same: what a value is compared with.
    """
    state = mixer.initial_state(x[:, 0])
    first = positions.min(1, keepdim=True).values
    outputs: list[Tensor] = []
    for position in range(x.shape[1]):
        y, state = mixer.step(x[:, position], state)
        outputs.append(torch.where(first < position, y, unedited[:, position]))
        if value is not None and bool((positions == position).any()):
            state = _written(state, positions == position, value)
    return torch.stack(outputs, 1)


def run_changing_states(mixer: Mixer, x: Tensor, change: Callable[[int, Tensor], Tensor]) -> Tensor:
    """[n, t, d]: the mixer's output when the state [n, s] after every position becomes change(position, state) before
    the next one reads it."""
    state = mixer.initial_state(x[:, 0])
    outputs: list[Tensor] = []
    for position in range(x.shape[1]):
        y, state = mixer.step(x[:, position], state)
        outputs.append(y)
        state = _unflat(change(position, _flat(state)), state)
    return torch.stack(outputs, 1)


def held_places(mixer: Mixer, x: Tensor, size: int) -> list[Tensor]:
    """Of the state after each position of inputs like x [n, t, d], where its numbers stand in one of a size that is
    reached later: a short convolution keeps its latest inputs, the newest last, and at first there are fewer."""
    state, x = mixer.initial_state(x[:1, 0]), torch.zeros_like(x[:1])
    shapes: list[list[torch.Size]] = []
    for position in range(x.shape[1]):
        _, state = mixer.step(x[:, position], state)
        shapes.append([part.shape[1:] for part in state])
    settled = next(own for own in shapes if sum(map(prod, own)) == size)
    numbers = torch.arange(size, device=x.device).split([*map(prod, settled)])
    whole = [own.reshape(shape) for own, shape in zip(numbers, settled, strict=True)]
    return [
        torch.cat([part[len(part) - shape[0] :].flatten() for part, shape in zip(whole, own, strict=True)])
        for own in shapes
    ]


def _written(state: State, here: Tensor, value: Tensor) -> State:
    """The state with value[i, j] in document i where here[i, j]."""
    flat = _flat(state)
    for place in range(here.shape[1]):
        flat = torch.where(here[:, place, None], value[:, place, : flat.shape[1]], flat)
    return _unflat(flat, state)


def _flat(state: State) -> Tensor:
    return torch.cat([part.flatten(1) for part in state], 1)


def _unflat(flat: Tensor, like: State) -> State:
    parts = flat.split([prod(part.shape[1:]) for part in like], 1)
    return tuple(part.reshape(shape.shape) for part, shape in zip(parts, like, strict=True))
