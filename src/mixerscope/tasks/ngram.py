"""In-context n-grams: what followed the last time these symbols stood in the text?"""

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
    any_of,
    split_generator,
)
from mixerscope.tasks.mechanisms import PAIR, RETRIEVAL

LARGEST_CODE = 2**62
"""Sequences of symbols are compared as single integers."""


class NGram(Task):
    """Induction on natural repetition. With n = 3, the two symbols behind the divider are found in the text:

        position  0    1   2   3   4   5   6   7    8   9   10  11
        tokens    BOS  s4  s1  s4  s1  s2  s4  EOS  s4  s1  s2  EOS
        targets   .    .   .   .   .   .   .   .    .   s2  .   .
        roles                  .   key value   divider  query

    The text is uniform over the symbols, so contexts repeat by chance and with different followers: the last
    occurrence that has a follower counts. Every symbol can be a context, a follower, or both.
    """

    mechanisms = RETRIEVAL
    together = PAIR

    presets = {"default": {}, "small": {"length": 16, "num_symbols": 8}, "trigram": {"n": 3, "num_symbols": 8}}

    n: int = Field(default=2, ge=2)
    """Symbols of an n-gram: n - 1 are shown, the last is asked."""
    length: PositiveInt = 64
    """Symbols of the text."""
    num_symbols: int = Field(default=32, ge=2)
    """Symbols that a text is drawn from."""

    @model_validator(mode="after")
    def _is_possible(self) -> Any:
        if self.length < self.n:
            raise ValueError(f"length = {self.length} has no room for an n-gram of n = {self.n}")
        if self.num_symbols ** (self.n - 1) * self.length > LARGEST_CODE:
            raise ValueError(f"n = {self.n} is too long for num_symbols = {self.num_symbols}: too many contexts")
        return self

    @property
    def vocab_size(self) -> int:
        return FIRST_SYMBOL + self.num_symbols

    @property
    def max_length(self) -> int:
        return self.length + self.n + 3

    @property
    def slots(self) -> tuple[str, ...]:
        return ("key", "value", "query")

    def symbol_class(self, slot: str, symbols: Symbols) -> tuple[int, int]:
        return FIRST_SYMBOL, self.num_symbols

    def sample(self, n: int, rng: torch.Generator, split: Split = "train") -> Batch:
        shown, rng = self.n - 1, split_generator(rng, split)
        text = torch.randint(self.num_symbols, (n, self.length), generator=rng)
        code, order, is_last = self._contexts(text)
        window = order.gather(1, any_of(is_last, rng)[0])[:, 0]  # where the asked context begins in the text

        tokens = torch.full((n, self.max_length), EOS)
        tokens[:, 0] = BOS
        tokens[:, 1 : self.length + 1] = FIRST_SYMBOL + text
        divider = self.length + 1
        value = window + shown + 1
        answer = tokens.gather(1, value[:, None])[:, 0]
        tokens[:, divider + 1 : divider + self.n] = tokens.gather(1, 1 + window[:, None] + torch.arange(shown))
        tokens[:, divider + self.n] = answer
        targets = torch.full_like(tokens, UNSCORED)
        targets[:, divider + shown] = answer
        at = torch.full((n,), divider)
        roles = {"key": value - 1, "value": value, "divider": at, "query": at + shown}
        occurrences = (code == code.gather(1, window[:, None])).sum(1)
        return Batch(tokens, targets, roles, {"occurrences": occurrences, "distance": at + shown - value})

    def _contexts(self, text: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[n, w] a code of each context that has a follower, their order by code, and in it who is the last of his."""
        shown = self.n - 1
        windows = text.unfold(1, shown, 1)[:, :-1]
        code = (windows * self.num_symbols ** torch.arange(shown)).sum(2)
        # Sorted by context and then position, the last of each run is the last occurrence.
        count = code.shape[1]
        order = (code * count + torch.arange(count)).sort(1)
        is_last = torch.ones(len(text), count, dtype=torch.bool)
        is_last[:, :-1] = order.values[:, 1:] // count != order.values[:, :-1] // count
        return code, order.indices, is_last

    @property
    def counterfactuals(self) -> tuple[str, ...]:
        return ("query", "value")

    def alter(self, kind: str, batch: Batch, rng: torch.Generator) -> Change:
        tokens, shown, divider = batch.tokens, self.n - 1, self.length + 1
        asked, answer = tokens[:, divider + 1 : divider + self.n], batch.answers()[1][:, None]
        if kind == "query":
            _, order, is_last = self._contexts(tokens[:, 1:divider] - FIRST_SYMBOL)
            followers = tokens.gather(1, 1 + order + shown)
            chosen, possible = any_of(is_last & (followers != answer), rng)
            window, new = order.gather(1, chosen), followers.gather(1, chosen)
            asked = tokens.gather(1, 1 + window + torch.arange(shown))
        else:
            # A symbol that is not in the asked context, so that it makes no later occurrence of it.
            free = torch.ones(len(batch), self.num_symbols, dtype=torch.bool)
            free.scatter_(1, torch.cat([asked, answer], 1) - FIRST_SYMBOL, False)
            index, possible = any_of(free, rng)
            new = FIRST_SYMBOL + index
            tokens = tokens.scatter(1, batch.role("value")[:, None], new)
        tokens = torch.cat([tokens[:, : divider + 1], asked, new, tokens[:, divider + self.n + 1 :]], 1)
        return Change(tokens, new[:, 0], possible)

    def solve(self, batch: Batch) -> Tensor:
        tokens, shown = batch.tokens, self.n - 1
        answers = torch.full((len(batch), 1), UNSCORED)
        asked = tokens[:, self.length + 2 : self.length + 2 + shown]
        for begin in range(1, self.length - shown + 1):  # later occurrences overwrite earlier ones
            same = (tokens[:, begin : begin + shown] == asked).all(1, keepdim=True)
            answers = torch.where(same, tokens[:, begin + shown, None], answers)
        return answers

    def symbol(self, token: int) -> str:
        return SPECIAL_NAMES[token] if token < FIRST_SYMBOL else f"s{token - FIRST_SYMBOL}"
