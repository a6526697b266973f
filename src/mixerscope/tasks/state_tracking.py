"""Tasks that track a state: inputs move a finite automaton, and every position asks where it is by now."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from mixerscope.errors import UserError
from mixerscope.tasks.automaton import NOTHING, Automaton
from mixerscope.tasks.base import (
    BOS,
    FIRST_SYMBOL,
    MOST_REDRAWS,
    PAD,
    SPECIAL_NAMES,
    UNSCORED,
    Batch,
    Change,
    Split,
    Symbols,
    Task,
    any_of,
    split_generator,
)
from mixerscope.tasks.split import in_split, token_hashes

MOST_INPUTS = 4096
"""Of the longest documents."""
LONGER = (2, 4, 8)
"""How many times as long the documents of the variants are."""


class StateTask(Task):
    """Base of the tasks that track a state. Parity of four bits:

        position  0    1    2    3    4
        tokens    BOS  1    0    1    1
        targets   .    =1   =1   =0   =1
        roles               input after query

    `input` is in the middle of the document, where `corrupt` changes it; `query` is the last scored position, which
    `single_query` asks alone.
    """

    windows: ClassVar[tuple[int, ...]] = (1, 4, 8)
    usual_stages = ("lengths", "probes", "erase", "interchange", "align", "recover", "track", "patterns")

    length: int = Field(default=16, ge=4, le=MOST_INPUTS)
    """Inputs of the longest documents; BOS stands before them."""
    min_length: int | None = Field(default=None, ge=2)
    """Inputs of the shortest documents, lengths uniform in between; left out, all documents are equally long."""
    curriculum: float = Field(default=0.0, ge=0, le=1)
    """Share of the training documents, in the order in which they are read, over which lengths grow from `min_length`
    to `length`; all others then have `length` inputs."""
    disjoint: bool = True
    """Whether no document of one split is in another, which rules out that short ones are known by heart."""
    only_last: bool = False
    """Whether the last scored position of a document is asked alone."""

    @model_validator(mode="after")
    def _lengths_fit(self) -> Any:
        if self.min_length is not None and self.min_length >= self.length:
            raise ValueError(f"min_length = {self.min_length} must be below length = {self.length}, or left out")
        if self.curriculum and self.min_length is None:
            raise ValueError("curriculum has no use without min_length, from which lengths grow")
        return self

    @property
    @abstractmethod
    def automaton(self) -> Automaton:
        """What moves, and what is asked of it."""

    @property
    def vocab_size(self) -> int:
        return FIRST_SYMBOL + len(self.automaton.inputs) + len(self.automaton.answers)

    @property
    def max_length(self) -> int:
        return self.length + 1

    @property
    def slots(self) -> tuple[str, ...]:
        return ("input",)

    def symbol_class(self, slot: str, symbols: Symbols) -> tuple[int, int]:
        return FIRST_SYMBOL, len(self.automaton.inputs)

    def symbol(self, token: int) -> str:
        if token < FIRST_SYMBOL:
            return SPECIAL_NAMES[token]
        index, automaton = token - FIRST_SYMBOL, self.automaton
        count = len(automaton.inputs)
        return automaton.inputs[index] if index < count else f"={automaton.answers[index - count]}"

    def answer_tokens(self, states: Tensor) -> Tensor:
        """The token that is the right answer in each of these states."""
        return FIRST_SYMBOL + len(self.automaton.inputs) + self.automaton.answer.to(states.device)[states]

    def asked(self, inputs: Tensor) -> Tensor:
        """[n, l] which of the inputs [n, l] are followed by a question."""
        return inputs != NOTHING

    def hard(self, inputs: Tensor) -> Tensor:
        """[n, t] after which inputs the last one alone does not tell the answer."""
        return inputs != NOTHING

    def inputs_of(self, tokens: Tensor) -> Tensor:
        """[n, t] the inputs that tokens stand for, `NOTHING` where they stand for none."""
        index = tokens - FIRST_SYMBOL
        return index.where((index >= 0) & (index < len(self.automaton.inputs)), NOTHING)

    def states(self, batch: Batch) -> Mapping[str, Tensor]:
        """`state`, the automaton's own, and what else is true of it; `NOTHING` behind the end of a document."""
        inputs = self.inputs_of(batch.tokens)
        states = self.automaton.run(inputs)
        known = batch.tokens != PAD
        labels = {"state": torch.arange(self.automaton.num_states), **self.automaton.labels}
        return {name: label.to(states.device)[states].where(known, NOTHING) for name, label in labels.items()}

    def sample(self, n: int, rng: torch.Generator, split: Split = "train") -> Batch:
        rng = split_generator(rng, split)
        lengths = self._lengths(n, rng, growing=split == "train")
        inputs = torch.full((n, self.length), NOTHING)
        missing = torch.arange(n)
        for _ in range(MOST_REDRAWS):
            if len(missing) == 0:
                return self._batch(inputs, lengths)
            drawn = self.automaton.draw(len(missing), self.length, rng)
            drawn = drawn.where(torch.arange(self.length) < lengths[missing, None], NOTHING)
            usable = self.asked(drawn).any(1) & self._belongs(drawn, split)
            inputs[missing[usable]] = drawn[usable]
            missing = missing[~usable]
        raise UserError(
            f"{len(missing)} of {n} documents of the {split} split could not be drawn: with {int(lengths.min())} inputs"
            " there are too few different ones; make documents longer, or set disjoint to false"
        )

    def _lengths(self, n: int, rng: torch.Generator, growing: bool) -> Tensor:
        """[n] inputs of each document."""
        if self.min_length is None or (self.curriculum and not growing):
            return torch.full((n,), self.length)
        more = self.length - self.min_length
        if self.curriculum:
            return self.min_length + (more * (torch.arange(n) / (self.curriculum * n)).clamp(max=1)).long()
        return self.min_length + torch.randint(more + 1, (n,), generator=rng)

    def _belongs(self, inputs: Tensor, split: Split) -> Tensor:
        if not self.disjoint:
            return torch.ones(len(inputs), dtype=torch.bool)
        at = np.broadcast_to(np.arange(inputs.shape[1]), tuple(inputs.shape))
        hashes = token_hashes(at, (inputs + 1).numpy())  # those behind the end too: they tell lengths apart
        return torch.from_numpy(in_split(hashes.sum(1, dtype=np.uint64), split))

    def _batch(self, inputs: Tensor, lengths: Tensor) -> Batch:
        n = len(inputs)
        tokens = torch.full((n, self.length + 1), PAD)
        tokens[:, 0] = BOS
        tokens[:, 1:] = (FIRST_SYMBOL + inputs).where(inputs != NOTHING, PAD)
        asked = self.asked(inputs)
        last = torch.where(asked, torch.arange(self.length), -1).amax(1)
        if self.only_last:
            asked = torch.zeros_like(asked).scatter(1, last[:, None], True)
        targets = torch.full_like(tokens, UNSCORED)
        targets[:, 1:] = self.answer_tokens(self.automaton.run(inputs)).where(asked, UNSCORED)
        middle = (lengths + 1) // 2
        roles = {"input": middle, "after": middle + 1, "query": 1 + last}
        return Batch(tokens, targets, roles, {"length": lengths})

    def solve(self, batch: Batch) -> Tensor:
        positions, targets = batch.scored()
        states = self.automaton.composed(self.inputs_of(batch.tokens))
        return self.answer_tokens(states.gather(1, positions)).where(targets != UNSCORED, UNSCORED)

    @property
    def counterfactuals(self) -> tuple[str, ...]:
        return ("input",)

    def alter(self, kind: str, batch: Batch, rng: torch.Generator) -> Change:
        """Another input in the middle, after which the inputs that follow lead to another answer."""
        automaton, (query, answers) = self.automaton, batch.answers()
        at, count, n = batch.role("input")[:, None], len(automaton.inputs), len(batch)
        inputs = self.inputs_of(batch.tokens)
        tried = inputs.repeat_interleave(count, 0)
        tried.scatter_(1, at.repeat_interleave(count, 0), torch.arange(count).repeat(n)[:, None])
        ends = self.answer_tokens(automaton.run(tried).gather(1, query.repeat_interleave(count)[:, None]))
        ends = ends.view(n, count)
        valid = automaton.possible(tried).view(n, count) & self._still_asked(tried, query, count)
        chosen, possible = any_of(valid & (ends != answers[:, None]), rng)
        tokens = batch.tokens.scatter(1, at, FIRST_SYMBOL + chosen)
        return Change(tokens, ends.gather(1, chosen)[:, 0], possible)

    def _still_asked(self, tried: Tensor, query: Tensor, count: int) -> Tensor:
        asked = torch.cat([torch.zeros_like(tried[:, :1], dtype=torch.bool), self.asked(tried[:, 1:])], 1)
        return asked.gather(1, query.repeat_interleave(count)[:, None]).view(-1, count)

    def single_query(self) -> Self:
        return self if self.only_last else self.changed(only_last=True)

    def at_length(self, length: int) -> Self:
        """The same task with documents of this many inputs, all equally long."""
        return self.changed(length=length, min_length=None, curriculum=0.0)

    def variants(self) -> Mapping[str, Task]:
        """The documents two, four and eight times as long."""
        return {f"{times}x": self.at_length(times * self.length) for times in LONGER}
