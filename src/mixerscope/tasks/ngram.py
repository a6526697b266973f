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
    Split,
    Symbols,
    Task,
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
        windows = text.unfold(1, shown, 1)[:, :-1]  # [n, w, n - 1]: every context that has a follower
        code = (windows * self.num_symbols ** torch.arange(shown)).sum(2)
        # Sorted by context and then position, the last of each run is the last occurrence.
        count = code.shape[1]
        order = (code * count + torch.arange(count)).sort(1)
        is_last = torch.ones(n, count, dtype=torch.bool)
        is_last[:, :-1] = order.values[:, 1:] // count != order.values[:, :-1] // count
        drawn = (torch.rand(n, count, generator=rng) + is_last).argmax(1, keepdim=True)
        window = order.indices.gather(1, drawn)[:, 0]  # where the asked context begins in the text

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
