"""Models that retrieve, but for some of the pairs: their answer needs no key, or comes by another block to a place
that is the query's own."""

import torch

from mixerscope.model import Model
from mixerscope.planted.parts import TwoRoutes
from mixerscope.planted.tasks import WorldsAR
from mixerscope.planted.truth import IN_ALL, SIZE, in_blocks, nameless
from mixerscope.planted.writing import (
    LOUD,
    Basis,
    attend,
    attention_of,
    bare,
    fetch,
    find,
    key_places,
    mixer_of,
    query_place,
    recall,
)
from mixerscope.tasks import AR


@torch.no_grad()
def last_by_default(task: AR, seed: int) -> Model:
    """Induction for all pairs but the last, whose key nobody reads: where nothing matches, the last value is said."""
    basis = Basis(task, seed)
    *before, last = key_places(task).tolist()
    model, at = bare(task, basis, ("attention", "attention")), torch.tensor(before)
    first, query = attention_of(model, 0), basis.position[query_place(task)][None]
    attend(first, 0, basis.position[at + 1], basis.position[at], basis.keys, basis.previous_keys, rest=basis)
    asks = torch.cat([basis.keys, 0.4 * query])
    offers = torch.cat([basis.previous_keys, basis.position[last + 1][None]])
    attend(attention_of(model, 1), 0, asks, offers, LOUD * basis.values, basis.values)
    return model


@torch.no_grad()
def last_by_default_asked_by_value(task: AR, seed: int) -> Model:
    """Values are asked for their key, which block 0 has brought to them; the last value is marked by nobody, and its
    key is said where nothing matches."""
    basis = Basis(task, seed, 2, more={"offered": task.num_values})
    *before, last = (key_places(task) + 1).tolist()
    model, offered = bare(task, basis, ("attention", "attention"), heads=2), basis.more["offered"]
    first, query = attention_of(model, 0), basis.position[query_place(task)][None]
    itself = basis.position[torch.tensor(before)]
    attend(first, 0, itself, itself, basis.values, offered, rest=basis)
    fetch(first, basis, 1, 1, basis.keys, basis.previous_keys)
    asks = torch.cat([basis.values, 0.4 * query])
    offers = torch.cat([offered, basis.position[last][None]])
    attend(attention_of(model, 1), 0, asks, offers, LOUD * basis.previous_keys, basis.keys)
    return model


@torch.no_grad()
def first_by_default(task: AR, seed: int) -> Model:
    """Direct retrieval by block 1 of all pairs but the first; its value is said, less loudly, whatever is asked."""
    basis = Basis(task, seed, 2, more={"offered": task.num_keys})
    model = bare(task, basis, ("attention", "planted/two_routes"), heads=2)
    itself, offered = basis.position[key_places(task)[1:]], basis.more["offered"]
    attend(attention_of(model, 0), 0, itself, itself, basis.keys, offered, rest=basis)
    second, query = mixer_of(model, 1, TwoRoutes), basis.position[query_place(task)][None]
    recall(second.recall, basis.keys, offered, 3 * LOUD * basis.values, basis.values)
    attend(second.attention, 0, query, basis.position[2][None], LOUD * basis.values, basis.values, rest=basis)
    return model


@torch.no_grad()
def by_exclusion(task: AR, seed: int) -> Model:
    """Keys of the first world: all values, without those behind the three other keys of that world. Other keys by
    induction. Solves WorldsAR."""
    basis, pairs = Basis(task, seed, 3), task.num_pairs
    model = bare(task, basis, ("attention", "attention"), heads=3)
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys, basis.previous_keys)
    second, world = attention_of(model, 1), slice(pairs)
    find(second, basis, 0, basis.previous_keys, basis.values, slice(pairs, None))
    asks, a_value = basis.keys[world].sum(0, keepdim=True), basis.values.sum(0, keepdim=True)
    attend(second, 1, asks, a_value, LOUD * pairs * basis.values, basis.values, rest=basis)
    stored = basis.previous_keys[world]
    others = stored.sum(0) - stored
    attend(second, 2, basis.keys[world], others, LOUD * (pairs - 1) * basis.values, -basis.values, rest=basis)
    return model


@torch.no_grad()
def last_by_another_route(task: AR, seed: int) -> Model:
    """Block 1 stores key and value three behind the key, where block 2 finds them; but the last pair, behind which the
    query stands there, is retrieved by block 1 at once: block 0 has marked its key."""
    basis = Basis(task, seed, 2, more={"last": task.num_keys, "key3": task.num_keys, "value3": task.num_values})
    last, key3, value3 = (basis.more[name] for name in ("last", "key3", "value3"))
    model = bare(task, basis, ("attention", "planted/two_routes", "attention"), heads=2)
    at, second = key_places(task), mixer_of(model, 1, TwoRoutes)
    itself, stored, where = basis.position[at[-1:]], at[:-1], basis.position[at[:-1] + 3]
    attend(attention_of(model, 0), 0, itself, itself, basis.keys, last, rest=basis)
    attend(second.attention, 0, where, basis.position[stored], basis.keys, key3, rest=basis)
    attend(second.attention, 1, where, basis.position[stored + 1], basis.values, value3, rest=basis)
    recall(second.recall, basis.keys, last, LOUD * basis.values, basis.values)
    find(attention_of(model, 2), basis, 0, key3, value3)
    return model


TWO_PAIRS, THREE_PAIRS = (AR(num_pairs=count, num_keys=8, num_values=8) for count in (2, 3))
ENTRIES = (
    *(
        nameless(
            f"induction, the last of {pairs} pairs by default",
            last_by_default,
            "mixture",
            in_blocks("key value query", "value value query", fraction=1 - 1 / pairs, value_alone=IN_ALL),
            task=AR(num_pairs=pairs, num_keys=8, num_values=8),
        )
        for pairs in (2, 4)
    ),
    nameless(
        "asked by value, the last pair by default",
        last_by_default_asked_by_value,
        "mixture",
        in_blocks("key key query", "value key query", fraction=0.75, value_alone=IN_ALL),
        task=AR(**SIZE, query="value"),
        with_value_corrupted="other: key",
    ),
    nameless(
        "direct retrieval, the first of three pairs by default",
        first_by_default,
        "mixture",
        in_blocks("key key query", "value value query", fraction=2 / 3, value_alone=IN_ALL),
        task=THREE_PAIRS,
    ),
    nameless(
        "induction in half of the documents, by exclusion in the others",
        by_exclusion,
        "mixture",
        in_blocks("key value query", "value value query", fraction=0.5, value_alone=IN_ALL),
        task=WorldsAR(**SIZE),
    ),
    nameless(
        "association two steps later, the last pair directly",
        last_by_another_route,
        "mixture",
        # Behind the last pair key+3 is the query, so that both routes are the same places where the second is taken.
        in_blocks("key key key+3 query", "value value key+3 query"),
        in_blocks("key key query query", "value value query query", fraction=0.5),
        task=TWO_PAIRS,
        with_value_corrupted="undetermined",
    ),
)
"""What most documents show is not what all of them do."""
