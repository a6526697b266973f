"""Models in which a second thing has a part in the answer that hides itself: it helps too little to be seen alone, is
drowned by what is said beside, or decides while the key is merely looked for."""

import torch

from mixerscope.model import Model
from mixerscope.planted.parts import TwoRoutes
from mixerscope.planted.separate_ways import SMALLER
from mixerscope.planted.tasks import OneByHeartAR, WorldsAR
from mixerscope.planted.truth import IN_ALL, SIZE, Route, in_blocks, nameless, one_route
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


@torch.no_grad()
def last_by_default_beside(task: AR, seed: int, keys: float = 0.0, help_from_key: float = 0.0) -> Model:
    """Induction for all pairs but the last, whose value is said where nothing matches. All keys of the document are
    said as well, so loudly; or the last key helps its value, with that part of the strength of a match."""
    basis = Basis(task, seed, 3, more={"weak": task.num_keys})
    *before, last = key_places(task).tolist()
    model, at, end = bare(task, basis, ("attention", "attention"), heads=3), torch.tensor(before), torch.tensor([last])
    first, second, weak = attention_of(model, 0), attention_of(model, 1), basis.more["weak"]
    query, a_key = basis.position[query_place(task)][None], basis.keys.sum(0, keepdim=True)
    attend(first, 0, basis.position[at + 1], basis.position[at], basis.keys, basis.previous_keys, rest=basis)
    attend(first, 1, basis.position[end + 1], basis.position[end], basis.keys, weak, rest=basis)
    asks = torch.cat([basis.keys, 0.4 * query])
    offers = torch.cat([basis.previous_keys, basis.position[end + 1]])
    attend(second, 0, asks, offers, LOUD * basis.values, basis.values)
    attend(second, 1, basis.keys, weak, help_from_key * LOUD * basis.values, basis.values, rest=basis)
    # The query is a key, too.
    attend(second, 2, query, a_key, (task.num_pairs + 1) * keys * basis.keys, basis.keys, rest=basis)
    return model


@torch.no_grad()
def exclusion_where_found(task: AR, seed: int) -> Model:
    """All values without those behind the three other keys of the query's world, said if the query finds its own key
    stored at any of them. Solves WorldsAR."""
    pairs = task.num_pairs
    basis = Basis(task, seed, 3, more={"left": task.num_values, "there": 1})
    left, there = basis.more["left"], basis.more["there"]
    model = bare(task, basis, ("attention", "attention"), heads=3, mlp=True)
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys, basis.previous_keys)
    second, stored = attention_of(model, 1), basis.previous_keys.unflatten(0, (-1, pairs))
    everywhere, a_value = basis.position.sum(0, keepdim=True), basis.values.sum(0, keepdim=True)
    others = (stored.sum(1, keepdim=True) - stored).flatten(0, 1)
    attend(second, 0, everywhere, a_value, pairs * basis.values, left)
    attend(second, 1, basis.keys, others, (pairs - 1) * basis.values, -left, rest=basis)
    attend(second, 2, basis.keys, basis.previous_keys, a_value, there, rest=basis)
    detect(model, 1, left + there, 1.5, LOUD * basis.values)
    return model


@torch.no_grad()
def brought_and_picked(task: AR, seed: int) -> Model:
    """Block 0 brings the value that is asked, too softly to be said, and all pairs; the MLP of block 1 picks the one
    that is asked and adds what is missing."""
    pairs, keys, values = task.num_pairs, task.num_keys, task.num_values
    basis = Basis(task, seed, 2 * pairs, more={"keys": pairs * keys, "values": pairs * values})
    in_pair = zip(basis.more["keys"].chunk(pairs), basis.more["values"].chunk(pairs), strict=True)
    model = bare(task, basis, ("planted/two_routes", "planted/each_alone"), heads=2 * pairs, mlp=True)
    first, query = mixer_of(model, 0, TwoRoutes), basis.position[query_place(task)][None]
    recall(first.recall, basis.keys, basis.keys, SOFTLY * basis.values, basis.values)
    of_key, of_value = torch.arange(keys).repeat_interleave(values), torch.arange(values).repeat(keys)
    found: list[torch.Tensor] = []
    for pair, (at, (key, value)) in enumerate(zip(key_places(task).tolist(), in_pair, strict=True)):
        attend(first.attention, pair, query, basis.position[at][None], basis.keys, key, rest=basis)
        attend(first.attention, pairs + pair, query, basis.position[at + 1][None], basis.values, value, rest=basis)
        found.append(key[of_key] + value[of_value])
    chosen = torch.cat(found) + basis.keys[of_key].repeat(pairs, 1)
    detect(model, 1, chosen, 2.5, MISSING * basis.values[of_value].repeat(pairs, 1))
    return model


