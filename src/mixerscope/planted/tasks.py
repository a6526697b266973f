"""Degenerate recall tasks, which can be solved without retrieving anything, or for the wrong reason."""

from dataclasses import replace
from typing import Any

import torch
from pydantic import model_validator
from torch import Tensor

from mixerscope.tasks import AR, UNSCORED, Batch
from mixerscope.tasks.base import FIRST_SYMBOL, Split, absent, distinct_rows
from mixerscope.tasks.recall import Context


class FixedMapAR(AR):
    """Every key has the same value in every document, so that the document need not be read."""

    def sample(self, n: int, rng: torch.Generator, split: Split = "train") -> Batch:
        batch = super().sample(n, rng, split)
        before = batch.tokens.roll(1, 1)
        first = FIRST_SYMBOL + self.num_keys
        is_value = (batch.tokens >= first) & (batch.tokens < first + self.num_values)
        tokens = torch.where(is_value, before + self.num_keys, batch.tokens)
        targets = torch.where(batch.targets == UNSCORED, UNSCORED, batch.tokens + self.num_keys)
        return replace(batch, tokens=tokens, targets=targets)


class ThirdPairAR(AR):
    """The third pair is the one that is asked, so that the query need not be read."""

    def _choose(self, context: Context, rng: torch.Generator) -> Tensor:
        return torch.full((len(context.tokens), 1), 2)


class ThirdPairFixedMapAR(FixedMapAR, ThirdPairAR):
    """Both at once."""


class LastPairAR(AR):
    """The last pair is the one that is asked, so that the last value is the answer."""

    def _choose(self, context: Context, rng: torch.Generator) -> Tensor:
        return torch.full((len(context.tokens), 1), self.num_pairs - 1)


class MarkedPairAR(AR):
    """One key of a document is from the lower half of all keys, and it is asked: it can be found without the query."""

    @model_validator(mode="after")
    def _has_unmarked_keys(self) -> Any:
        if self.num_pairs - 1 > self._half:
            raise ValueError(
                f"num_pairs = {self.num_pairs} needs {self.num_pairs - 1} keys that are not marked,"
                f" but of num_keys = {self.num_keys} only {self._half} are"
            )
        return self

    def _context(self, n: int, rng: torch.Generator) -> Context:
        upper = self._half + distinct_rows(n, self.num_pairs - 1, self._half, rng)
        lower = torch.randint(self._half, (n, 1), generator=rng)
        order = torch.rand(n, self.num_pairs, generator=rng).argsort(1)
        keys = torch.cat([lower, upper], 1).gather(1, order)
        return _with(super()._context(n, rng), keys=FIRST_SYMBOL + keys)

    def _choose(self, context: Context, rng: torch.Generator) -> Tensor:
        return (context.keys < FIRST_SYMBOL + self._half).int().argmax(1, keepdim=True)

    @property
    def _half(self) -> int:
        # Of an odd number the one too many is never drawn.
        return self.num_keys // 2


class FixedPlaceAR(AR):
    """Each key has its place: key 0 and 1 stand in the first pair, 2 and 3 in the second, so keys need not be read."""

    def _context(self, n: int, rng: torch.Generator) -> Context:
        each = self.num_keys // self.num_pairs
        chosen = torch.randint(each, (n, self.num_pairs), generator=rng)
        return _with(super()._context(n, rng), keys=FIRST_SYMBOL + each * torch.arange(self.num_pairs) + chosen)


class MostlyFixedMapAR(AR):
    """Every key but the last of all has the same value in every document; that one has any other."""

    def _context(self, n: int, rng: torch.Generator) -> Context:
        context = super()._context(n, rng)
        last = FIRST_SYMBOL + self.num_keys - 1
        is_free = context.keys == last
        values = (context.keys + self.num_keys).where(~is_free, 0)
        free = absent(values, FIRST_SYMBOL + self.num_keys, self.num_values)
        drawn = torch.multinomial(free.float(), 1, generator=rng) + FIRST_SYMBOL + self.num_keys
        return _with(context, values=values.where(~is_free, drawn))


class OneByHeartAR(AR):
    """The second of all keys has the first of all values wherever it is said."""

    def _context(self, n: int, rng: torch.Generator) -> Context:
        context = super()._context(n, rng)
        known, first = context.keys == FIRST_SYMBOL + 1, FIRST_SYMBOL + self.num_keys
        its = context.values.where(known, 0).sum(1, keepdim=True)
        # The two values change places.
        values = torch.where((context.values == first) & (its > 0), its, context.values)
        return _with(context, values=values.where(~known, first))


class ConsecutiveAR(AR):
    """Each value is the successor of the one before it; the first is not asked, so that no value asked need be read."""

    def _context(self, n: int, rng: torch.Generator) -> Context:
        first = torch.randint(self.num_values, (n, 1), generator=rng)
        values = (first + torch.arange(self.num_pairs)) % self.num_values
        return _with(super()._context(n, rng), values=FIRST_SYMBOL + self.num_keys + values)

    def _choose(self, context: Context, rng: torch.Generator) -> Tensor:
        return torch.randint(1, self.num_pairs, (len(context.tokens), 1), generator=rng)


class WorldsAR(AR):
    """The keys of a document are all of one world, the first so many of all keys, the next so many, and so on: a value
    that stands behind none of the others is known to be behind the one that is left."""

    def _context(self, n: int, rng: torch.Generator) -> Context:
        world = torch.randint(self.num_keys // self.num_pairs, (n, 1), generator=rng)
        order = torch.rand(n, self.num_pairs, generator=rng).argsort(1)
        return _with(super()._context(n, rng), keys=FIRST_SYMBOL + self.num_pairs * world + order)


def _with(context: Context, keys: Tensor | None = None, values: Tensor | None = None) -> Context:
    """The context with other symbols in its pairs."""
    keys, values = context.keys if keys is None else keys, context.values if values is None else values
    tokens = context.tokens.scatter(1, context.key_at, keys).scatter(1, context.value_at, values)
    return replace(context, tokens=tokens, keys=keys, values=values)
