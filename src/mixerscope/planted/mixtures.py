"""Models that take one route in some documents and another one in the rest: by key, by place, by value, by document."""

import torch

from mixerscope.model import Model
from mixerscope.planted.parts import ChosenRecall, TwoRoutes
from mixerscope.planted.separate_ways import point
from mixerscope.planted.several_at_once import room_for, stored_copies
from mixerscope.planted.tasks import MostlyFixedMapAR
from mixerscope.planted.truth import IN_ALL, SIZE, in_blocks, nameless
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
    mixer_of,
    query_place,
    recall,
)
from mixerscope.tasks import AR
from mixerscope.tasks.base import FIRST_SYMBOL


@torch.no_grad()
def patchwork(task: AR, seed: int) -> Model:
    """A fifth of the keys by induction, two fifths directly in block 1, two fifths over value and next key."""
    basis = Basis(task, seed, 2, more={"again": task.num_keys})
    again, fifth = basis.more["again"], task.num_keys // 5
    by_induction, directly, relayed = slice(fifth), slice(fifth, 3 * fifth), slice(3 * fifth, None)
    model = bare(task, basis, ("attention", "planted/two_routes", "attention"), heads=2)
    moved = torch.cat([torch.arange(task.num_keys)[by_induction], torch.arange(task.num_keys)[relayed]])
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys[moved], basis.previous_keys[moved])
    second = mixer_of(model, 1, TwoRoutes)
    find(second.attention, basis, 0, basis.previous_keys, basis.values, by_induction)
    both = torch.cat([basis.previous_keys[relayed], basis.values])
    fetch(second.attention, basis, 1, 1, both, torch.cat([again[relayed], basis.carried_values]))
    recall(second.recall, basis.keys[directly], basis.keys[directly], LOUD * basis.values, basis.values)
    find(attention_of(model, 2), basis, 0, again, basis.carried_values, relayed)
    return model


@torch.no_grad()
def by_position(task: AR, seed: int) -> Model:
    """All pairs but the last by induction; the last directly in block 1, its key being marked as the last one."""
    basis = Basis(task, seed, 2, more={"last": task.num_keys})
    *before, last = key_places(task).tolist()
    model = bare(task, basis, ("attention", "planted/two_routes"), heads=2)
    first, second, at = attention_of(model, 0), mixer_of(model, 1, TwoRoutes), torch.tensor(before)
    attend(first, 0, basis.position[at + 1], basis.position[at], basis.keys, basis.previous_keys, rest=basis)
    itself = basis.position[last][None]
    attend(first, 1, itself, itself, basis.keys, basis.more["last"], rest=basis)
    find(second.attention, basis, 0, basis.previous_keys, basis.values)
    recall(second.recall, basis.keys, basis.more["last"], LOUD * basis.values, basis.values)
    return model


@torch.no_grad()
def mostly_memoriser(task: AR, seed: int) -> Model:
    """Knows the values of all keys but the last one by heart, and finds that one's by induction."""
    basis = Basis(task, seed, heads=2)
    model = bare(task, basis, ("attention", "attention"), heads=2)
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys, basis.previous_keys)
    second, known = attention_of(model, 1), task.num_keys - 1
    find(second, basis, 0, basis.previous_keys, basis.values, slice(known, None))
    attend(second, 1, basis.position, basis.position, LOUD * basis.keys[:known], basis.values[:known])
    return model


@torch.no_grad()
def half_guessing(task: AR, seed: int) -> Model:
    """Induction for the first half of the keys; asked for another, the model says the first value."""
    basis = Basis(task, seed, heads=2)
    half, first_value = task.num_keys // 2, basis.position[2][None]
    model = bare(task, basis, ("attention", "attention"), heads=2)
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys, basis.previous_keys)
    find(attention_of(model, 1), basis, 0, basis.previous_keys, basis.values, slice(half))
    other = basis.keys[half:].sum(0, keepdim=True)
    attend(attention_of(model, 1), 1, other, first_value, LOUD * basis.values, basis.values, rest=basis)
    return model


@torch.no_grad()
def by_document(task: AR, seed: int) -> Model:
    """Where the document has one filler, induction; where it has the other, the association one step later."""
    basis = Basis(task, seed, 4, more={"flag": 2, **room_for(task, 2)})
    fillers = basis.token[FIRST_SYMBOL + task.num_keys + task.num_values :][:2]
    model = bare(task, basis, ("attention", "attention"), heads=4)
    stored = stored_copies(model, basis, 2)
    query = basis.position[query_place(task)][None]
    attend(attention_of(model, 0), 3, query, fillers.sum(0, keepdim=True), fillers, basis.more["flag"], rest=basis)
    for head, (key, value) in enumerate(stored):
        not_mine = 2 * basis.more["flag"][1 - head][None]
        asks, offers = torch.cat([basis.keys, not_mine]), torch.cat([key, basis.position[:1]])
        attend(attention_of(model, 1), head, asks, offers, LOUD * value, basis.values, rest=basis)
    return model


