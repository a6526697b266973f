"""The first planted models: induction and direct retrieval in their plain forms, two of them mixed, and three shams.

The shams solve a task made for them without retrieving anything.
"""

import torch

from mixerscope.mixers.attention import Attention
from mixerscope.model import Model
from mixerscope.planted.parts import EachAlone, FusedRecall, PlantedLag, PlantedRecall, TwoRoutes
from mixerscope.planted.writing import (
    LOUD,
    Basis,
    attend,
    bare,
    key_places,
    key_tokens,
    look_back,
    mixer_of,
    query_place,
    recall,
    retrieve,
    value_tokens,
)
from mixerscope.tasks import AR


@torch.no_grad()
def induction_transformer(
    task: AR, seed: int, idle_before: int = 0, heads: int = 1, idle_between: int = 0, idle_after: int = 0
) -> Model:
    """A layer in which each position learns the token before it, and one where the query finds who saw itself.

    Idle layers do nothing. Of several heads, the last one works.
    """
    basis = Basis(task, seed, heads, level=False)
    idle = "planted/each_alone"
    mixers = (*[idle] * idle_before, "attention", *[idle] * idle_between, "attention", *[idle] * idle_after)
    model = bare(task, basis, mixers, heads=heads)
    look_back(mixer_of(model, idle_before, Attention), basis, heads - 1)
    retrieve(mixer_of(model, idle_before + idle_between + 1, Attention), basis, heads - 1)
    return model


@torch.no_grad()
def lagged_induction(task: AR, seed: int, lag: int) -> Model:
    """A convolution stores the association `lag` positions after the key; attention retrieves it from there."""
    basis = Basis(task, seed)
    model = bare(task, basis, ("planted/lag", "attention"), "none", lag=lag)
    first, second = mixer_of(model, 0, PlantedLag), mixer_of(model, 1, Attention)
    d = basis.width
    first.conv.weight[:d, 0] = 1.0  # `lag` steps back: the key
    first.conv.weight[d:, 1] = 1.0  # one less: its value
    first.out.weight[:, :d] = basis.previous.T @ basis.token
    first.out.weight[:, d:] = basis.carried.T @ basis.token
    attend(second, 0, basis.token, basis.previous, LOUD * basis.carried, basis.token)
    return model


@torch.no_grad()
def split_induction(task: AR, seed: int) -> Model:
    """Associations are stored at the value for the first half of the keys, one step later for the others."""
    basis = Basis(task, seed)
    model = bare(task, basis, ("planted/lag", "attention"), "none", lag=2)
    first, second = mixer_of(model, 0, PlantedLag), mixer_of(model, 1, Attention)
    d = basis.width
    sooner, later = key_tokens(task).chunk(2)
    values = value_tokens(task)
    first.conv.weight[:d, 0] = 1.0  # two steps back
    first.conv.weight[d:, 1] = 1.0  # one step back
    first.out.weight[:, :d] = basis.previous[later].T @ basis.token[later]
    first.out.weight[:, d:] = basis.previous[sooner].T @ basis.token[sooner]
    first.out.weight[:, d:] += basis.carried[values].T @ basis.token[values]
    # A value lies with its key where it stands itself, or taken along; the other place has none of that kind.
    attend(second, 0, basis.token, basis.previous, LOUD * (basis.token + basis.carried)[values], basis.token[values])
    return model


@torch.no_grad()
def convolution_before_attention(task: AR, seed: int) -> Model:
    """One block: its own short convolution adds the token before, and attention looks for the key seen that way."""
    basis = Basis(task, seed)
    model = bare(task, basis, ("attention",), "none", short_conv=2)
    convolution = model.layers()[0].short_conv
    assert convolution is not None, "the block was asked for one"
    convolution.weight[:, 0] = 2.0  # counts twice, so that the value that follows a key matches it best
    attend(mixer_of(model, 0, Attention), 0, basis.keys, basis.keys, LOUD * basis.values, basis.values)
    return model


@torch.no_grad()
def two_routes(
    task: AR, seed: int, only_first_keys: bool = False, induction: float = LOUD, direct: float = LOUD
) -> Model:
    """Induction through the value, and beside it block 1 retrieves directly from the key; each may be weaker.

    With `only_first_keys`, induction works for the first half of the keys alone.
    """
    basis = Basis(task, seed)
    model = bare(task, basis, ("attention", "planted/two_routes"))
    second = mixer_of(model, 1, TwoRoutes)
    look_back(mixer_of(model, 0, Attention), basis)
    keys = slice(task.num_keys // 2) if only_first_keys else slice(None)
    asks, offers = basis.keys[keys], basis.previous_keys[keys]
    attend(second.attention, 0, asks, offers, induction * basis.values, basis.values, rest=basis)
    recall(second.recall, basis.keys, basis.keys, direct * basis.values, basis.values)
    return model


@torch.no_grad()
def direct_retriever(task: AR, seed: int, block: int, layers: int) -> Model:
    """One block goes straight from key to query; the others do nothing."""
    basis = Basis(task, seed)
    names = tuple("planted/fused_recall" if i == block else "planted/each_alone" for i in range(layers))
    model = bare(task, basis, names, "none")
    mixer_of(model, block, FusedRecall).out.weight.copy_(LOUD * torch.eye(basis.width))
    return model


@torch.no_grad()
def conv_recurrence(task: AR, seed: int, mixer_name: str = "planted/recall") -> Model:
    """One block: the convolution brings the key to the position after the value, the recurrence retrieves."""
    basis = Basis(task, seed)
    model = bare(task, basis, (mixer_name,), "none")
    mixer = mixer_of(model, 0, PlantedRecall)
    mixer.conv.weight[: basis.width, 0] = 1.0  # the key, as far back as the kernel goes
    mixer.conv.weight[basis.width :, 1] = 1.0  # the value, one step less
    mixer.out.weight.copy_(LOUD * torch.eye(basis.width))
    return model


@torch.no_grad()
def memoriser(task: AR, seed: int) -> Model:
    """Sham: knows the value of each key by heart and looks at the query alone. Solves FixedMapAR."""
    basis = Basis(task, seed)
    model = bare(task, basis, ("planted/each_alone", "planted/each_alone"), "none")
    mixer_of(model, 1, EachAlone).out.weight.copy_(LOUD * basis.values.T @ basis.keys)
    return model


@torch.no_grad()
def position_reader(task: AR, seed: int, pair: int = 2) -> Model:
    """Sham: copies the value of one pair, the third, without looking at any key. Solves ThirdPairAR."""
    basis = Basis(task, seed)
    model = bare(task, basis, ("planted/each_alone", "attention"))
    query, value = query_place(task), int(key_places(task)[pair]) + 1
    asks, offers = basis.position[query : query + 1], basis.position[value : value + 1]
    attend(mixer_of(model, 1, Attention), 0, asks, offers, LOUD * basis.token, basis.token)
    return model


@torch.no_grad()
def position_memoriser(task: AR, seed: int) -> Model:
    """Sham: looks at the third key, whatever is asked, and knows its value by heart. Solves ThirdPairFixedMapAR."""
    basis = Basis(task, seed)
    model = bare(task, basis, ("attention", "planted/each_alone"))
    query, third_key = query_place(task), int(key_places(task)[2])
    asks, offers = basis.position[query : query + 1], basis.position[third_key : third_key + 1]
    attend(mixer_of(model, 0, Attention), 0, asks, offers, LOUD * basis.keys, basis.values)
    return model
