"""Brackets of several types, nested up to a depth: Dyck-(k, m)."""

from functools import cache
from typing import Any, Literal, get_args

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from mixerscope.tasks.automaton import NOTHING, Automaton
from mixerscope.tasks.base import FIRST_SYMBOL, UNSCORED, Batch
from mixerscope.tasks.state_tracking import StateTask

Ask = Literal["top", "depth", "next"]
MOST_STATES = 50_000
"""Stacks that can occur: the automaton is a table with a row for each."""


class Dyck(StateTask):
    """Dyck-(k, m): k types of brackets, at most m of them open at a time (Hewitt et al. 2020).

    Where both are possible a bracket opens or closes with the same chance; the type that opens is uniform, and what
    closes is what opened last. Documents are prefixes: they need not end with everything closed.

    `top` asks which bracket is open innermost, `depth` how many are. `next` asks for the next token where that closes
    a bracket, in the way of language models; which one opens cannot be known, and is not asked.
    The depth is even at even positions, unless `noop` puts inputs in between that change nothing; and right after a
    bracket opens, the innermost one is the last token: `after_close` does not ask there.
    """

    presets = {
        "default": {},
        "small": {"types": 2, "depth": 3, "length": 12},
        "after-close": {"after_close": True, "noop": 0.2},
        "next": {"ask": "next"},
        "counter": {"types": 1, "ask": "depth", "noop": 0.2},
        "wide": {"types": 8, "depth": 5, "length": 40},
    }

    types: PositiveInt = 3
    """Of brackets (k)."""
    depth: PositiveInt = 4
    """Most brackets that are open at a time (m)."""
    ask: Ask = "top"
    """`top`, `depth` or `next`."""
    noop: float = Field(default=0.0, ge=0, le=0.9)
    """Share of inputs that change nothing."""
    after_close: bool = False
    """Whether only positions right after a closing bracket are asked."""

    @model_validator(mode="after")
    def _is_possible(self) -> Any:
        stacks = sum(self.types**depth for depth in range(self.depth + 1))
        if stacks > MOST_STATES:
            raise ValueError(
                f"types = {self.types} and depth = {self.depth} make {stacks:,} stacks; at most {MOST_STATES:,} can be"
                " followed"
            )
        if self.ask == "top" and self.types == 1:
            raise ValueError("with one type of bracket there is no top to tell apart; set ask to 'depth'")
        return self

    @property
    def automaton(self) -> Automaton:
        return _brackets(self.types, self.depth, self.noop, self.ask)

    def answer_tokens(self, states: Tensor) -> Tensor:
        if self.ask != "next":
            return super().answer_tokens(states)
        top = self.automaton.labels["top"].to(states.device)[states]
        return FIRST_SYMBOL + self.types + top.clamp(max=self.types - 1)  # the bracket that closes it

    def closes(self, inputs: Tensor) -> Tensor:
        """[n, l] which inputs are closing brackets."""
        return (inputs >= self.types) & (inputs < 2 * self.types)

    def hard(self, inputs: Tensor) -> Tensor:
        return self.closes(inputs)

    def asked(self, inputs: Tensor) -> Tensor:
        found = super().asked(inputs)
        if self.after_close:
            found = found & self.closes(inputs)
        if self.ask == "next":
            following = torch.cat([inputs[:, 1:], torch.full_like(inputs[:, :1], NOTHING)], 1)
            found = found & self.closes(following)
        return found

    def solve(self, batch: Batch) -> Tensor:
        """Without a stack: the innermost open bracket is the last one that opened at the depth there is now."""
        positions, targets = batch.scored()
        inputs = self.inputs_of(batch.tokens)
        opens = (inputs >= 0) & (inputs < self.types)
        depth = (opens.long() - self.closes(inputs).long()).cumsum(1)
        at = torch.arange(inputs.shape[1])
        here = depth.gather(1, positions)[..., None]  # [n, q, 1]
        mine = opens[:, None] & (depth[:, None] == here) & (at <= positions[..., None])
        innermost = inputs.gather(1, torch.where(mine, at, 0).amax(-1))
        first = FIRST_SYMBOL + len(self.automaton.inputs)
        if self.ask == "depth":
            answers = first + here[..., 0]
        elif self.ask == "top":
            answers = first + innermost.where(here[..., 0] > 0, self.types)
        else:
            answers = FIRST_SYMBOL + self.types + innermost
        return answers.where(targets != UNSCORED, UNSCORED)

    def read_answers(self, batch: Batch) -> Tensor:
        """A changed document need not be nested; the automaton says what it then means."""
        positions, targets = batch.scored()
        states = self.automaton.run(self.inputs_of(batch.tokens))
        return self.answer_tokens(states.gather(1, positions)).where(targets != UNSCORED, UNSCORED)

    @property
    def counterfactuals(self) -> tuple[str, ...]:
        # The token after the question closes what is asked for: no other bracket can have been open.
        return () if self.ask == "next" else super().counterfactuals


@cache
def _brackets(types: int, most: int, noop: float, ask: Ask) -> Automaton:
    assert ask in get_args(Ask)
    count = [types**depth for depth in range(most + 1)]
    first = [sum(count[:depth]) for depth in range(most + 1)]  # stacks are numbered by depth, then as numbers of base k
    states = sum(count)
    every = torch.arange(states)
    transitions = every[:, None].repeat(1, 2 * types)  # what can never come leaves the stack as it is, but for closing:
    depths, top = torch.zeros(states, dtype=torch.int64), torch.full((states,), types)
    chances = torch.zeros(states, 2 * types, dtype=torch.float64)
    for depth in range(most + 1):
        here, code = first[depth] + torch.arange(count[depth]), torch.arange(count[depth])
        depths[here] = depth
        if depth < most:
            for kind in range(types):
                transitions[here, kind] = first[depth + 1] + code * types + kind
            chances[here, :types] = (0.5 if depth else 1.0) / types
        if depth:
            top[here] = code % types
            # A bracket of another type, which only a changed document can hold, closes all the same.
            transitions[here, types:] = (first[depth - 1] + code // types)[:, None]
            chances[here, types + top[here]] = 0.5 if depth < most else 1.0
    inputs = (*(f"({i}" for i in range(types)), *(f"{i})" for i in range(types)))
    if noop:
        transitions = torch.cat([transitions, every[:, None]], 1)
        chances = torch.cat([(1 - noop) * chances, torch.full((states, 1), noop, dtype=torch.float64)], 1)
        inputs = (*inputs, "noop")
    labels = {"depth": depths, "top": top}
    answer = depths if ask == "depth" else top
    names = map(str, range(most + 1)) if ask == "depth" else (*map(str, range(types)), "empty")
    return Automaton(transitions, chances, answer, inputs, tuple(names), labels)