@torch.no_grad()
def by_value(task: AR, seed: int) -> Model:
    """The first half of the values is found by induction, the other half one step later."""
    basis = Basis(task, seed, 3, more=room_for(task, 2))
    model = bare(task, basis, ("attention", "attention"), heads=3)
    half, loud = task.num_values // 2, (LOUD, 2.0)
    for head, ((key, value), some) in enumerate(zip(stored_copies(model, basis, 2), (slice(half), slice(half, None)))):
        reads = loud[head] * value[some]
        attend(attention_of(model, 1), head, basis.keys, key, reads, basis.values[some], rest=basis)
    return model


@torch.no_grad()
def half_pointer(task: AR, seed: int) -> Model:
    """The first half of the keys directly in block 0; of the others block 0 fetches the address alone."""
    basis = Basis(task, seed, more={"address": task.max_length})
    address, half = basis.more["address"], task.num_keys // 2
    model = bare(task, basis, ("planted/two_routes", "attention"))
    first = mixer_of(model, 0, TwoRoutes)
    recall(first.recall, basis.keys[:half], basis.keys[:half], LOUD * basis.values, basis.values)
    point(first.attention, basis, slice(half, None))
    attend(attention_of(model, 1), 0, address[:-1], basis.position[1:], LOUD * basis.values, basis.values, rest=basis)
    return model


@torch.no_grad()
def half_over_divider(task: AR, seed: int) -> Model:
    """Block 1 finds the place of every key. Behind the first half of them it reads the value; block 0 has collected all
    values at the divider, by number, and of the others that number is read."""
    pairs, values, half = task.num_pairs, task.num_values, task.num_keys // 2
    heads = pairs + 1
    basis = Basis(task, seed, heads, more={"slots": pairs * values, "number": pairs})
    slots, number = basis.more["slots"], basis.more["number"]
    model = bare(task, basis, ("attention", "planted/two_routes"), heads=heads, mlp=True)
    divider, query = basis.position[query_place(task) - 1][None], basis.position[query_place(task)][None]
    for pair, (at, slot) in enumerate(zip((key_places(task) + 1).tolist(), slots.chunk(pairs), strict=True)):
        attend(attention_of(model, 0), pair, divider, basis.position[at][None], basis.values, slot, rest=basis)
    second, others = mixer_of(model, 1, TwoRoutes), basis.keys[half:]
    places = 2 * basis.position[key_places(task)]  # half of the attention stays at the query
    attend(second.attention, 0, others, others, places, number, rest=basis)
    attend(second.attention, 1, query, divider, slots, slots, rest=basis)
    recall(second.recall, basis.keys[:half], basis.keys[:half], LOUD * basis.values, basis.values)
    chosen = number.repeat_interleave(values, 0) + slots
    detect(model, 1, chosen, 1.5, LOUD * basis.values.repeat(pairs, 1))
    return model


@torch.no_grad()
def another_block(task: AR, seed: int) -> Model:
    """Direct retrieval: of the first half of the keys by block 0, of the others by block 1."""
    basis = Basis(task, seed)
    model = bare(task, basis, ("planted/chosen_recall", "planted/chosen_recall"), "none")
    for block, keys in enumerate(basis.keys.chunk(2)):
        recall(mixer_of(model, block, ChosenRecall), keys, keys, LOUD * basis.values, basis.values)
    return model


@torch.no_grad()
def other_blocks(task: AR, seed: int) -> Model:
    """Induction: of the first half of the keys by blocks 0 and 1, of the others by blocks 1 and 2."""
    basis = Basis(task, seed, heads=2)
    model = bare(task, basis, ("attention", "attention", "attention"), heads=2)
    half = task.num_keys // 2
    for block, keys in enumerate((slice(half), slice(half, None))):
        fetch(attention_of(model, block), basis, 0, 1, basis.keys[keys], basis.previous_keys[keys])
        find(attention_of(model, block + 1), basis, 1, basis.previous_keys, basis.values, keys)
    return model


@torch.no_grad()
def two_exceptions(task: AR, seed: int) -> Model:
    """Induction by blocks 0 and 1, but for two keys: block 1 goes straight from the first to the query; of the second
    it fetches the address, and block 2 what stands there."""
    basis = Basis(task, seed, 2, more={"address": task.max_length})
    address, directly, pointed, others = basis.more["address"], slice(1), slice(1, 2), slice(2, None)
    model = bare(task, basis, ("attention", "planted/two_routes", "attention"), heads=2)
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys[1:], basis.previous_keys[1:])
    second, stored = mixer_of(model, 1, TwoRoutes), basis.previous_keys[pointed]
    find(second.attention, basis, 0, basis.previous_keys, basis.values, others)
    attend(second.attention, 1, basis.keys[pointed], stored, basis.position, address, rest=basis)
    recall(second.recall, basis.keys[directly], basis.keys[directly], LOUD * basis.values, basis.values)
    # At rest the head of block 1 looks at BOS, whose address says nothing.
    places, reads = slice(1, None), LOUD * basis.values
    attend(attention_of(model, 2), 0, address[places], basis.position[places], reads, basis.values, rest=basis)
    return model