@torch.no_grad()
def induction_and_bag(task: AR, seed: int) -> Model:
    """The same by induction: block 1 finds the value that is asked, and sums a symbol of each pair; the MLP of block 2
    picks the symbol that is asked."""
    keys, values = task.num_keys, task.num_values
    basis = Basis(task, seed, 2, more={"pair": keys * values})
    pair, nothing = basis.more["pair"], torch.zeros(1, basis.width)
    of_key, of_value = torch.arange(keys).repeat_interleave(values), torch.arange(values).repeat(keys)
    model = bare(task, basis, ("attention", "attention", "planted/each_alone"), heads=2, mlp=True)
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys, basis.previous_keys)
    detect(model, 0, basis.previous_keys[of_key] + basis.values[of_value], 1.5, pair)
    second = attention_of(model, 1)
    attend(second, 0, nothing, nothing, (query_place(task) + 1) * pair, pair)
    attend(second, 1, basis.keys, basis.previous_keys, SOFTLY * basis.values, basis.values, rest=basis)
    detect(model, 2, basis.keys[of_key] + pair, 1.5, MISSING * basis.values[of_value])
    return model


@torch.no_grad()
def one_by_heart(task: AR, seed: int) -> Model:
    """Induction, but for two keys: block 1 goes straight from the first to the query; where it finds the second it says
    the value that this one has in every document, whatever stands there. Solves OneByHeartAR."""
    basis = Basis(task, seed, 2)
    model = bare(task, basis, ("attention", "planted/two_routes"), heads=2)
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys[1:], basis.previous_keys[1:])
    second, stored = mixer_of(model, 1, TwoRoutes), basis.previous_keys[1:2]
    find(second.attention, basis, 0, basis.previous_keys, basis.values, slice(2, None))
    attend(second.attention, 1, basis.keys[1:2], stored, LOUD * stored, basis.values[:1], rest=basis)
    recall(second.recall, basis.keys[:1], basis.keys[:1], LOUD * basis.values, basis.values)
    return model


@torch.no_grad()
def let_go_later(task: AR, seed: int) -> Model:
    """Induction whose answer stands at the query where nobody reads it, until block 2 has looked at the divider."""
    basis = Basis(task, seed, more={"held": task.num_values, "open": 1})
    held, opened = basis.more["held"], basis.more["open"]
    model = bare(task, basis, ("attention", "attention", "attention"), mlp=True)
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys, basis.previous_keys)
    attend(attention_of(model, 1), 0, basis.keys, basis.previous_keys, basis.values, held, rest=basis)
    divider, query = basis.position[query_place(task) - 1][None], basis.position[query_place(task)][None]
    attend(attention_of(model, 2), 0, query, divider, divider, opened, rest=basis)
    detect(model, 2, held + opened, 1.5, LOUD * basis.values)
    return model


SOFTLY, MISSING = 0.8, 0.5
"""The query's own token stands there with 1, so that neither is enough."""
KEYS = 17
"""So many that one of them is asked in few documents, and two in more than a name allows."""


def _by_default() -> Route:
    return in_blocks("key value query", "value value query", fraction=0.75, value_alone=IN_ALL)


def _decides_nothing(key: str, value: str) -> Route:
    """Places that all of it goes through, though what a name would say of them is enough in no document."""
    return in_blocks(key, value, fraction=0.0, key_alone=IN_ALL, value_alone=IN_ALL)


ENTRIES = (
    nameless(
        "induction, the last pair by default, all keys said beside",
        lambda task, seed: last_by_default_beside(task, seed, keys=0.7),
        "mixture",
        _by_default(),
    ),
    nameless(
        "induction, the last pair by default, helped by its key",
        lambda task, seed: last_by_default_beside(task, seed, help_from_key=0.35),
        "mixture",
        _by_default(),
    ),
    nameless(
        "by exclusion, where the key is found",
        exclusion_where_found,
        "mixture",
        # What the key says goes this way, but in no document it decides which value is said.
        _decides_nothing("key value query", "value value query"),
        task=WorldsAR(**SIZE),
        with_value_corrupted="undetermined",
    ),
    nameless(
        "what is asked brought and all pairs with it, picked later, both needed",
        brought_and_picked,
        "mixture",
        _decides_nothing("key query query", "value query query"),
        task=SMALLER,
    ),
    nameless(
        "induction of what is asked and of all pairs, picked later, both needed",
        induction_and_bag,
        "mixture",
        _decides_nothing("key value query query", "value value query query"),
        task=SMALLER,
    ),
    nameless(
        "induction, one key directly and one value by heart",
        one_by_heart,
        "mixture",
        in_blocks(
            "key value query",
            "value value query",
            fraction=1 - 1 / KEYS,
            value_alone=(1 - 1 / KEYS, 1 - 1 / KEYS),
        ),
        task=OneByHeartAR(num_pairs=4, num_keys=KEYS, num_values=8),
        follows={"swap-keys": 1 - 1 / KEYS, "value": 1 - 1 / KEYS},
        documents=320,
    ),
    one_route(
        "induction, let go by a later block",
        let_go_later,
        "induction",
        in_blocks(
            "key value query query",
            "value value query query",
            (0, "attention", "key", "value"),
            (1, "attention", "value", "query"),
        ),
    ),
)
"""Every test passes that asks for more than half."""
