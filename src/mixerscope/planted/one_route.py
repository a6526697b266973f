"""Models with one route that is made in an unusual way, or beside something that distracts from it."""

import torch

from mixerscope.model import Model
from mixerscope.planted.parts import ChosenRecall, TwoRoutes
from mixerscope.planted.separate_ways import SMALLER, numbered
from mixerscope.planted.truth import by_induction, in_blocks, one_route
from mixerscope.planted.writing import (
    LOUD,
    Basis,
    attend,
    attention_of,
    bare,
    detect,
    fetch,
    find,
    key_places,
    look_back,
    mixer_of,
    query_place,
    recall,
    retrieve,
)
from mixerscope.tasks import AR


@torch.no_grad()
def idle_copy(task: AR, seed: int) -> Model:
    """Block 0 brings each key to its value, where nobody looks at it; block 1 goes straight from key to query."""
    basis = Basis(task, seed)
    model = bare(task, basis, ("attention", "planted/chosen_recall"))
    look_back(attention_of(model, 0), basis)
    recall(mixer_of(model, 1, ChosenRecall), basis.keys, basis.keys, LOUD * basis.values, basis.values)
    return model


@torch.no_grad()
def erased_decoy(task: AR, seed: int) -> Model:
    """Block 0 gives the answer at once, block 1 takes it away again, and block 2 finds it by induction."""
    basis = Basis(task, seed)
    model = bare(task, basis, ("planted/two_routes", "attention", "attention"))
    first = mixer_of(model, 0, TwoRoutes)
    look_back(first.attention, basis)
    recall(first.recall, basis.keys, basis.keys, LOUD * basis.values, basis.values)
    query = basis.position[query_place(task)][None]
    attend(attention_of(model, 1), 0, query, query, basis.values, -basis.values, rest=basis)
    retrieve(attention_of(model, 2), basis)
    return model


@torch.no_grad()
def elimination(task: AR, seed: int) -> Model:
    """Block 1 writes all values of the document and takes away those that stand behind another key than the query."""
    basis = Basis(task, seed, heads=2)
    model = bare(task, basis, ("attention", "attention"), heads=2)
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys, basis.previous_keys)
    second, pairs = attention_of(model, 1), task.num_pairs
    everywhere, a_value = basis.position.sum(0, keepdim=True), basis.values.sum(0, keepdim=True)
    attend(second, 0, everywhere, a_value, LOUD * pairs * basis.values, basis.values)
    others = basis.previous_keys.sum(0) - basis.previous_keys
    attend(second, 1, basis.keys, others, LOUD * (pairs - 1) * basis.values, -basis.values, rest=basis)
    return model


@torch.no_grad()
def bag_of_pairs(task: AR, seed: int) -> Model:
    """An MLP makes one symbol of each pair; block 1 sums those of all positions; an MLP picks the one that is asked."""
    keys, values = task.num_keys, task.num_values
    basis = Basis(task, seed, more={"pair": keys * values})
    pair = basis.more["pair"]
    of_key, of_value = torch.arange(keys).repeat_interleave(values), torch.arange(values).repeat(keys)
    model = bare(task, basis, ("attention", "attention"), mlp=True)
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys, basis.previous_keys)
    detect(model, 0, basis.previous_keys[of_key] + basis.values[of_value], 1.5, pair)
    # Asking for nothing, the query attends to all positions alike, itself included.
    nothing = torch.zeros(1, basis.width)
    attend(attention_of(model, 1), 0, nothing, nothing, (query_place(task) + 1) * pair, pair)
    detect(model, 1, basis.keys[of_key] + pair, 1.5, LOUD * basis.values[of_value])
    return model


@torch.no_grad()
def translated_key(task: AR, seed: int) -> Model:
    """Induction in which an MLP writes the key at the value anew, and only that is looked for."""
    basis = Basis(task, seed, more={"code": task.num_keys})
    model = bare(task, basis, ("attention", "attention"), mlp=True)
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys, basis.previous_keys)
    detect(model, 0, basis.previous_keys, 0.5, basis.more["code"])
    find(attention_of(model, 1), basis, 0, basis.more["code"], basis.values)
    return model


@torch.no_grad()
def a_head_for_some_of_the_keys(task: AR, seed: int, share: float = 0.5) -> Model:
    """Induction whose last step is made by one head for some keys and by another for the rest."""
    basis = Basis(task, seed, heads=2)
    model = bare(task, basis, ("attention", "attention"), heads=2)
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys, basis.previous_keys)
    some = round(share * task.num_keys)
    for head, keys in enumerate((slice(some), slice(some, None))):
        find(attention_of(model, 1), basis, head, basis.previous_keys, basis.values, keys)
    return model


