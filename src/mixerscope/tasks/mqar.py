"""Multi-query associative recall: pairs, then many queries among fillers, at power-law distances."""

from typing import Any

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor
from torch.nn import functional as F

from mixerscope.tasks.base import PAD, UNSCORED, Batch
from mixerscope.tasks.recall import Context, Recall


class MQAR(Recall):
    """Multi-query associative recall (Arora et al. 2024). Two pairs, two queries, twelve tokens, fillers f:

        position  0    1   2   3   4   5    6   7   8   9   10  11
        tokens    BOS  k5  v2  k1  v7  EOS  f3  k1  f0  f8  k5  f3
        targets   .    .   .   .   .   .    .   v7  .   .   v2  .
        roles                  key value divider query

    Queries stand in the places behind the divider, the s-th of which is taken with weight s^(power - 1): a small
    power brings them close to the pairs with a heavy tail. Answers are not shown. Places without a query hold
    fillers, which are never keys or values, or PAD where `num_fillers` is 0.
    """

    presets = {
        "default": {},
        "small": {"num_pairs": 4, "num_queries": 4, "num_keys": 8, "num_values": 8, "length": 24},
        "fillers": {"num_fillers": 64},
        "noisy": {"num_fillers": 64, "noise": 8},
        "small-vocabulary": {"num_pairs": 16, "num_queries": 16, "num_keys": 128, "num_values": 128, "length": 128},
    }

    num_pairs: PositiveInt = 8
    """Key-value pairs in a document."""
    num_queries: PositiveInt = 8
    """Queries among the fillers."""
    length: PositiveInt = 64
    """Tokens in a document."""
    power: float = Field(default=0.1, gt=0)
    """Exponent of the power law; 1 spreads the queries evenly."""

    @model_validator(mode="after")
    def _has_room(self) -> Any:
        if self.length < self.context_length + self.num_queries:
            raise ValueError(
                f"length = {self.length} has no room for {self.num_pairs} pairs and {self.num_queries} queries;"
                f" they need {self.context_length + self.num_queries}"
            )
        return self

    @property
    def _fills_gaps(self) -> bool:
        return True

    @property
    def max_length(self) -> int:
        return self.length

    def _ask(self, context: Context, asked: Tensor, rng: torch.Generator) -> Batch:
        n = len(context.tokens)
        tokens = F.pad(context.tokens, (0, self.length - self.context_length), value=PAD)
        place = torch.arange(self.length) - context.divider[:, None]  # 1 is the first behind the divider
        if self.num_fillers:
            tokens = self._fillers((n, self.length), rng).where(place > 0, tokens)
        # Weighted choice without replacement: the largest of log weight + Gumbel noise.
        noise = -torch.log(-torch.log(torch.rand(n, self.length, generator=rng, dtype=torch.float64)))
        score = ((self.power - 1) * place.clamp(min=1).log() + noise).where(place > 0, -torch.inf)
        at = score.topk(self.num_queries, dim=1).indices.sort(1).values
        by_key = self.query == "key"
        questions, answers = (context.keys, context.values) if by_key else (context.values, context.keys)
        tokens.scatter_(1, at, questions.gather(1, asked))
        targets = torch.full_like(tokens, UNSCORED).scatter_(1, at, answers.gather(1, asked))
        return self._described(tokens, targets, context, asked, at[:, 0])
