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
class InitRule:
    """How the plain linear layers of a model of `depth` layers start. A mixer whose paper says otherwise ignores it."""

    depth: int
    fan_in: bool = False
    """N(0, 1/sqrt(fan_in)) in place of the published N(0, 0.02): tiny models then learn several times sooner."""

    def std(self, linear: nn.Linear) -> float:
        return linear.in_features**-0.5 if self.fan_in else REFERENCE_STD


@dataclass(frozen=True)
class Mover:
    """A part of a mixer that can carry information from one position to another."""

    component: str
    """What people call it: 'short convolution', 'scan'."""
    site: str
    """The mixer's site just after it."""


class Mixer(nn.Module):
    """Base of all mixers. Options are keyword-only arguments of `__init__`, after the positional `width`."""

    revision: ClassVar[int] = 1
    """Raised when what the mixer computes or a default changes, so that runs of before keep their ids and new ones get
    others."""
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
    movers: tuple[Mover, ...] = ()
    """The parts that move information between positions, in the order in which it passes them.

    An instance replaces the class's value where its options decide which parts it has.
    """

    def __init_subclass__(cls) -> None:
        # A subclass with a forward pass of its own must not inherit its parent's shortcuts to it.
        if "forward" in cls.__dict__:
            for shortcut in ("forward_at", "learn_at", "residual"):
                if shortcut not in cls.__dict__:
                    setattr(cls, shortcut, getattr(Mixer, shortcut))

    @classmethod
    def order_blind(cls, options: Mapping[str, Any]) -> bool:
        """Whether the mixer with these options cannot tell order without position embeddings."""
        return cls.wants_positions

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """[b, t, d] -> [b, t, d]; position t of the output depends on positions <= t of the input."""

    def forward_at(self, x: Tensor, at: Tensor) -> Tensor:
        """`forward` at one position `at` [b] of each document alone: x [b, t, d] -> [b, d].

        A mixer that can do this more cheaply than by its whole output overrides it. Its sites need not fire.
        """
        return row_at(self.forward(x), at)

    def learn_at(self, x: Tensor, at: Tensor) -> Tensor:
        """`forward_at` in a training step on a GPU, past all sites and whatever the last bits.

        In the last block that is all anybody reads: what no position but `at` needs can be computed there alone.
        """
        return self.forward_at(x, at)

    def residual(self, x: Tensor, norm: nn.LayerNorm) -> Tensor | None:
        """x + forward(norm(x)) for x [b, t, d] by a shorter way, past all sites; None where there is none.

        For training on a GPU, where nobody looks inside and the number of launches counts.
        """
        return None

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

    def init_weights(self, rng: torch.Generator, rule: InitRule) -> None:
        """Initialises all weights by the rule of the mixer's paper, or by `rule` where it has none of its own."""
        init_linears(self, rng, rule)


def row_at(x: Tensor, at: Tensor) -> Tensor:
    """x [b, t, ...] at one position `at` [b] of each document, [b, ...]."""
    return x[torch.arange(len(x), device=x.device), at]


def require_at_least(minimum: int, mixer: str, options: Mapping[str, int]) -> None:
    """Refuses an option below `minimum`, by name."""
    for name, value in options.items():
        if value < minimum:
            raise UserError(f"{mixer}: {name} = {value} must be at least {minimum}")


def init_linears(module: nn.Module, rng: torch.Generator, rule: InitRule) -> None:
    """Every linear layer inside: weights normal, biases zero."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=rule.std(part), generator=rng)
            if part.bias is not None:
                nn.init.zeros_(part.bias)


def init_output(linear: nn.Linear, rng: torch.Generator, rule: InitRule) -> None:
    """A layer that writes to the residual stream: smaller in deeper models, so that the sum of all writes is not."""
    nn.init.normal_(linear.weight, std=rule.std(linear) / (2 * rule.depth) ** 0.5, generator=rng)
