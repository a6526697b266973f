"""Models that answer for the wrong reason, and models that answer no more than a guess would."""

import torch

from mixerscope.model import Model
from mixerscope.planted.models import position_reader
from mixerscope.planted.tasks import ConsecutiveAR, FixedMapAR, FixedPlaceAR, LastPairAR, MarkedPairAR, ThirdPairAR
from mixerscope.planted.truth import SIZE, nameless
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
    query_place,
)
from mixerscope.tasks import AR


@torch.no_grad()
def query_blind(task: AR, seed: int) -> Model:
    """Copies the value behind the one key of the lower half, whatever is asked. Solves MarkedPairAR."""
    basis = Basis(task, seed)
    model = bare(task, basis, ("attention", "attention"))
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys, basis.previous_keys)
    query, marked = basis.position[query_place(task)], basis.previous_keys[: task.num_keys // 2].sum(0)
    attend(attention_of(model, 1), 0, query[None], marked[None], LOUD * basis.values, basis.values, rest=basis)
    return model


@torch.no_grad()
def mlp_look_up(task: AR, seed: int) -> Model:
    """The MLP of block 1 knows the value of each key by heart. Solves FixedMapAR."""
    basis = Basis(task, seed)
    model = bare(task, basis, ("planted/each_alone", "planted/each_alone"), "none", mlp=True)
    detect(model, 1, basis.keys, 0.5, LOUD * basis.values)
    return model


@torch.no_grad()
def neighbour(task: AR, seed: int) -> Model:
    """Finds the key, reads the value before it, and says the one that comes next. Solves ConsecutiveAR."""
    basis = Basis(task, seed)
    model = bare(task, basis, ("attention", "attention"))
    fetch(attention_of(model, 0), basis, 0, 1, basis.values, basis.carried_values)
    reads = 2 * LOUD * basis.carried_values  # half of the attention stays at the query
    attend(attention_of(model, 1), 0, basis.keys, basis.keys, reads, basis.values.roll(-1, 0), rest=basis)
    return model


@torch.no_grad()
def place_by_heart(task: AR, seed: int) -> Model:
    """Knows where each key would stand, and copies the value there without looking at the key. Solves FixedPlaceAR."""
    basis = Basis(task, seed)
    model = bare(task, basis, ("planted/each_alone", "attention"))
    each = task.num_keys // task.num_pairs
    places = (key_places(task) + 1).repeat_interleave(each)
    find(attention_of(model, 1), basis, 0, basis.position[places], basis.values)
    return model


def _presence(model: Model, basis: Basis, task: AR) -> None:
    """Block 0 tells the query whether its token is among the keys of the document."""
    places = 2 * basis.position[key_places(task)]  # half of the attention stays at the query
    there = basis.more["there"].expand(task.num_pairs, -1)
    attend(attention_of(model, 0), 0, basis.keys, basis.keys, places, there, rest=basis)


@torch.no_grad()
def checks_and_copies(task: AR, seed: int) -> Model:
    """Looks whether the key is there at all, and if so copies the third value. Solves ThirdPairAR."""
    basis = Basis(task, seed, more={"there": 1})
    model = bare(task, basis, ("attention", "attention"))
    _presence(model, basis, task)
    third = basis.position[key_places(task)[2] + 1][None]
    attend(attention_of(model, 1), 0, basis.more["there"], third, LOUD * basis.values, basis.values, rest=basis)
    return model


@torch.no_grad()
def presence(task: AR, seed: int) -> Model:
    """Looks whether the key is there at all, and if so says any value of the document."""
    basis = Basis(task, seed, more={"there": 1})
    model = bare(task, basis, ("attention", "attention"))
    _presence(model, basis, task)
    # A little more for some values than for others, so that no rounding error decides which is said.
    fondness = (1 + 0.005 * torch.arange(task.num_values))[:, None]
    reads, a_value = 2 * task.num_pairs * fondness * basis.values, basis.values.sum(0, keepdim=True)
    attend(attention_of(model, 1), 0, basis.more["there"], a_value, reads, basis.values, rest=basis)
    return model


@torch.no_grad()
def next_pair(task: AR, seed: int) -> Model:
    """Induction that reaches too far: says the value of the pair after the one that is asked."""
    basis = Basis(task, seed)
    model = bare(task, basis, ("attention", "attention"))
    fetch(attention_of(model, 0), basis, 0, 3, basis.keys, basis.previous_keys)
    find(attention_of(model, 1), basis, 0, basis.previous_keys, basis.values)
    return model


def last_value(task: AR, seed: int) -> Model:
    """Copies the last value. Solves LastPairAR."""
    return position_reader(task, seed, pair=task.num_pairs - 1)


REFUSED = ("contradicted",)
"""What may also be said of models that read key and value, but not which belongs to the query."""
GUESSING = {"query": 0.25, "swap-keys": 0.25, "value": 0.25}
ENTRIES = (
    nameless(
        "sham: query-blind",
        query_blind,
        "no retrieval",
        also=REFUSED,
        task=MarkedPairAR(num_pairs=4, num_keys=16, num_values=8),
        reads=("key", "value"),
        follows={"query": 0.0},
    ),
    nameless(
        "sham: MLP look-up",
        mlp_look_up,
        "no retrieval",
        task=FixedMapAR(**SIZE),
        reads=("query",),
        follows={"swap-keys": 0.0, "value": 0.0},
    ),
    nameless(
        "sham: last value",
        last_value,
        "no retrieval",
        task=LastPairAR(**SIZE),
        reads=("value",),
        follows={"query": 0.0, "swap-keys": 0.0},
    ),
    nameless(
        "sham: the value before, plus one",
        neighbour,
        "no retrieval",
        task=ConsecutiveAR(**SIZE),
        reads=("key", "query"),
        # Before the first pair there is no value, and one of three other pairs is the first.
        follows={"query": 2 / 3, "swap-keys": 2 / 3, "value": 0.0},
    ),
    nameless(
        "sham: place by heart",
        place_by_heart,
        "no retrieval",
        task=FixedPlaceAR(**SIZE),
        reads=("value", "query"),
        follows={"swap-keys": 0.0},
    ),
    nameless(
        "sham: checks the key, copies the third value",
        checks_and_copies,
        "no retrieval",
        also=REFUSED,
        task=ThirdPairAR(**SIZE),
        follows={"query": 0.0, "swap-keys": 0.0},
    ),
    nameless("presence", presence, "not above guessing", accuracy=(0.15, 0.35), follows=GUESSING),
    nameless(
        "last value, any pair asked",
        last_value,
        "not above guessing",
        accuracy=(0.15, 0.35),
        reads=("value",),
        follows=GUESSING,
    ),
    nameless(
        "the value of the next pair",
        next_pair,
        "not above guessing",
        accuracy=(0.0, 0.0),
        reads=("key", "query"),
        follows={"query": 0.0, "swap-keys": 0.0, "value": 0.0},
    ),
)
