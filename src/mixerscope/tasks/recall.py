"""What recall tasks share: a context of key-value pairs with its difficulty knobs, solver and counterfactuals."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from torch import Tensor

from mixerscope.tasks.base import (
    BOS,
    EOS,
    FIRST_SYMBOL,
    PAD,
    SPECIAL_NAMES,
    UNSCORED,
    Batch,
    Change,
    Split,
    Symbols,
    Task,
    collect,
    distinct_rows,
    split_generator,
)
from mixerscope.tasks.mechanisms import PAIR, RETRIEVAL
from mixerscope.tasks.recall_changes import Allowed, PairsOf, another_query, another_value, swapped_keys
from mixerscope.tasks.split import held_out_pairs

CHUNK = 16384
"""Documents drawn at once where some are rejected; bounds the memory of a large sample."""


@dataclass(frozen=True)
class Context:
    """`BOS key .. value key .. value EOS`, the last column of each document being its divider."""

    tokens: Tensor
    """[n, c], padded on the right."""
    keys: Tensor
    values: Tensor
    """[n, p] tokens of the pairs."""
    key_at: Tensor
    value_at: Tensor
    """[n, p] their positions."""
    askable: Tensor | None
    """[n, p] whether the pair exists and no later one has its key; None where that is so for all."""
    repeated: Tensor
    """[n, p] whether an earlier pair has the same key."""
    divider: Tensor
    """[n] positions."""


class Recall(Task):
    """A document of key-value pairs, some of which are asked. Subclasses say where the queries stand."""

    mechanisms = RETRIEVAL
    together = PAIR

    num_pairs: PositiveInt = 16
    """Key-value pairs in a document."""
    min_pairs: PositiveInt | None = None
    """Fewest pairs: each document has a uniform number between this and `num_pairs`; left out, all have `num_pairs`."""
    num_keys: PositiveInt = 4096
    """Symbols that can be keys."""
    num_values: PositiveInt = 4096
    """Symbols that can be values."""
    num_queries: PositiveInt = 1
    """Queries after the divider; more than one makes supervision denser."""
    query: Literal["key", "value"] = "key"
    """What is shown after the divider; the answer is its partner."""
    repeated_keys: NonNegativeInt = 0
    """Pairs that give an earlier key a new value; the last one wins and only it is asked."""
    distractors: NonNegativeInt = 0
    """Fillers between a key and its value."""
    min_distractors: NonNegativeInt | None = None
    """Fewest of them: a uniform number for each pair; left out, every pair has `distractors`."""
    noise: NonNegativeInt = 0
    """Fillers in a document at random places between pairs."""
    num_fillers: NonNegativeInt = 0
    """Symbols that can be fillers; none of them is a key or a value, so a filler never contradicts a pair."""
    held_out: float = Field(default=0.0, ge=0, lt=1)
    """Chance of each (key, value) pair of symbols to be asked in the test split only."""
    split_seed: NonNegativeInt = 0
    """Which pairs those are."""

    @model_validator(mode="after")
    def _is_possible(self) -> Any:
        fewest = self.num_pairs if self.min_pairs is None else self.min_pairs
        if self.min_pairs is not None and self.min_pairs >= self.num_pairs:
            raise ValueError(f"min_pairs = {self.min_pairs} must be below num_pairs = {self.num_pairs}, or left out")
        if self.min_distractors is not None and self.min_distractors >= self.distractors:
            raise ValueError(
                f"min_distractors = {self.min_distractors} must be below distractors = {self.distractors}, or left out"
            )
        if self.repeated_keys >= fewest:
            raise ValueError(f"repeated_keys = {self.repeated_keys} must be below the number of pairs, {fewest}")
        for what, have, need in (
            ("num_keys", self.num_keys, self.num_pairs - self.repeated_keys),
            ("num_values", self.num_values, self.num_pairs),
        ):
            if need > have:
                raise ValueError(f"num_pairs = {self.num_pairs} needs {need} distinct symbols, but {what} = {have}")
        for what, have in (("num_keys", self.num_keys), ("num_values", self.num_values)):
            if have < 2:
                raise ValueError(f"{what} = {have} leaves no other symbol to corrupt with; at least 2 are needed")
        if self.num_queries > fewest - self.repeated_keys:
            raise ValueError(
                f"num_queries = {self.num_queries} exceeds the {fewest - self.repeated_keys} pairs that can be asked"
                f" (num_pairs = {self.num_pairs})"
            )
        fills = bool(self.distractors or self.noise)
        if fills and not self.num_fillers:
            raise ValueError("distractors and noise need num_fillers, the number of symbols they are drawn from")
        if self.num_fillers and not (fills or self._fills_gaps):
            raise ValueError(f"num_fillers = {self.num_fillers} has no use without distractors or noise")
        if self.split_seed and not self.held_out:
            raise ValueError(f"split_seed = {self.split_seed} has no use without held_out")
        if self.held_out and not self._both_sides():
            raise ValueError(
                f"held_out = {self.held_out} leaves one side of the split empty with {self.num_keys} keys"
                f" and {self.num_values} values"
            )
        return self

    def _both_sides(self) -> bool:
        """Whether some pair of symbols is held out and some is not; tried on at most 90,000 pairs."""
        keys, values = torch.arange(min(self.num_keys, 300)), torch.arange(min(self.num_values, 300))
        held = self._held_out(FIRST_SYMBOL + keys[:, None], FIRST_SYMBOL + self.num_keys + values[None, :])
        return bool(held.any()) and not bool(held.all())

    @property
    def _fills_gaps(self) -> bool:
        """Whether the subclass itself has a use for fillers."""
        return False

    @property
    def vocab_size(self) -> int:
        # The last id is never used: the published models carry one such row, and parameter counts should agree.
        return FIRST_SYMBOL + self.num_keys + self.num_values + self.num_fillers + 1

    @property
    def context_length(self) -> int:
        """Tokens of the longest context, BOS and divider included."""
        return self.num_pairs * (2 + self.distractors) + self.noise + 2

    @property
    def slots(self) -> tuple[str, ...]:
        return ("key", "value", "query")

    def sample(self, n: int, rng: torch.Generator, split: Split = "train") -> Batch:
        rng = split_generator(rng, split)
        if not self.held_out:
            return self._ask(context := self._context(n, rng), self._choose(context, rng), rng)
        held = f"held_out = {self.held_out} and num_queries = {self.num_queries}"

        def draw(size: int) -> tuple[Batch, int]:
            context = self._context(size, rng)
            allowed = self._held_out(context.keys, context.values) == (split == "test")
            allowed = allowed if context.askable is None else allowed & context.askable
            asked = _some_of(allowed, self.num_queries, rng)
            enough = allowed.sum(1) >= self.num_queries
            return self._ask(context, asked, rng)[enough], int(enough.sum())

        return collect(n, draw, CHUNK, lambda: f"{held} leave too few pairs to ask in the {split} split")

    @abstractmethod
    def _ask(self, context: Context, asked: Tensor, rng: torch.Generator) -> Batch:
        """The documents: contexts followed by the queries `asked` [n, q], which are indices of pairs."""

    def _choose(self, context: Context, rng: torch.Generator) -> Tensor:
        if context.askable is None:
            return distinct_rows(len(context.tokens), self.num_queries, self.num_pairs, rng)
        return _some_of(context.askable, self.num_queries, rng)

    def _held_out(self, keys: Tensor, values: Tensor) -> Tensor:
        keys, values = torch.broadcast_tensors(keys, values)
        return torch.from_numpy(held_out_pairs(keys.numpy(), values.numpy(), self.held_out, self.split_seed))

    def _context(self, n: int, rng: torch.Generator) -> Context:
        pairs, fresh = self.num_pairs, self.num_pairs - self.repeated_keys
        keys = FIRST_SYMBOL + distinct_rows(n, fresh, self.num_keys, rng)
        values = FIRST_SYMBOL + self.num_keys + distinct_rows(n, pairs, self.num_values, rng)
        column = torch.arange(pairs)
        count = torch.full((n,), pairs)
        if self.min_pairs is not None:
            count = torch.randint(self.min_pairs, pairs + 1, (n,), generator=rng)
        exists = column < count[:, None]
        repeated = torch.zeros(n, pairs, dtype=torch.bool)
        if self.repeated_keys:
            # Any pair but the first may repeat; the key it repeats stands in a uniform earlier pair.
            repeats = 1 + _some_of(exists[:, 1:], self.repeated_keys, rng)
            repeated.scatter_(1, repeats, True)
            keys = keys.gather(1, ((~repeated).cumsum(1) - 1).clamp(max=fresh - 1))
            earlier = (torch.rand(n, pairs, generator=rng) * column).long()
            for j in range(1, pairs):
                old = keys.gather(1, earlier[:, j : j + 1])[:, 0]
                keys[:, j] = torch.where(repeated[:, j], old, keys[:, j])
        askable = None
        if self.min_pairs is not None or self.repeated_keys:
            askable = exists.clone()
            for j in range(1, pairs):
                askable[:, :j] &= ~((keys[:, :j] == keys[:, j : j + 1]) & exists[:, j : j + 1])
        tokens, key_at, value_at, divider = self._layout(keys, values, exists, count, rng)
        return Context(tokens, keys, values, key_at, value_at, askable, repeated, divider)

    def _layout(
        self, keys: Tensor, values: Tensor, exists: Tensor, count: Tensor, rng: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        n, pairs = keys.shape
        between = torch.full((n, pairs), self.distractors)
        if self.min_distractors is not None:
            between = torch.randint(self.min_distractors, self.distractors + 1, (n, pairs), generator=rng)
        size = (2 + between) * exists
        key_at = 1 + size.cumsum(1) - size
        divider = 1 + size.sum(1)
        if self.noise:
            # Each noise token stands in front of a uniform pair or, as one choice more, behind the last.
            place = (torch.rand(n, self.noise, generator=rng) * (count[:, None] + 1)).long()
            in_front = torch.zeros(n, pairs + 1, dtype=torch.int64).scatter_add_(1, place, torch.ones_like(place))
            key_at = key_at + in_front.cumsum(1)[:, :pairs]
            divider = divider + self.noise
        value_at = key_at + 1 + between
        tokens = torch.full((n, self.context_length), PAD)
        if self.distractors or self.noise:
            fillers = self._fillers((n, self.context_length), rng)
            tokens = fillers.where(torch.arange(self.context_length) < divider[:, None], tokens)
        tokens[:, 0] = BOS
        # Pairs a document does not have are written where the divider goes and overwritten by it.
        last = divider[:, None]
        tokens.scatter_(1, key_at.where(exists, last), keys).scatter_(1, value_at.where(exists, last), values)
        tokens.scatter_(1, last, EOS)
        return tokens, key_at, value_at, divider

    def _fillers(self, shape: tuple[int, int], rng: torch.Generator) -> Tensor:
        return FIRST_SYMBOL + self.num_keys + self.num_values + torch.randint(self.num_fillers, shape, generator=rng)

    def _described(self, tokens: Tensor, targets: Tensor, context: Context, asked: Tensor, query: Tensor) -> Batch:
        """The batch with roles and labels of the first query, which stands at `query` [n]."""
        first = asked[:, :1]
        key, value = context.key_at.gather(1, first)[:, 0], context.value_at.gather(1, first)[:, 0]
        by_key = self.query == "key"
        roles = {
            "key": key if by_key else value,
            "value": value if by_key else key,
            "next_key": value + 1,
            "divider": context.divider,
            "query": query,
        }
        labels = {
            "pair": first[:, 0],
            "distance": value - key,
            "repeated": context.repeated.gather(1, first)[:, 0].long(),
        }
        return Batch(tokens, targets, roles, labels)

    def symbol_class(self, slot: str, symbols: Symbols) -> tuple[int, int]:
        asks_for_keys = self.query == "key"
        is_key_class = asks_for_keys if symbols == "query-class" else asks_for_keys == (slot != "value")
        return (FIRST_SYMBOL, self.num_keys) if is_key_class else (FIRST_SYMBOL + self.num_keys, self.num_values)

    @property
    def counterfactuals(self) -> tuple[str, ...]:
        keys, values = self.num_pairs - self.repeated_keys, self.num_pairs
        has_room = self.num_values > values if self.query == "key" else self.num_keys > keys
        return (("query", "swap-keys") if keys > 1 else ()) + (("value",) if has_room else ())

    def alter(self, kind: str, batch: Batch, rng: torch.Generator) -> Change:
        by_key, allowed = self.query == "key", self._askable_beside(batch)
        if kind == "value":
            question = batch.tokens.gather(1, batch.role("query")[:, None])[:, 0]
            change = another_value(batch, *self.symbol_class("value", "slot-class"), question, allowed, rng)
        else:
            place = torch.arange(batch.tokens.shape[1]) < batch.role("divider")[:, None]
            symbols, value_from = batch.tokens - FIRST_SYMBOL, self.num_keys
            is_key = place & (symbols >= 0) & (symbols < value_from)
            is_value = place & (symbols >= value_from) & (symbols < value_from + self.num_values)
            pairs = PairsOf.of(batch, is_key, is_value, self.num_pairs)
            make = another_query if kind == "query" else swapped_keys
            change = make(batch, pairs, by_key, allowed, rng)
        return replace(change, tokens=self._with_answer(change.tokens, batch.role("query"), change.answers))

    def _askable_beside(self, batch: Batch) -> Allowed:
        """Which questions and answers may stand in these documents: those on their side of the split."""

        def held(questions: Tensor, answers: Tensor) -> Tensor:
            return self._held_out(*((questions, answers) if self.query == "key" else (answers, questions)))

        if not self.held_out:
            return lambda questions, answers: torch.ones_like(questions, dtype=torch.bool)
        asked = batch.tokens.gather(1, batch.role("query")[:, None])
        side = held(asked, batch.answers()[1][:, None])
        return lambda questions, answers: held(questions, answers) == side

    def _with_answer(self, tokens: Tensor, query: Tensor, answers: Tensor) -> Tensor:
        """The documents with the answer shown, where the task shows it."""
        return tokens

    def solve(self, batch: Batch) -> Tensor:
        tokens = batch.tokens
        positions, targets = batch.scored()
        divider = (tokens == EOS).int().argmax(1, keepdim=True)  # the first EOS
        where = torch.arange(tokens.shape[1]).expand_as(tokens)
        inside = (where > 0) & (where < divider)
        value_from = FIRST_SYMBOL + self.num_keys
        is_key = inside & (tokens >= FIRST_SYMBOL) & (tokens < value_from)
        is_value = inside & (tokens >= value_from) & (tokens < value_from + self.num_values)
        nowhere = tokens.shape[1]
        # The next value at or after each position, and the last key at or before it; fillers in between do not count.
        after = where.where(is_value, torch.full_like(where, nowhere)).flip(1).cummin(1).values.flip(1)
        before = where.where(is_key, torch.full_like(where, -1)).cummax(1).values
        answers = torch.full_like(targets, UNSCORED)
        for q in range(positions.shape[1]):
            query = tokens.gather(1, positions[:, q : q + 1])
            hit = where.where((tokens == query) & inside, torch.full_like(where, -1)).max(1, keepdim=True).values
            partner = torch.where(
                query < value_from, after.gather(1, hit.clamp(min=0)), before.gather(1, hit.clamp(min=0))
            )
            found = (hit >= 0) & (partner >= 0) & (partner < nowhere) & (targets[:, q : q + 1] != UNSCORED)
            answer = tokens.gather(1, partner.clamp(0, nowhere - 1))
            answers[:, q] = answer.where(found, torch.full_like(answer, UNSCORED))[:, 0]
        return answers

    def symbol(self, token: int) -> str:
        if token < FIRST_SYMBOL:
            return SPECIAL_NAMES[token]
        index = token - FIRST_SYMBOL
        for prefix, count in (("k", self.num_keys), ("v", self.num_values), ("f", self.num_fillers)):
            if index < count:
                return f"{prefix}{index}"
            index -= count
        return "unused"

    def variants(self) -> Mapping[str, Task]:
        # A symbol of each class stays absent, for a corrupted token to become.
        more = min(2 * self.num_pairs, self.num_keys + self.repeated_keys - 1, self.num_values - 1)
        return {f"{more} pairs": self.changed(num_pairs=more)} if more > self.num_pairs else {}

    def single_query(self) -> "Recall":
        return self.changed(num_queries=1)


def _some_of(mask: Tensor, count: int, rng: torch.Generator) -> Tensor:
    """[n, count] columns where the mask holds, distinct and in random order; others follow where too few hold."""
    return (torch.rand(mask.shape, generator=rng) + mask).topk(count, dim=1).indices