@torch.no_grad()
def relay(task: AR, seed: int) -> Model:
    """Key to value, both to the position after, and from there to the query."""
    basis = Basis(task, seed, more={"again": task.num_keys})
    again = basis.more["again"]
    model = bare(task, basis, ("attention", "attention", "attention"))
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys, basis.previous_keys)
    both, to = torch.cat([basis.previous_keys, basis.values]), torch.cat([again, basis.carried_values])
    fetch(attention_of(model, 1), basis, 0, 1, both, to)
    find(attention_of(model, 2), basis, 0, again, basis.carried_values)
    return model


@torch.no_grad()
def summary_at_divider(task: AR, seed: int) -> Model:
    """The divider collects all pairs, each in directions of its own, and the query finds its own there."""
    pairs = task.num_pairs
    basis = Basis(task, seed, 2 * pairs, more={"keys": pairs * task.num_keys, "values": pairs * task.num_values})
    keys, values = basis.more["keys"].chunk(pairs), basis.more["values"].chunk(pairs)
    model = bare(task, basis, ("attention", "attention"), heads=2 * pairs)
    divider = basis.position[query_place(task) - 1][None]
    for pair, at in enumerate(key_places(task).tolist()):
        first, second = attention_of(model, 0), attention_of(model, 1)
        attend(first, pair, divider, basis.position[at][None], basis.keys, keys[pair], rest=basis)
        attend(first, pairs + pair, divider, basis.position[at + 1][None], basis.values, values[pair], rest=basis)
        find(second, basis, pair, keys[pair], values[pair])
    return model


@torch.no_grad()
def in_cipher(task: AR, seed: int) -> Model:
    """Induction of the sum of key and value, which an MLP has written at the value; block 2 takes the query off it."""
    count = task.num_values
    basis = Basis(task, seed, more={"sum": count, "found": count})
    model = bare(task, basis, ("attention", "attention", "planted/each_alone"), mlp=True)
    of_key, of_value = torch.arange(task.num_keys).repeat_interleave(count), torch.arange(count).repeat(task.num_keys)
    total = (of_key + of_value) % count
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys, basis.previous_keys)
    detect(model, 0, basis.previous_keys[of_key] + basis.values[of_value], 1.5, basis.more["sum"][total])
    offers, found = basis.previous_keys, basis.more["found"]
    attend(attention_of(model, 1), 0, basis.keys, offers, basis.more["sum"], found, rest=basis)
    detect(model, 2, basis.keys[of_key] + found[total], 1.5, LOUD * basis.values[of_value])
    return model


ENTRIES = (
    one_route(
        "direct retrieval, idle copy at the value",
        idle_copy,
        "direct retrieval",
        in_blocks("key key query", "value value query", (1, "ChosenRecall", "key", "query")),
    ),
    one_route(
        "induction, answer given and erased before",
        erased_decoy,
        "induction",
        in_blocks(
            "key value value query",
            "value value value query",
            (0, "TwoRoutes", "key", "value"),
            (2, "attention", "value", "query"),
        ),
    ),
    one_route(
        "direct retrieval, all values gathered and one picked in the same block",
        lambda task, seed: numbered(task, seed, picks=0),
        "direct retrieval",
        in_blocks("key query query", "value query query", (0, "attention head 3", "key", "query")),
        task=SMALLER,
    ),
    one_route(
        "induction in cipher, which the query opens later",
        in_cipher,
        "induction",
        in_blocks(
            "key value query query",
            "value value query query",
            (0, "attention", "key", "value"),
            (1, "attention", "value", "query"),
        ),
    ),
    one_route(
        "induction by elimination",
        elimination,
        "induction",
        by_induction("attention head 0", "attention head 1"),
    ),
    one_route("induction, sum over all positions, MLPs", bag_of_pairs, "induction", by_induction()),
    one_route("induction, MLP between", translated_key, "induction", by_induction()),
    one_route(
        "induction, a head for half of the keys",
        a_head_for_some_of_the_keys,
        "induction",
        by_induction("attention head 0"),
    ),
    one_route(
        "induction, a head for most of the keys",
        lambda task, seed: a_head_for_some_of_the_keys(task, seed, 0.75),
        "induction",
        by_induction("attention head 0"),
    ),
    one_route(
        "relay over the value",
        relay,
        "other: value, next_key",
        in_blocks(
            "key value next_key query",
            "value value next_key query",
            (0, "attention", "key", "value"),
            (1, "attention", "value", "next_key"),
            (2, "attention", "next_key", "query"),
        ),
        with_value_corrupted="other: next_key",
    ),
    one_route(
        "summary at the divider",
        summary_at_divider,
        "other: divider",
        # Which head it is depends on where the pair stands.
        in_blocks(
            "key divider query",
            "value divider query",
            (0, "attention", "key", "divider"),
            (1, "attention", "divider", "query"),
        ),
        with_value_corrupted="other: divider",
    ),
)
"""Whoever finds the route can name it; what distracts is in the name."""
