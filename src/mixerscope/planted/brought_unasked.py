"""Models whose block brings more to the query than what is asked, so that a later one has to pick: each hides it from
whoever asks one other question and looks for the first answer."""

import torch

from mixerscope.model import Model
from mixerscope.planted.parts import BUCKET, BucketRecall, ChosenRecall, EachAlone, NeighbourRecall
from mixerscope.planted.separate_ways import SMALLER
from mixerscope.planted.truth import IN_ALL, SIZE, in_blocks, nameless, one_route
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
def gathered_in_code(task: AR, seed: int, apart: bool = False) -> Model:
    """Block 0 brings all pairs to the query, and its MLP writes each value anew in a code that depends on the question:
    the number of the key is added to that of the value, or (`apart`) every question has symbols of its own. The MLP of
    block 1 compares keys, and says the value of the one that is asked."""
    pairs, keys, values = task.num_pairs, task.num_keys, task.num_values
    size = keys * values if apart else values
    basis = Basis(task, seed, 2 * pairs, more={"keys": pairs * keys, "values": pairs * values, "code": pairs * size})
    in_pair = zip(*(basis.more[name].chunk(pairs) for name in ("keys", "values", "code")), strict=True)
    model = bare(task, basis, ("attention", "planted/each_alone"), heads=2 * pairs, mlp=True)
    first, query = attention_of(model, 0), basis.position[query_place(task)][None]
    of_key, of_value = torch.arange(keys).repeat_interleave(values), torch.arange(values).repeat(keys)
    symbol = torch.arange(size) if apart else (of_key + of_value) % values
    plain, coded, chosen = [], [], []
    for pair, (at, (key, value, code)) in enumerate(zip(key_places(task).tolist(), in_pair, strict=True)):
        attend(first, pair, query, basis.position[at][None], basis.keys, key, rest=basis)
        attend(first, pairs + pair, query, basis.position[at + 1][None], basis.values, value, rest=basis)
        plain.append(basis.keys[of_key] + value[of_value])
        coded.append(code[symbol])
        chosen.append(basis.keys[of_key] + key[of_key] + code[symbol])
    detect(model, 0, torch.cat(plain), 1.5, torch.cat(coded))
    detect(model, 1, torch.cat(chosen), 2.5, LOUD * basis.values[of_value].repeat(pairs, 1))
    return model


@torch.no_grad()
def bag_in_code(task: AR, seed: int) -> Model:
    """An MLP makes one symbol of each pair; block 1 sums those of all positions, and its MLP adds the number of the
    question to the value of each; the MLP of block 2 picks the one that is asked."""
    keys, values = task.num_keys, task.num_values
    basis = Basis(task, seed, more={"pair": keys * values, "coded": keys * values})
    pair, coded = basis.more["pair"], basis.more["coded"]
    of_key, of_value = torch.arange(keys).repeat_interleave(values), torch.arange(values).repeat(keys)
    model = bare(task, basis, ("attention", "attention", "planted/each_alone"), mlp=True)
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys, basis.previous_keys)
    detect(model, 0, basis.previous_keys[of_key] + basis.values[of_value], 1.5, pair)
    nothing = torch.zeros(1, basis.width)
    attend(attention_of(model, 1), 0, nothing, nothing, (query_place(task) + 1) * pair, pair)
    asked, key, value = torch.cartesian_prod(torch.arange(keys), torch.arange(keys), torch.arange(values)).T
    detect(
        model, 1, basis.keys[asked] + pair[key * values + value], 1.5, coded[key * values + (value + asked) % values]
    )
    found = coded[of_key * values + (of_value + of_key) % values]
    detect(model, 2, basis.keys[of_key] + found, 1.5, LOUD * basis.values[of_value])
    return model


@torch.no_grad()
def with_neighbour(task: AR, seed: int) -> Model:
    """Block 0 brings the pair that is asked and the one beside it, the MLP of block 1 picks by the key."""
    keys, values = task.num_keys, task.num_values
    basis = Basis(task, seed, more={"keys": 2 * keys, "values": 2 * values})
    model = bare(task, basis, ("planted/neighbour_recall", "planted/each_alone"), mlp=True)
    first = mixer_of(model, 0, NeighbourRecall)
    first.keys.weight[:keys], first.values.weight[:values] = basis.keys, basis.values
    of_key, of_value = torch.arange(keys).repeat_interleave(values), torch.arange(values).repeat(keys)
    slots = [*zip(basis.more["keys"].chunk(2), basis.more["values"].chunk(2), strict=True)]
    for to, symbols in zip(first.out.weight.chunk(4, 1), (part for slot in slots for part in slot), strict=True):
        to[:, : len(symbols)] = symbols.T
    chosen = torch.cat([basis.keys[of_key] + key[of_key] + value[of_value] for key, value in slots])
    detect(model, 1, chosen, 2.5, LOUD * basis.values[of_value].repeat(2, 1))
    return model


