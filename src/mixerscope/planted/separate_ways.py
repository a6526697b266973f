"""Models in which key, value and what is asked go separate ways: each alone looks like something that has a name."""

from collections.abc import Callable
from typing import Any

import torch

from mixerscope.mixers.attention import Attention
from mixerscope.model import Model
from mixerscope.planted.truth import SIZE, Planted, Route, in_blocks, one_route
from mixerscope.planted.writing import (
    LOUD,
    Basis,
    attend,
    attention_of,
    bare,
    detect,
    fetch,
    key_places,
    query_place,
)
from mixerscope.tasks import AR

SMALLER = AR(num_pairs=3, num_keys=6, num_values=6)
"""For models that have a direction for every pair of symbols."""


@torch.no_grad()
def pointer(task: AR, seed: int) -> Model:
    """Block 0 fetches the address of the key to the query, block 1 reads what stands one behind."""
    basis = Basis(task, seed, more={"address": task.max_length})
    model = bare(task, basis, ("attention", "attention"))
    point(attention_of(model, 0), basis)
    address = basis.more["address"]
    attend(attention_of(model, 1), 0, address[:-1], basis.position[1:], LOUD * basis.values, basis.values, rest=basis)
    return model


def point(attention: Attention, basis: Basis, keys: slice = slice(None)) -> None:
    """Everyone learns where its own token stands before it."""
    # It stands where it asks, too, so half of the attention stays there; what is behind that cannot be seen.
    asks = basis.keys[keys]
    attend(attention, 0, asks, asks, 2 * basis.position, basis.more["address"], rest=basis)


@torch.no_grad()
def pointer_chain(task: AR, seed: int) -> Model:
    """The query learns where the key is, then what is written two behind it: the address of the value, read last."""
    length = task.max_length
    basis = Basis(task, seed, 2, more={"address": length, "note": length, "second": length})
    address, note, second = (basis.more[name] for name in ("address", "note", "second"))
    model = bare(task, basis, ("attention", "attention", "attention"), heads=2)
    point(attention_of(model, 0), basis)
    fetch(attention_of(model, 0), basis, 1, 1, basis.position, note)
    attend(attention_of(model, 1), 0, address[:-2], basis.position[2:], note, second, rest=basis)
    attend(attention_of(model, 2), 0, second, basis.position, LOUD * basis.values, basis.values, rest=basis)
    return model


@torch.no_grad()
def pointer_by_induction(task: AR, seed: int) -> Model:
    """Induction that fetches the address of the value to the query; block 2 reads what stands there."""
    basis = Basis(task, seed, more={"address": task.max_length})
    address = basis.more["address"]
    model = bare(task, basis, ("attention", "attention", "attention"))
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys, basis.previous_keys)
    attend(attention_of(model, 1), 0, basis.keys, basis.previous_keys, basis.position, address, rest=basis)
    # At rest the head of block 1 looks at BOS, whose address says nothing.
    places = slice(1, None)
    reads = LOUD * basis.values
    attend(attention_of(model, 2), 0, address[places], basis.position[places], reads, basis.values, rest=basis)
    return model


@torch.no_grad()
def value_first(task: AR, seed: int, at_divider: bool = False) -> Model:
    """Block 0 collects all values, by number, at the query or at the divider; block 1 finds the number of the key."""
    pairs, values = task.num_pairs, task.num_values
    heads = pairs + 1
    basis = Basis(task, seed, heads, more={"slots": pairs * values, "number": pairs})
    slots, number = basis.more["slots"], basis.more["number"]
    model = bare(task, basis, ("attention", "attention"), heads=heads, mlp=True)
    query = query_place(task)
    where, asks = basis.position[query - 1 if at_divider else query][None], basis.position[query][None]
    for pair, (at, slot) in enumerate(zip((key_places(task) + 1).tolist(), slots.chunk(pairs), strict=True)):
        attend(attention_of(model, 0), pair, where, basis.position[at][None], basis.values, slot, rest=basis)
    # The query finds itself, too, which counts for nothing, but takes half of the attention.
    places = 2 * basis.position[key_places(task)]
    attend(attention_of(model, 1), 0, basis.keys, basis.keys, places, number, rest=basis)
    if at_divider:
        attend(attention_of(model, 1), 1, asks, where, slots, slots, rest=basis)
    chosen = number.repeat_interleave(values, 0) + slots
    detect(model, 1, chosen, 1.5, LOUD * basis.values.repeat(pairs, 1))
    return model


@torch.no_grad()
def asked_by_value(task: AR, seed: int) -> Model:
    """Values are asked for their key, which block 0 has brought to them: the association stands where the match is."""
    basis = Basis(task, seed)
    model = bare(task, basis, ("attention", "attention"))
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys, basis.previous_keys)
    reads = 2 * LOUD * basis.previous_keys  # half of the attention stays at the query
    attend(attention_of(model, 1), 0, basis.values, basis.values, reads, basis.keys, rest=basis)
    return model


