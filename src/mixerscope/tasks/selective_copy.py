"""Selective copying: a few symbols among many fillers, to be given back in order."""

from typing import Any

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from mixerscope.tasks.base import (
    BOS,
    EOS,
    FIRST_SYMBOL,
    SPECIAL_NAMES,
    UNSCORED,
    Batch,
    Change,
    Split,
    Symbols,
    Task,
    absent,
    any_of,
    distinct_rows,
    split_generator,
)
from mixerscope.tasks.mechanisms import PAIR, RETRIEVAL


class SelectiveCopy(Task):
    """Selective copying. Two symbols among three fillers:

        position  0    1   2   3   4   5   6    7     8
        tokens    BOS  f0  s5  f1  f0  s2  EOS  copy  copy
        targets   .    .   .   .   .   .   .    s5    s2
        roles              value           divider query

    The j-th `copy` asks for the j-th symbol that is no filler. Nothing that was asked before is shown, so no answer
    helps the next. With `num_queries` only so many of them, chosen at random, are scored; roles name the first.
    """

    mechanisms = RETRIEVAL
    together = PAIR

    presets = {
        "default": {},
        "small": {"num_copied": 3, "length": 12, "num_symbols": 6},
        "long": {"length": 256, "num_copied": 16},
    }

    num_copied: PositiveInt = 8
    """Symbols to copy."""
    length: PositiveInt = 64
    """Places they are scattered over."""
    num_symbols: int = Field(default=16, ge=2)
    """Symbols that can be copied."""
    num_fillers: PositiveInt = 4
    """Symbols that stand at all other places."""
    num_queries: PositiveInt | None = None
    """Copies that are scored; left out, all."""

    @model_validator(mode="after")
    def _is_possible(self) -> Any:
        if self.num_copied > self.length:
            raise ValueError(f"num_copied = {self.num_copied} symbols have no room in length = {self.length}")
        if self.num_queries is not None and self.num_queries >= max(2, self.num_copied):
            raise ValueError(
                f"num_queries = {self.num_queries} must be below num_copied = {self.num_copied}, or left out"
            )
        return self

    @property
    def vocab_size(self) -> int:
        return self._copy + 1

    @property
    def _copy(self) -> int:
        return FIRST_SYMBOL + self.num_symbols + self.num_fillers

    @property
    def max_length(self) -> int:
        return self.length + self.num_copied + 2

    @property
    def slots(self) -> tuple[str, ...]:
        return ("value",)  # not the query: `copy` is alone in its class, and only its place says what it asks for

    def symbol_class(self, slot: str, symbols: Symbols) -> tuple[int, int]:
        return FIRST_SYMBOL, self.num_symbols

    def sample(self, n: int, rng: torch.Generator, split: Split = "train") -> Batch:
        copied, rng = self.num_copied, split_generator(rng, split)
        content = FIRST_SYMBOL + torch.randint(self.num_symbols, (n, copied), generator=rng)
        at = 1 + distinct_rows(n, copied, self.length, rng).sort(1).values
        tokens = torch.full((n, self.max_length), self._copy)
        tokens[:, 0] = BOS
        fillers = torch.randint(self.num_fillers, (n, self.length), generator=rng)
        tokens[:, 1 : self.length + 1] = FIRST_SYMBOL + self.num_symbols + fillers
        tokens.scatter_(1, at, content)
        divider = self.length + 1
        tokens[:, divider] = EOS
        count = copied if self.num_queries is None else self.num_queries
        asked = distinct_rows(n, count, copied, rng).sort(1).values
        targets = torch.full_like(tokens, UNSCORED)
        targets.scatter_(1, divider + 1 + asked, content.gather(1, asked))
        roles = {
            "value": at.gather(1, asked[:, :1])[:, 0],
            "divider": torch.full((n,), divider),
            "query": divider + 1 + asked[:, 0],
        }
        return Batch(tokens, targets, roles, {"index": asked[:, 0], "distance": roles["query"] - roles["value"]})

    @property
    def counterfactuals(self) -> tuple[str, ...]:
        return ("value",)

    def alter(self, kind: str, batch: Batch, rng: torch.Generator) -> Change:
        index, possible = any_of(absent(batch.tokens, FIRST_SYMBOL, self.num_symbols), rng)
        new = FIRST_SYMBOL + index
        return Change(batch.tokens.scatter(1, batch.role("value")[:, None], new), new[:, 0], possible)

    def solve(self, batch: Batch) -> Tensor:
        tokens = batch.tokens
        positions, targets = batch.scored()
        is_content = (tokens >= FIRST_SYMBOL) & (tokens < FIRST_SYMBOL + self.num_symbols)
        nth = is_content.cumsum(1)  # the how-manieth symbol each one is
        asks = (tokens == self._copy).cumsum(1).gather(1, positions)
        answers = torch.full_like(targets, UNSCORED)
        for q in range(positions.shape[1]):
            mine = is_content & (nth == asks[:, q : q + 1])
            found = (tokens * mine).sum(1)
            answers[:, q] = torch.where(mine.any(1) & (targets[:, q] != UNSCORED), found, UNSCORED)
        return answers

    def symbol(self, token: int) -> str:
        if token < FIRST_SYMBOL:
            return SPECIAL_NAMES[token]
        index = token - FIRST_SYMBOL
        if index < self.num_symbols:
            return f"s{index}"
        return "copy" if token == self._copy else f"f{index - self.num_symbols}"

    def single_query(self) -> "SelectiveCopy":
        return self if self.num_copied == 1 else self.changed(num_queries=1)
