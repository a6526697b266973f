"""Degenerate recall tasks, which a sham can solve without retrieving anything."""

from dataclasses import replace

import torch
from torch import Tensor

from mixerscope.tasks import AR, UNSCORED, Batch
from mixerscope.tasks.base import FIRST_SYMBOL, Split
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