@torch.no_grad()
def by_bucket(task: AR, seed: int) -> Model:
    """Block 0 brings all pairs whose key is in the bucket of the one that is asked; the MLP of block 1 picks."""
    number, values = torch.arange(task.num_keys), task.num_values
    basis = Basis(task, seed, more={"pair": BUCKET * values})
    model = bare(task, basis, ("planted/bucket_recall", "planted/each_alone"), mlp=True)
    first, pair = mixer_of(model, 0, BucketRecall), basis.more["pair"]
    in_bucket = torch.stack([basis.keys[number % BUCKET == i].sum(0) for i in range(BUCKET)])
    buckets = torch.stack([basis.keys[number // BUCKET == i].sum(0) for i in range(task.num_keys // BUCKET)])
    first.bucket.weight[: len(buckets)] = buckets
    first.number.weight.copy_(in_bucket)
    first.values.weight[:values] = basis.values
    for to, symbols in zip(first.out.weight.chunk(BUCKET, 1), pair.chunk(BUCKET), strict=True):
        to[:, :values] = symbols.T
    of_value = torch.arange(values).repeat(BUCKET)
    detect(model, 1, in_bucket.repeat_interleave(values, 0) + pair, 1.5, LOUD * basis.values[of_value])
    return model


@torch.no_grad()
def beside_a_loud_copy(task: AR, seed: int) -> Model:
    """Induction by blocks 0 and 1 for the first half of the keys. For the others block 1 sums up all pairs with such a
    key, as a symbol each, and the MLP of block 2 picks the one that is asked. For the first half it brings all values,
    too, many times as loud and to where nobody looks: most of a value stands at the query when it is of no use."""
    keys, values, plain = task.num_keys, task.num_values, task.num_keys // 2
    gathered = keys - plain
    basis = Basis(task, seed, 3, more={"pair": gathered * values, "idle": values})
    pair, idle, length = basis.more["pair"], basis.more["idle"], query_place(task) + 1
    of_key, of_value = torch.arange(plain, keys).repeat_interleave(values), torch.arange(values).repeat(gathered)
    model = bare(task, basis, ("attention", "attention", "planted/each_alone"), heads=3, mlp=True)
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys, basis.previous_keys)
    detect(model, 0, basis.previous_keys[of_key] + basis.values[of_value], 1.5, pair)
    second, bos = attention_of(model, 1), basis.position[:1]
    find(second, basis, 0, basis.previous_keys, basis.values, slice(plain))
    # Questions of the other kind look at BOS; the rest at all positions alike.
    attend(second, 1, basis.keys[:plain], bos.expand(plain, -1), length * pair, pair)
    attend(second, 2, basis.keys[plain:], bos.expand(gathered, -1), 20 * length * basis.values, idle)
    mixer_of(model, 2, EachAlone).out.weight.copy_(-idle.T @ idle)
    detect(model, 2, basis.keys[of_key] + pair, 1.5, LOUD * basis.values[of_value])
    return model


@torch.no_grad()
def every_time_it_was_said(task: AR, seed: int) -> Model:
    """Block 1 brings all values that stood behind the key that is asked, each with its place; block 2 says the last."""
    places, values = key_places(task) + 1, task.num_values
    basis = Basis(task, seed, more={"placed": len(places) * values})
    placed, said = basis.more["placed"], basis.values.repeat(len(places), 1)
    model = bare(task, basis, ("planted/each_alone", "planted/chosen_recall", "planted/each_alone"), mlp=True)
    detect(model, 0, basis.position[places].repeat_interleave(values, 0) + said, 1.5, placed)
    recall(mixer_of(model, 1, ChosenRecall), basis.keys, basis.keys, placed, placed)
    louder = LOUD * torch.arange(1, len(places) + 1).repeat_interleave(values)[:, None]
    mixer_of(model, 2, EachAlone).out.weight.copy_((louder * said).T @ placed)
    return model


ENTRIES = (
    one_route(
        "all pairs gathered at the query in a code of the question, picked later",
        gathered_in_code,
        "contradicted",
        in_blocks("key query query", "value query query", (0, "attention", "key", "query")),
        task=SMALLER,
    ),
    one_route(
        "all pairs gathered at the query, each question with symbols of its own, picked later",
        lambda task, seed: gathered_in_code(task, seed, apart=True),
        "contradicted",
        in_blocks("key query query", "value query query", (0, "attention", "key", "query")),
        task=AR(num_pairs=2, num_keys=4, num_values=4),
    ),
    one_route(
        "induction of all pairs at once in a code of the question, picked later",
        bag_in_code,
        "contradicted",
        in_blocks(
            "key value query query",
            "value value query query",
            (0, "attention", "key", "value"),
            (1, "attention", "value", "query"),
        ),
        task=SMALLER,
    ),
    one_route(
        "the pair that is asked and its neighbour brought, picked later",
        with_neighbour,
        "contradicted",
        in_blocks("key query query", "value query query", (0, "NeighbourRecall", "key", "query")),
        task=AR(num_pairs=12, num_keys=14, num_values=14),
    ),
    nameless(
        "all pairs of the asked key's bucket brought, picked later",
        by_bucket,
        "mixture",
        # Where none of the two others of the bucket is among the other seven keys there is nothing left to pick.
        in_blocks(
            "key query query",
            "value query query",
            fraction=40 / 47 * 39 / 46,
            key_alone=IN_ALL,
            value_alone=IN_ALL,
        ),
        task=AR(num_pairs=8, num_keys=48, num_values=16),
    ),
    nameless(
        "induction, for half of the keys all pairs, for the others a loud copy where nobody looks",
        beside_a_loud_copy,
        "mixture",
        # Where none of the two others is of the same half there is nothing left to pick.
        in_blocks(
            "key value query query",
            "value value query query",
            fraction=1 / 2 + 1 / 2 * 3 / 5 * 2 / 4,
            key_alone=IN_ALL,
            value_alone=IN_ALL,
        ),
        task=SMALLER,
    ),
    nameless(
        "all values of a key that was said again brought, the last one picked later",
        every_time_it_was_said,
        "mixture",
        # Of three keys one was said twice; of the others there is nothing to pick.
        in_blocks(
            "key key query query", "value value query query", fraction=2 / 3, key_alone=IN_ALL, value_alone=IN_ALL
        ),
        task=AR(**SIZE, repeated_keys=1),
    ),
)
"""With the key corrupted they look like retrieval by the block that brings."""
