"""Words over a group, parity among them: the state is the product of all inputs so far."""

from functools import cache
from typing import Any

import torch
from pydantic import Field, model_validator
from torch import Tensor

from mixerscope.tasks.automaton import Automaton
from mixerscope.tasks.groups import group
from mixerscope.tasks.state_tracking import StateTask

STATE = "state"


class Parity(StateTask):
    """Parity: whether the number of ones so far is odd. Bits are fair coins, so that no part of the inputs says
    anything about the answer."""

    presets = {"default": {}, "small": {"length": 8}, "long": {"length": 40}}

    @property
    def automaton(self) -> Automaton:
        return _words("Z2", 0.0, STATE)


class GroupWord(StateTask):
    """The word problem of a group: every input is an element, uniform over all of them, and the state is the product
    s_t = s_{t-1} x_t. With uniform inputs no stretch of them, and no position, says anything about the state.

    S3 is the smallest group in which the order of the inputs matters; Z6 has as many elements, and it does not.
    A5 and S5 cannot be taken apart into cyclic steps.
    """

    presets = {
        "default": {},
        "small": {"length": 8},
        "z6": {"group": "Z6"},
        "s3-resets": {"resets": 0.1},
        "sign": {"ask": "sign"},
        "a5": {"group": "A5"},
        "s5": {"group": "S5"},
    }

    group: str = "S3"
    """`S3` to `S5`, `A4`, `A5`, `Z6` or any `Zn`, `Z2xZ3` or any product of such."""
    resets: float = Field(default=0.0, ge=0, le=0.5)
    """Share of inputs that put the state back to the start: what follows one can be read without what came before."""
    ask: str = STATE
    """`state`, or what a smaller group sees of it: `sign` of permutations, `mod2` and `mod3` in Z6."""

    @model_validator(mode="after")
    def _exists(self) -> Any:
        found = group(self.group)
        if len(found.names) < 2:
            raise ValueError(f"{self.group} has one element, so there is nothing to track")
        if self.ask != STATE and self.ask not in found.labels:
            raise ValueError(f"ask = {self.ask!r}: of {self.group} can be asked {', '.join([STATE, *found.labels])}")
        return self

    @property
    def automaton(self) -> Automaton:
        return _words(self.group, self.resets, self.ask)

    def hard(self, inputs: Tensor) -> Tensor:
        return (inputs >= 0) & (inputs < len(group(self.group).names))


@cache
def _words(name: str, resets: float, ask: str) -> Automaton:
    elements = group(name)
    count = len(elements.names)
    transitions, inputs = elements.table, elements.names
    chances = torch.full((1, count), (1 - resets) / count, dtype=torch.float64)
    if resets:
        transitions = torch.cat([transitions, torch.zeros(count, 1, dtype=torch.int64)], 1)
        chances = torch.cat([chances, torch.full((1, 1), resets, dtype=torch.float64)], 1)
        inputs = (*inputs, "reset")
    answer: Tensor = torch.arange(count) if ask == STATE else elements.labels[ask]
    answers = elements.names if ask == STATE else tuple(map(str, range(int(answer.max()) + 1)))
    return Automaton(transitions, chances, answer, inputs, answers, elements.labels)
