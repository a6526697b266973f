"""Models that take several routes at once: each of them enough, one in reserve, or all of them needed together."""

import torch

from mixerscope.model import Model
from mixerscope.planted.models import two_routes
from mixerscope.planted.parts import ChosenRecall, EachAlone, TwoRoutes
from mixerscope.planted.truth import in_blocks, nameless
from mixerscope.planted.writing import (
    LOUD,
    Basis,
    attend,
    attention_of,
    bare,
    detect,
    fetch,
    look_back,
    mixer_of,
    recall,
)
from mixerscope.tasks import AR

IN_NONE = (0.0, 0.0)
NOT_NEEDED = (1.0, 0.0)
"""Of a route that another one can stand in for."""


def stored_copies(model: Model, basis: Basis, copies: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Block 0 stores each association at the value and at the positions after it; how keys and values stand there."""
    first, stored = attention_of(model, 0), [(basis.previous_keys, basis.values)]
    fetch(first, basis, 0, 1, basis.keys, basis.previous_keys)
    for back in range(2, copies + 1):
        key, value = basis.more[f"key{back}"], basis.more[f"value{back}"]
        fetch(first, basis, 2 * back - 3, back, basis.keys, key)
        fetch(first, basis, 2 * back - 2, back - 1, basis.values, value)
        stored.append((key, value))
    return stored


def room_for(task: AR, copies: int) -> dict[str, int]:
    backs = range(2, copies + 1)
    return {f"key{b}": task.num_keys for b in backs} | {f"value{b}": task.num_values for b in backs}


@torch.no_grad()
def backup(task: AR, seed: int) -> Model:
    """Induction; and where block 1 found nothing, block 2 takes the answer from the position after the value."""
    basis = Basis(task, seed, 3, more={"said": 1, **room_for(task, 2)})
    said = basis.more["said"]
    model = bare(task, basis, ("attention", "attention", "attention"), heads=3)
    (key, value), (second_key, second_value) = stored_copies(model, basis, 2)
    attend(attention_of(model, 1), 0, basis.keys, key, LOUD * value, basis.values + said, rest=basis)
    # What was said draws the head to BOS, more strongly than any match.
    asks, offers = torch.cat([basis.keys, said]), torch.cat([second_key, basis.position[:1]])
    attend(attention_of(model, 2), 0, asks, offers, LOUD * second_value, basis.values, rest=basis)
    return model


@torch.no_grad()
def twice(task: AR, seed: int) -> Model:
    """Induction whose last step is made by block 1 and, less loudly, by block 2 again."""
    basis = Basis(task, seed)
    model = bare(task, basis, ("attention", "attention", "attention"))
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys, basis.previous_keys)
    for block, loud in ((1, LOUD), (2, 2.0)):
        head = attention_of(model, block)
        attend(head, 0, basis.keys, basis.previous_keys, loud * basis.values, basis.values, rest=basis)
    return model


@torch.no_grad()
def quiet_second(task: AR, seed: int) -> Model:
    """Induction, and beside it block 1 retrieves directly from the key, with a third of the strength.

    Block 2 takes the query's own token away, so that this is enough, and writes so much beside the answer that the last
    norm changes nothing: of the logit difference most comes by induction, of the answer nothing that must."""
    basis = Basis(task, seed)
    model = bare(task, basis, ("attention", "planted/two_routes", "planted/each_alone"))
    look_back(attention_of(model, 0), basis)
    second = mixer_of(model, 1, TwoRoutes)
    attend(second.attention, 0, basis.keys, basis.previous_keys, LOUD * basis.values, basis.values, rest=basis)
    recall(second.recall, basis.keys, basis.keys, LOUD / 3 * basis.values, basis.values)
    beside = 10 * basis.position.T @ basis.position
    mixer_of(model, 2, EachAlone).out.weight.copy_(beside - 0.95 * basis.keys.T @ basis.keys)
    return model


@torch.no_grad()
def copies(task: AR, seed: int, count: int = 3, each: float = LOUD) -> Model:
    """The association stands at the value and at the positions after it, and a head reads each of these places."""
    heads = 2 * count - 1
    basis = Basis(task, seed, heads, more=room_for(task, count))
    model = bare(task, basis, ("attention", "attention"), heads=heads)
    for head, (key, value) in enumerate(stored_copies(model, basis, count)):
        attend(attention_of(model, 1), head, basis.keys, key, each * value, basis.values, rest=basis)
    return model


@torch.no_grad()
def odd_copies(task: AR, seed: int) -> Model:
    """The association stands at three places, a head reads each, and the MLP says what an odd number of them says."""
    values = task.num_values
    basis = Basis(task, seed, 5, more={**room_for(task, 3), "votes": values})
    model, votes = bare(task, basis, ("attention", "attention"), heads=5, mlp=True), basis.more["votes"]
    for head, (key, value) in enumerate(stored_copies(model, basis, 3)):
        attend(attention_of(model, 1), head, basis.keys, key, value, votes, rest=basis)
    # Up with the first vote, down with the second, up with the third.
    steps = torch.tensor([0.0, 1.0, 2.0]).repeat_interleave(values)
    louder = torch.tensor([1.0, -2.0, 2.0]).repeat_interleave(values)[:, None]
    detect(model, 1, votes.repeat(3, 1), steps, louder * LOUD * basis.values.repeat(3, 1))
    return model


@torch.no_grad()
def digits(task: AR, seed: int) -> Model:
    """Of the value's number one digit is read at the value and one a position later; the sum of both is the answer."""
    basis = Basis(task, seed, 3, more=room_for(task, 2))
    model = bare(task, basis, ("attention", "attention"), heads=3)
    number = torch.arange(task.num_values)
    for head, ((key, value), digit) in enumerate(zip(stored_copies(model, basis, 2), (number // 4, number % 4))):
        same = (digit[:, None] == digit).float()
        attend(attention_of(model, 1), head, basis.keys, key, 0.8 * value, same @ basis.values, rest=basis)
    return model


@torch.no_grad()
def by_halves(task: AR, seed: int) -> Model:
    """Direct retrieval, half of the answer by block 0 and the other half by block 1."""
    basis = Basis(task, seed)
    model = bare(task, basis, ("planted/chosen_recall", "planted/chosen_recall"), "none")
    for block in range(2):
        recall(mixer_of(model, block, ChosenRecall), basis.keys, basis.keys, 0.7 * basis.values, basis.values)
    return model


@torch.no_grad()
def agreement(task: AR, seed: int) -> Model:
    """Block 0 finds the value directly and block 1 by induction; it is said if both have found the same."""
    basis = Basis(task, seed, more={"once": task.num_values, "again": task.num_values})
    model = bare(task, basis, ("planted/two_routes", "attention"), mlp=True)
    first, (once, again) = mixer_of(model, 0, TwoRoutes), (basis.more["once"], basis.more["again"])
    look_back(first.attention, basis)
    recall(first.recall, basis.keys, basis.keys, basis.values, once)
    attend(attention_of(model, 1), 0, basis.keys, basis.previous_keys, basis.values, again, rest=basis)
    detect(model, 1, once + again, 1.5, LOUD * basis.values)
    return model


ENTRIES = (
    nameless(
        "backup: another route where the first fails",
        backup,
        "mixture",
        # A wrong value is said as loudly as the right one, and then nothing is missing.
        in_blocks("key value query query", "value value query query", key_alone=NOT_NEEDED),
        in_blocks(
            "key next_key next_key query",
            "value next_key next_key query",
            fraction=0.0,
            key_alone=NOT_NEEDED,
            value_alone=IN_NONE,
        ),
    ),
    nameless(
        "the last step twice",
        twice,
        "mixture",
        # Where they disagree, the louder one wins.
        in_blocks("key value query query", "value value query query", key_alone=NOT_NEEDED),
        in_blocks("key value value query", "value value value query", key_alone=NOT_NEEDED, value_alone=IN_NONE),
    ),
    nameless(
        "a quiet second route, enough alone",
        quiet_second,
        "mixture",
        in_blocks("key value query query", "value value query query", key_alone=NOT_NEEDED),
        in_blocks("key key query query", "value value query query", key_alone=NOT_NEEDED),
    ),
    nameless(
        "three copies, each of them enough",
        copies,
        "mixture",
        # Where one disagrees about the value, it is outvoted.
        in_blocks("key value query", "value value query", key_alone=NOT_NEEDED, value_alone=IN_NONE),
        in_blocks("key next_key query", "value next_key query", key_alone=NOT_NEEDED, value_alone=IN_NONE),
        in_blocks("key key+3 query", "value key+3 query", key_alone=NOT_NEEDED, value_alone=IN_NONE),
        with_value_corrupted="undetermined",
    ),
    nameless(
        "three copies, of which an odd number is heard",
        odd_copies,
        "mixture",
        in_blocks("key value query", "value value query"),
        in_blocks("key next_key query", "value next_key query"),
        in_blocks("key key+3 query", "value key+3 query"),
        with_value_corrupted="undetermined",
    ),
    nameless(
        "digits of the value at two places",
        digits,
        "distributed",
        in_blocks("key value&next_key query", "value value&next_key query"),
        with_value_corrupted="undetermined",
    ),
    nameless(
        "three copies, all of them needed",
        lambda task, seed: copies(task, seed, each=0.42),
        "distributed",
        in_blocks("key value&next_key&key+3 query", "value value&next_key&key+3 query"),
        with_value_corrupted="undetermined",
    ),
    nameless(
        "two routes, both of them needed",
        lambda task, seed: two_routes(task, seed, induction=0.7, direct=0.7),
        "distributed",
        in_blocks("key key&value query", "value value query"),
    ),
    nameless(
        "two routes, both of them needed, one louder",
        lambda task, seed: two_routes(task, seed, induction=0.9, direct=0.5),
        "distributed",
        in_blocks("key key&value query", "value value query"),
    ),
    nameless(
        "two routes that must agree",
        agreement,
        "distributed",
        in_blocks("key value&query query", "value value&query query"),
        with_value_corrupted="undetermined",
    ),
    nameless(
        "direct retrieval, half of it by each block",
        by_halves,
        "distributed",
        in_blocks("key key&query query", "value value&query query"),
        with_value_corrupted="undetermined",
    ),
)
"""What each place does alone is not what they do together."""
