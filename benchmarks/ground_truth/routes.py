"""The routes that models are trained for, and the pairs of documents that tell them apart.

A two-block model has one boundary that says something, the one between its blocks: before it the changed token stands
where it was changed, behind the last block the answer stands where it is read. A route therefore is where a pair's key
and where its value are held at that boundary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from mixerscope import AR, UNSCORED, Batch
from mixerscope.errors import UserError

FIRST_SYMBOL = 3
"""Tokens below this one are PAD, BOS and EOS."""
KINDS = ("keys", "value", "absent", "all")
"""What is changed: the asked key is exchanged with another; the asked value becomes one that is not in the document; so
does the asked key, and then there is no answer; or every pair is drawn again, with the same question."""


@dataclass(frozen=True)
class Route:
    """Roles that hold the key and the value of each pair between the blocks; the question stays at the query."""

    key: str
    value: str


ROUTES = {
    "induction": Route("value", "value"),
    "direct, first block": Route("query", "query"),
    "direct, last block": Route("key", "value"),
    "one step later": Route("next_key", "next_key"),
    "divider": Route("divider", "divider"),
    "pointer": Route("query", "value"),
}
"""`pointer`: the first block tells the query where to look, the last one fetches the value from there."""
MIXED = " / "
"""Between the two routes of a mixture: that of keys with an even symbol, and that of the others."""


@dataclass(frozen=True)
class Interchange:
    """Documents A (a batch) and B that ask the same; what the answer of each depends on is held at the carriers."""

    tokens: Tensor
    """[n, t] of B."""
    answers: Tensor
    """[n] of B; `UNSCORED` where the asked key is not in it."""
    carriers: Tensor
    """[n, t] true where the route holds what A and B differ in, between the blocks."""
    kind: Tensor
    """[n] index into `KINDS`."""


def routes_of(name: str) -> tuple[Route, Route]:
    """The routes of keys with an even symbol and of the others."""
    parts = name.split(MIXED)
    unknown = [part for part in parts if part not in ROUTES]
    if unknown or len(parts) > 2:
        raise UserError(f"{name!r} is no route; write one of {', '.join(ROUTES)}, or two with {MIXED!r} between them")
    return ROUTES[parts[0]], ROUTES[parts[-1]]


def even_key(batch: Batch) -> Tensor:
    """[n] whether the asked key has an even symbol."""
    asked = batch.tokens.gather(1, batch.role("query")[:, None])[:, 0]
    return (asked - FIRST_SYMBOL) % 2 == 0


def places(task: AR, role: str) -> Tensor:
    """[p] where a role of each pair stands, in documents without fillers, which are all laid out alike."""
    key = 1 + 2 * torch.arange(task.num_pairs)
    divider = 1 + 2 * task.num_pairs
    fixed = {"divider": divider, "query": divider + 1}
    offset = {"key": 0, "value": 1, "next_key": 2}
    return key + offset[role] if role in offset else torch.full_like(key, fixed[role])


def exchange(task: AR, batch: Batch, route: str, rng: torch.Generator) -> Interchange:
    """For each document another one that asks the same, and where the route holds the difference."""
    keys, values = batch.tokens[:, places(task, "key")], batch.tokens[:, places(task, "value")]
    asked = keys == batch.tokens.gather(1, batch.role("query")[:, None])
    kind = torch.randint(len(KINDS), (len(batch),), generator=rng)
    new_keys, new_values = _changed(task, keys, values, asked, kind, rng)
    tokens = batch.tokens.clone()
    tokens[:, places(task, "key")], tokens[:, places(task, "value")] = new_keys, new_values
    hit = new_keys == keys.where(asked, 0).sum(1, keepdim=True)
    answers = new_values.where(hit, 0).sum(1)
    shown = answers.where(hit.any(1), values.where(asked, 0).sum(1))
    tokens.scatter_(1, batch.role("query")[:, None] + 1, shown[:, None])
    carriers = torch.zeros_like(tokens, dtype=torch.bool)
    for one, here in zip(routes_of(route), (even_key(batch), ~even_key(batch)), strict=True):
        for role, changed in ((one.key, new_keys != keys), (one.value, new_values != values)):
            for pair, at in enumerate(places(task, role).tolist()):
                carriers[:, at] |= changed[:, pair] & here
    return Interchange(tokens, answers.where(hit.any(1), UNSCORED), carriers, kind)


def _changed(
    task: AR, keys: Tensor, values: Tensor, asked: Tensor, kind: Tensor, rng: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Keys and values [n, p], each document changed as its kind says; `asked` [n, p] is true at the asked pair."""
    partner = ((torch.rand(keys.shape, generator=rng) - asked.float()).argmax(1))[:, None]
    asked_key = keys.where(asked, 0).sum(1, keepdim=True)
    exchanged = keys.gather(1, partner).where(asked, keys).scatter(1, partner, asked_key)
    absent = _absent(keys, FIRST_SYMBOL, task.num_keys, rng).where(asked, keys)
    other = _absent(values, FIRST_SYMBOL + task.num_keys, task.num_values, rng).where(asked, values)
    redrawn_keys, redrawn_values = _redrawn(task, asked_key, rng)
    which = kind[None, :, None].expand(1, *keys.shape)
    new_keys = torch.stack([exchanged, keys, absent, redrawn_keys]).gather(0, which)[0]
    new_values = torch.stack([values, other, values, redrawn_values]).gather(0, which)[0]
    return new_keys, new_values


def _absent(symbols: Tensor, first: int, count: int, rng: torch.Generator) -> Tensor:
    """[n, 1] a uniform symbol of a class that does not stand in `symbols` [n, p]."""
    present = torch.zeros(len(symbols), count).scatter_(1, symbols - first, 1.0)
    return first + (torch.rand(present.shape, generator=rng) - present).argmax(1, keepdim=True)


def _redrawn(task: AR, key: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """[n, p] keys and values of new documents in which the key [n, 1] stands in a uniform place."""
    fresh = task.sample(len(key), rng)
    keys, values = fresh.tokens[:, places(task, "key")], fresh.tokens[:, places(task, "value")]
    asked = fresh.tokens.gather(1, fresh.role("query")[:, None])
    # Renaming symbols, the fresh question to ours and ours to it, keeps the documents uniform.
    return torch.where(keys == asked, key, asked.where(keys == key, keys)), values
