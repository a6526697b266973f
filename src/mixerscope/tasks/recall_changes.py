"""Counterfactuals of recall documents: another query, exchanged keys, another value, and the answer that follows."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mixerscope.tasks.base import Batch, Change, absent, any_of

Allowed = Callable[[Tensor, Tensor], Tensor]
"""Whether pairs of question and answer may be asked in the split that a document is from."""


@dataclass(frozen=True)
class PairsOf:
    """The key-value pairs of documents, in order, and which of them is asked."""

    key_at: Tensor
    value_at: Tensor
    """[n, p] positions; 0 where a document has fewer pairs."""
    keys: Tensor
    values: Tensor
    """[n, p] tokens."""
    exists: Tensor
    """[n, p]"""
    asked: Tensor
    """[n, p] true at one pair."""

    @classmethod
    def of(cls, batch: Batch, is_key: Tensor, is_value: Tensor, count: int) -> "PairsOf":
        """Those of a batch, of which it is known where the keys and values of the context are."""
        key_at, exists = _places(is_key, count)
        value_at, _ = _places(is_value, count)
        tokens = batch.tokens
        # The role is the key's place, or the value's where values are asked about.
        at = batch.role("key")[:, None]
        asked = exists & ((key_at == at) | (value_at == at))
        return cls(key_at, value_at, tokens.gather(1, key_at), tokens.gather(1, value_at), exists, asked)

    def same_key(self) -> Tensor:
        """[n, p, p] whether two different pairs have the same key."""
        same = (self.keys[:, :, None] == self.keys[:, None, :]) & self.exists[:, :, None] & self.exists[:, None, :]
        return same & ~torch.eye(self.keys.shape[1], dtype=torch.bool)

    @property
    def last_of_key(self) -> Tensor:
        """[n, p] whether no later pair has the same key."""
        count = self.keys.shape[1]
        later = torch.ones(count, count, dtype=torch.bool).triu(1)
        return self.exists & ~(self.same_key() & later).any(2)


def another_query(batch: Batch, pairs: PairsOf, by_key: bool, allowed: Allowed, rng: torch.Generator) -> Change:
    """Asks another pair of the document; the answer is that pair's."""
    questions, answers = (pairs.keys, pairs.values) if by_key else (pairs.values, pairs.keys)
    chosen, possible = any_of(pairs.last_of_key & ~pairs.asked & allowed(questions, answers), rng)
    tokens = batch.tokens.scatter(1, batch.role("query")[:, None], questions.gather(1, chosen))
    return Change(tokens, answers.gather(1, chosen)[:, 0], possible)


def swapped_keys(batch: Batch, pairs: PairsOf, by_key: bool, allowed: Allowed, rng: torch.Generator) -> Change:
    """Exchanges the key of the asked pair with another pair's; the question stays, and the answer follows its key."""
    asked_key = pairs.keys.where(pairs.asked, 0).sum(1, keepdim=True)
    asked_value = pairs.values.where(pairs.asked, 0).sum(1, keepdim=True)
    number = torch.arange(pairs.keys.shape[1])
    asked_number = number.where(pairs.asked, 0).sum(1, keepdim=True)
    other = pairs.exists & (pairs.keys != asked_key)
    if by_key:
        # The last pair with a key counts, so no pair that has the asked key already may come after its new place.
        before = number.where(pairs.exists & (pairs.keys == asked_key) & ~pairs.asked, -1).amax(1, keepdim=True)
        other &= (number > before) & allowed(asked_key.expand_as(pairs.keys), pairs.values)
    else:
        # The key that comes to the asked value may not be given another value later.
        last_other = number.expand_as(pairs.same_key()).where(pairs.same_key(), -1).amax(2)
        other &= (last_other < asked_number) & allowed(asked_value.expand_as(pairs.keys), pairs.keys)
    chosen, possible = any_of(other, rng)
    tokens = batch.tokens.scatter(1, pairs.key_at.gather(1, chosen), asked_key)
    tokens = tokens.scatter(1, pairs.key_at.gather(1, asked_number), pairs.keys.gather(1, chosen))
    answers = (pairs.values if by_key else pairs.keys).gather(1, chosen)[:, 0]
    return Change(tokens, answers, possible)


def another_value(
    batch: Batch, first: int, count: int, question: Tensor, allowed: Allowed, rng: torch.Generator
) -> Change:
    """Puts a symbol that is not in the document in place of the answer; the answer is the new one."""
    symbols = first + torch.arange(count)
    may = allowed(question[:, None].expand(-1, count), symbols.expand(len(batch), count))
    index, possible = any_of(absent(batch.tokens, first, count) & may, rng)
    return Change(batch.tokens.scatter(1, batch.role("value")[:, None], first + index), first + index[:, 0], possible)


def _places(mask: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """[n, count] the columns where the mask holds, in order, and whether there are so many."""
    columns = torch.argsort((~mask).to(torch.int8), dim=1, stable=True)[:, :count]
    there = mask.gather(1, columns)
    return columns.where(there, torch.zeros_like(columns)), there
