"""Associative recall: pairs of keys and values, then a key whose value is asked."""

from typing import Any, Literal

import torch
from pydantic import PositiveInt, model_validator
from torch import Tensor

from mixerscope.errors import UnknownName
from mixerscope.tasks.base import UNSCORED, Batch, Split, Symbols, Task, distinct_rows, other_symbol, redraw_present

PAD, BOS, EOS = 0, 1, 2
FIRST_SYMBOL = 3


class AR(Task):
    """Associative recall. With two pairs and one query:

        position  0    1   2   3   4   5      6   7   8
        tokens    BOS  k5  v2  k1  v7  EOS    k1  v7  EOS
        targets   .    .   .   .   .   .      v7  .   .
        roles                  key value divider query

    Keys are distinct within a document, and so are values; any key may stand with any value. The query is one of the
    document's keys (or values, with `query="value"`). More queries put `query answer` again before the last EOS, all
    distinct; roles then name the first one.
    """

    num_pairs: PositiveInt = 16
    """Key-value pairs in a document."""
    num_keys: PositiveInt = 4096
    """Symbols that can be keys."""
    num_values: PositiveInt = 4096
    """Symbols that can be values."""
    num_queries: PositiveInt = 1
    """Queries after the divider; more than one makes supervision denser."""
    query: Literal["key", "value"] = "key"
    """What is shown after the divider; the answer is its partner."""

    @model_validator(mode="after")
    def _fits(self) -> Any:
        for what, have in (("num_keys", self.num_keys), ("num_values", self.num_values)):
            if self.num_pairs > have:
                raise ValueError(f"num_pairs = {self.num_pairs} needs as many distinct symbols, but {what} = {have}")
        if self.num_queries > self.num_pairs:
            raise ValueError(f"num_queries = {self.num_queries} cannot exceed num_pairs = {self.num_pairs}")
        return self

    @property
    def vocab_size(self) -> int:
        # The last id is never used: the published models carry one such row, and parameter counts should agree.
        return FIRST_SYMBOL + self.num_keys + self.num_values + 1

    @property
    def max_length(self) -> int:
        return 2 * self.num_pairs + 2 * self.num_queries + 3

    @property
    def slots(self) -> tuple[str, ...]:
        return ("key", "value")

    def sample(self, n: int, rng: torch.Generator, split: Split = "train") -> Batch:
        pairs, queries = self.num_pairs, self.num_queries
        keys = FIRST_SYMBOL + distinct_rows(n, pairs, self.num_keys, rng)
        values = FIRST_SYMBOL + self.num_keys + distinct_rows(n, pairs, self.num_values, rng)
        asked = distinct_rows(n, queries, pairs, rng)  # [n, q] indices of pairs

        divider = 2 * pairs + 1
        tokens = torch.full((n, self.max_length), EOS, dtype=torch.int64)
        tokens[:, 0] = BOS
        tokens[:, 1:divider:2] = keys
        tokens[:, 2:divider:2] = values
        questions, answers = (keys, values) if self.query == "key" else (values, keys)
        tokens[:, divider + 1 : -1 : 2] = questions.gather(1, asked)
        tokens[:, divider + 2 : -1 : 2] = answers.gather(1, asked)

        targets = torch.full_like(tokens, UNSCORED)
        targets[:, divider + 1 : -1 : 2] = answers.gather(1, asked)
        first, second = 1 + 2 * asked[:, 0], 2 + 2 * asked[:, 0]
        roles = {
            "key": first if self.query == "key" else second,
            "value": second if self.query == "key" else first,
            "next_key": second + 1,
            "divider": torch.full((n,), divider),
            "query": torch.full((n,), divider + 1),
        }
        return Batch(tokens, targets, roles, {"pair": asked[:, 0]})

    def corrupt(
        self,
        batch: Batch,
        slot: str,
        rng: torch.Generator,
        symbols: Symbols = "query-class",
        avoid_present: bool = False,
    ) -> Batch:
        if slot not in self.slots:
            raise UnknownName("slot", slot, self.slots)
        at = batch.role(slot)[:, None]
        original = batch.tokens.gather(1, at)[:, 0]
        asks_for_keys = self.query == "key"
        is_key_class = asks_for_keys if symbols == "query-class" else asks_for_keys == (slot == "key")
        first = FIRST_SYMBOL if is_key_class else FIRST_SYMBOL + self.num_keys
        count = self.num_keys if is_key_class else self.num_values
        drawn = other_symbol(original, first, count, rng)
        if avoid_present:
            drawn = redraw_present(batch.tokens, drawn, first, count, rng)
        return Batch(batch.tokens.scatter(1, at, drawn[:, None]), batch.targets, batch.roles, batch.labels)

    def solve(self, batch: Batch) -> Tensor:
        positions, targets = batch.scored()
        divider = (batch.tokens == EOS).int().argmax(1)  # the first EOS
        query = batch.tokens.gather(1, positions)  # [n, q]
        where = torch.arange(batch.tokens.shape[1])
        inside = (where > 0) & (where < divider[:, None])  # [n, t]
        hit = (batch.tokens[:, None, :] == query[:, :, None]) & inside[:, None, :]  # [n, q, t]
        found = hit.int().argmax(2)
        # A key's partner stands after it, a value's before it; which it is can be read off the position.
        partner = torch.where(found % 2 == 1, found + 1, found - 1).clamp(min=0)
        answer = batch.tokens.gather(1, partner)
        return answer.where(hit.any(2) & (targets != UNSCORED), torch.full_like(answer, UNSCORED))

    def symbol(self, token: int) -> str:
        if token < FIRST_SYMBOL:
            return ("PAD", "BOS", "EOS")[token]
        index = token - FIRST_SYMBOL
        if index < self.num_keys:
            return f"k{index}"
        return f"v{index - self.num_keys}" if index < self.num_keys + self.num_values else "unused"

    def single_query(self) -> "AR":
        return self.changed(num_queries=1)