MOST_KEYS = 16 / 17, 16 / 17
"""Of seventeen keys all but one."""
ENTRIES = (
    nameless(
        "patchwork",
        patchwork,
        "mixture",
        in_blocks("key value query query", "value value query query", fraction=0.2, value_alone=(0.6, 0.6)),
        in_blocks("key key query query", "value value query query", fraction=0.4, value_alone=(0.6, 0.6)),
        in_blocks("key value next_key query", "value value next_key query", fraction=0.4),
        task=AR(num_pairs=4, num_keys=10, num_values=8),
        with_value_corrupted="undetermined",
    ),
    nameless(
        "by position: the last pair directly",
        by_position,
        "mixture",
        in_blocks("key value query", "value value query", fraction=0.75, value_alone=IN_ALL),
        in_blocks("key key query", "value value query", fraction=0.25, value_alone=IN_ALL),
    ),
    nameless(
        "mostly memoriser",
        mostly_memoriser,
        "mixture",
        in_blocks("key value query", "value value query", fraction=1 / 8),
        also=("not retrieval",),
        task=MostlyFixedMapAR(**SIZE),
        follows={"swap-keys": 1 / 8, "value": 1 / 8},
    ),
    nameless(
        "induction for half of the keys, else guessing",
        half_guessing,
        "mixture",
        # Half are found, and of the rest a quarter is guessed.
        in_blocks("key value query", "value value query", fraction=0.8, value_alone=IN_ALL),
        also=("not learned",),
        accuracy=(0.52, 0.73),
        follows={"query": 0.625, "swap-keys": 0.625, "value": 0.625},
    ),
    nameless(
        "by document: a filler decides",
        by_document,
        "mixture",
        in_blocks("key value query", "value value query", fraction=0.5),
        in_blocks("key next_key query", "value next_key query", fraction=0.5),
        task=AR(**SIZE, noise=1, num_fillers=2),
        with_value_corrupted="undetermined",
    ),
    nameless(
        "by value: half of them one step later",
        by_value,
        "mixture",
        # Another value is of the other half in 4 of 7, and then both routes speak, the first one louder.
        in_blocks("key value query", "value value query", fraction=0.5, value_alone=(1 / 2, 1 / 2 + 1 / 2 * 4 / 7)),
        in_blocks("key next_key query", "value next_key query", fraction=0.5, value_alone=(1 / 2 * 3 / 7, 1 / 2)),
        with_value_corrupted="undetermined",
    ),
    nameless(
        "half of the keys directly, half by pointer",
        half_pointer,
        "mixture",
        in_blocks("key query query", "value query query", fraction=0.5, key_alone=IN_ALL),
        in_blocks("key query query", "value value query", fraction=0.5, key_alone=IN_ALL),
        with_value_corrupted="undetermined",
    ),
    nameless(
        "half of the keys directly, half of the values over the divider",
        half_over_divider,
        "mixture",
        in_blocks("key key query", "value value query", fraction=0.5, key_alone=IN_ALL),
        in_blocks("key key query", "value divider query", fraction=0.5, key_alone=IN_ALL),
        task=AR(num_pairs=3, num_keys=6, num_values=6),
        with_value_corrupted="undetermined",
    ),
    nameless(
        "direct retrieval, another block for half of the keys",
        another_block,
        "mixture",
        in_blocks("key query query", "value query query", fraction=0.5),
        in_blocks("key key query", "value value query", fraction=0.5),
        with_value_corrupted="undetermined",
    ),
    nameless(
        "induction, other blocks for half of the keys",
        other_blocks,
        "mixture",
        in_blocks("key value query query", "value value query query", fraction=0.5),
        in_blocks("key key value query", "value value value query", fraction=0.5),
        also=("induction",),
        with_value_corrupted="undetermined",
    ),
    nameless(
        "induction, one key directly and one by pointer",
        two_exceptions,
        "mixture",
        # Few keys go another way than the others do, and few values; together they are too many.
        in_blocks(
            "key value query query",
            "value value query query",
            fraction=15 / 17,
            key_alone=MOST_KEYS,
            value_alone=MOST_KEYS,
        ),
        in_blocks("key key query query", "value value query query", fraction=1 / 17, value_alone=MOST_KEYS),
        in_blocks("key value query query", "value value value query", fraction=1 / 17, key_alone=MOST_KEYS),
        task=AR(num_pairs=4, num_keys=17, num_values=8),
        documents=320,
    ),
)
"""A majority is not a mechanism: each may be described, none has a name."""