@torch.no_grad()
def gathered(task: AR, seed: int, said_again: bool = False) -> Model:
    """Block 0 brings all pairs to the query, each in directions of its own, whatever is asked; the MLP of block 1 picks
    the one that is. The MLP of block 0 may say the question again, and only that is then looked at."""
    pairs, keys, values = task.num_pairs, task.num_keys, task.num_values
    more = {"keys": pairs * keys, "values": pairs * values, "asked": keys if said_again else 0}
    basis = Basis(task, seed, 2 * pairs, more=more)
    in_pair = zip(basis.more["keys"].chunk(pairs), basis.more["values"].chunk(pairs), strict=True)
    model = bare(task, basis, ("attention", "planted/each_alone"), heads=2 * pairs, mlp=True)
    first, query = attention_of(model, 0), basis.position[query_place(task)][None]
    of_key, of_value = torch.arange(keys).repeat_interleave(values), torch.arange(values).repeat(keys)
    found: list[torch.Tensor] = []
    for pair, (at, (key, value)) in enumerate(zip(key_places(task).tolist(), in_pair, strict=True)):
        attend(first, pair, query, basis.position[at][None], basis.keys, key, rest=basis)
        attend(first, pairs + pair, query, basis.position[at + 1][None], basis.values, value, rest=basis)
        found.append(key[of_key] + value[of_value])
    question = basis.keys
    if said_again:
        question = basis.more["asked"]
        detect(model, 0, basis.keys + query, 1.5, question)
    chosen = torch.cat(found) + question[of_key].repeat(pairs, 1)
    detect(model, 1, chosen, 2.5, LOUD * basis.values[of_value].repeat(pairs, 1))
    return model


@torch.no_grad()
def numbered(task: AR, seed: int, picks: int = 1) -> Model:
    """Block 0 brings all values to the query, by number, and finds the number of the pair that is asked; the MLP of the
    block `picks` says the value of that number."""
    pairs, values = task.num_pairs, task.num_values
    basis = Basis(task, seed, pairs + 1, more={"slots": pairs * values, "number": pairs})
    slots, number = basis.more["slots"], basis.more["number"]
    model = bare(task, basis, ("attention", "planted/each_alone"), heads=pairs + 1, mlp=True)
    first, query = attention_of(model, 0), basis.position[query_place(task)][None]
    for pair, (at, slot) in enumerate(zip(key_places(task).tolist(), slots.chunk(pairs), strict=True)):
        attend(first, pair, query, basis.position[at + 1][None], basis.values, slot, rest=basis)
    places = 2 * basis.position[key_places(task)]  # half of the attention stays at the query
    attend(first, pairs, basis.keys, basis.keys, places, number, rest=basis)
    chosen = number.repeat_interleave(values, 0) + slots
    detect(model, picks, chosen, 1.5, LOUD * basis.values.repeat(pairs, 1))
    return model


@torch.no_grad()
def bag_picked_later(task: AR, seed: int) -> Model:
    """An MLP makes one symbol of each pair at its value, block 1 sums those of all positions, and the MLP of block 2
    picks the one that is asked."""
    keys, values = task.num_keys, task.num_values
    basis = Basis(task, seed, more={"pair": keys * values})
    pair = basis.more["pair"]
    of_key, of_value = torch.arange(keys).repeat_interleave(values), torch.arange(values).repeat(keys)
    model = bare(task, basis, ("attention", "attention", "planted/each_alone"), mlp=True)
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys, basis.previous_keys)
    detect(model, 0, basis.previous_keys[of_key] + basis.values[of_value], 1.5, pair)
    nothing = torch.zeros(1, basis.width)
    attend(attention_of(model, 1), 0, nothing, nothing, (query_place(task) + 1) * pair, pair)
    detect(model, 2, basis.keys[of_key] + pair, 1.5, LOUD * basis.values[of_value])
    return model


def _neither(
    name: str, build: Callable[[AR, int], Model], route: Route, described: tuple[str, ...] = (), **truth: Any
) -> Planted:
    return one_route(name, build, "contradicted", route, *described, **truth)


ENTRIES = (
    _neither("pointer", pointer, in_blocks("key query query", "value value query", (0, "attention", "key", "query"))),
    _neither(
        "pointer to a pointer",
        pointer_chain,
        in_blocks("key query query query", "value value value query", (0, "attention head 0", "key", "query")),
    ),
    _neither(
        "pointer by induction",
        pointer_by_induction,
        in_blocks(
            "key value query query",
            "value value value query",
            (0, "attention", "key", "value"),
            (1, "attention", "value", "query"),
        ),
    ),
    _neither(
        "value first, to the query",
        value_first,
        in_blocks("key key query", "value query query", (1, "attention head 0", "key", "query")),
    ),
    _neither(
        "value first, to the divider",
        lambda task, seed: value_first(task, seed, at_divider=True),
        in_blocks("key key query", "value divider query", (1, "attention head 0", "key", "query")),
        described=("other: value by value → divider → query",),
        with_value_corrupted="other: divider",
    ),
    _neither(
        "all pairs gathered at the query, picked there later",
        gathered,
        in_blocks("key query query", "value query query", (0, "attention", "key", "query")),
        task=SMALLER,
    ),
    _neither(
        "all values gathered and the number of the pair found, picked later",
        numbered,
        in_blocks("key query query", "value query query", (0, "attention head 3", "key", "query")),
        task=SMALLER,
    ),
    _neither(
        "induction of all pairs at once, picked later",
        bag_picked_later,
        in_blocks(
            "key value query query",
            "value value query query",
            (0, "attention", "key", "value"),
            (1, "attention", "value", "query"),
        ),
        task=SMALLER,
    ),
    _neither(
        "asked by value, association at the match",
        asked_by_value,
        in_blocks("key key query", "value key query", (1, "attention", "key", "query")),
        task=AR(**SIZE, query="value"),
        described=("other: value by value → key → query",),
        with_value_corrupted="other: key",
    ),
)
"""With the key corrupted they look like direct retrieval, or like induction, which none of them is."""
