"""What a sequence mixer is: a causal map [batch, position, width] -> [batch, position, width] with named insides."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from mixerscope.errors import UserError

State = tuple[Tensor, ...]
"""What a mixer carries from one position to the next; dimension 0 of each tensor is the document."""

REFERENCE_STD = 0.02
"""Standard deviation of weights under the published rule."""


@dataclass(frozen=True)
class Move:
    """A part of a mixer that can carry information from one position to another."""

    component: str
    """What people call it: 'short convolution', 'scan'."""
    site: str
    """The mixer's site just after it."""


class Mixer(nn.Module):
    """Base of all mixers. Options are keyword-only arguments of `__init__`, after the positional `width`."""

    block_norm: ClassVar[Literal["layer", "rms", "none"]] = "layer"
    """Normalisation of the block this mixer is published with."""
    block_mlp: ClassVar[bool] = True
    """Whether that block has an MLP."""
    wants_positions: ClassVar[bool] = False
    """Whether the mixer cannot tell order without position embeddings; see `order_blind`."""
    equation: ClassVar[str] = ""
    """The mixer as one formula."""
    paper: ClassVar[str] = ""
    """Where it was published."""
    moves: tuple[Move, ...] = ()
    """The parts that move information between positions, in the order in which it passes them.

    An instance replaces the class's value where its options decide which parts it has.
    """

    @classmethod
    def order_blind(cls, options: Mapping[str, Any]) -> bool:
        """Whether the mixer with these options cannot tell order without position embeddings."""
        return cls.wants_positions

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """[b, t, d] -> [b, t, d]; position t of the output depends on positions <= t of the input."""

    @abstractmethod
    def state_size(self, length: int) -> int:
        """Numbers per document that cross from position `length` to the next in step-by-step use."""

    def initial_state(self, x: Tensor) -> State:
        """The state before the first position, for documents like x [b, d]."""
        return (x.new_zeros(x.shape[0], 0, x.shape[1]),)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """One position: x [b, d] and the state so far to y [b, d] and the state after.

        The default carries the whole history and runs `forward` over it: right for every causal mixer, and as
        expensive as it sounds. A mixer with something better to carry overrides it together with `initial_state`.
        """
        history = torch.cat([state[0], x[:, None]], 1)
        return self.forward(history)[:, -1], (history,)

    def init_weights(self, rng: torch.Generator, depth: int) -> None:
        """Initialises all weights by the published rule, for a model of `depth` layers."""
        init_linears(self, rng)


def require_at_least(minimum: int, mixer: str, options: Mapping[str, int]) -> None:
    """Refuses an option below `minimum`, by name."""
    for name, value in options.items():
        if value < minimum:
            raise UserError(f"{mixer}: {name} = {value} must be at least {minimum}")


def init_linears(module: nn.Module, rng: torch.Generator, std: float = REFERENCE_STD) -> None:
    """Every linear layer inside: weights N(0, std), biases zero."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=std, generator=rng)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
