"""Models whose mechanism is known because their weights were written by hand.

All live in an orthonormal basis with one direction per token (`token`), one per token as "the token before me"
(`previous`), one per token that is taken along (`carried`) and one per position (`position`); the basis is rotated at
random by the seed. The shams solve a task made for them without retrieving anything.
"""

from typing import Literal, TypeVar

import torch
from torch import Tensor

from mixerscope.mixers import Mixer
from mixerscope.mixers.attention import Attention
from mixerscope.model import Model, build_model
from mixerscope.planted.parts import EachAlone, FusedRecall, PlantedLag, PlantedRecall, TwoRoutes
from mixerscope.randomness import stream
from mixerscope.spec import ModelSpec
from mixerscope.tasks import AR
from mixerscope.tasks.base import FIRST_SYMBOL

M = TypeVar("M", bound=Mixer)
SHARP = 30.0
"""Attention score of a match before the softmax."""


class Basis:
    """Orthonormal directions, rotated at random. `room` times more of them than needed, for heads to share."""

    def __init__(self, task: AR, seed: int, room: int = 1) -> None:
        tokens, positions = task.vocab_size, task.max_length
        needed = 3 * tokens + positions
        self.width = room * needed
        random = torch.randn(self.width, self.width, generator=stream(seed, "basis"))
        rotation = torch.linalg.qr(random).Q[:needed]
        self.token, self.previous, self.carried, self.position = rotation.split([tokens, tokens, tokens, positions])


def _bare(
    task: AR,
    basis: Basis,
    mixers: tuple[str, ...],
    positions: Literal["learned", "none"],
    heads: int = 1,
    lag: int = 1,
    short_conv: int = 0,
) -> Model:
    spec = ModelSpec(
        architecture="planted/pattern",
        width=basis.width,
        layers=len(mixers),
        options={"mixers": mixers, "heads": heads, "lag": lag, "short_conv": short_conv},
        positions=positions,
        max_length=task.max_length,
    )
    model = build_model(spec, task.vocab_size, seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.token_embedding.weight.copy_(basis.token)
        # Confident answers: the layer norm brings the largest entry to about sqrt(width).
        model.final_norm.weight.fill_(4.0)
        if model.position_embedding is not None:
            model.position_embedding.weight.copy_(basis.position)
    return model


@torch.no_grad()
def induction_transformer(task: AR, seed: int, idle_before: int = 0, heads: int = 1) -> Model:
    """A layer in which each position learns the token before it, and one where the query finds who saw itself.

    `idle_before` layers before them do nothing. Of several heads, the last one works.
    """
    basis = Basis(task, seed, room=heads)
    mixers = (*["planted/each_alone"] * idle_before, "attention", "attention")
    model = _bare(task, basis, mixers, "learned", heads=heads)
    _look_back(_mixer(model, idle_before, Attention), basis, heads - 1)
    _retrieve(_mixer(model, idle_before + 1, Attention), basis, heads - 1)
    return model


@torch.no_grad()
def lagged_induction(task: AR, seed: int, lag: int) -> Model:
    """A convolution stores the association `lag` positions after the key; attention retrieves it from there."""
    basis = Basis(task, seed)
    model = _bare(task, basis, ("planted/lag", "attention"), "none", lag=lag)
    first, second = _mixer(model, 0, PlantedLag), _mixer(model, 1, Attention)
    d = basis.width
    first.conv.weight[:d, 0] = 1.0  # `lag` steps back: the key
    first.conv.weight[d:, 1] = 1.0  # one less: its value
    first.out.weight[:, :d] = basis.previous.T @ basis.token
    first.out.weight[:, d:] = basis.carried.T @ basis.token
    _attend(second, 0, basis.token, basis.previous, 3 * basis.carried, basis.token)
    return model


@torch.no_grad()
def split_induction(task: AR, seed: int) -> Model:
    """Associations are stored at the value for the first half of the keys, one step later for the others."""
    basis = Basis(task, seed)
    model = _bare(task, basis, ("planted/lag", "attention"), "none", lag=2)
    first, second = _mixer(model, 0, PlantedLag), _mixer(model, 1, Attention)
    d = basis.width
    sooner, later = _keys(task).chunk(2)
    values = _values(task)
    first.conv.weight[:d, 0] = 1.0  # two steps back
    first.conv.weight[d:, 1] = 1.0  # one step back
    first.out.weight[:, :d] = basis.previous[later].T @ basis.token[later]
    first.out.weight[:, d:] = basis.previous[sooner].T @ basis.token[sooner]
    first.out.weight[:, d:] += basis.carried[values].T @ basis.token[values]
    # A value lies with its key where it stands itself, or taken along; the other place has none of that kind.
    _attend(second, 0, basis.token, basis.previous, 3 * (basis.token + basis.carried)[values], basis.token[values])
    return model


@torch.no_grad()
def convolution_before_attention(task: AR, seed: int) -> Model:
    """One block: its own short convolution adds the token before, and attention looks for the key seen that way."""
    basis = Basis(task, seed)
    model = _bare(task, basis, ("attention",), "none", short_conv=2)
    convolution = model.layers()[0].short_conv
    assert convolution is not None, "the block was asked for one"
    convolution.weight[:, 0] = 2.0  # counts twice, so that the value that follows a key matches it best
    keys, values = basis.token[_keys(task)], basis.token[_values(task)]
    _attend(_mixer(model, 0, Attention), 0, keys, keys, 3 * values, values)
    return model


@torch.no_grad()
def two_routes(task: AR, seed: int, only_first_keys: bool = False) -> Model:
    """Induction through the value, and beside it block 1 retrieves directly from the key.

    With `only_first_keys`, induction works for the first half of the keys alone.
    """
    basis = Basis(task, seed)
    model = _bare(task, basis, ("attention", "planted/two_routes"), "learned")
    second = _mixer(model, 1, TwoRoutes)
    _look_back(_mixer(model, 0, Attention), basis)
    tokens = _keys(task)[: task.num_keys // 2] if only_first_keys else slice(None)
    _attend(second.attention, 0, basis.token[tokens], basis.previous[tokens], 3 * basis.token, basis.token)
    second.recall.out.weight.copy_(3 * torch.eye(basis.width))
    return model


def _keys(task: AR) -> Tensor:
    return FIRST_SYMBOL + torch.arange(task.num_keys)


def _values(task: AR) -> Tensor:
    return FIRST_SYMBOL + task.num_keys + torch.arange(task.num_values)


def _mixer(model: Model, block: int, kind: type[M]) -> M:
    """The mixer of a block, which is known to be of a kind."""
    mixer = model.layers()[block].mixer
    assert isinstance(mixer, kind), f"block {block} holds {type(mixer).__name__}"
    return mixer


def _attend(attention: Attention, head: int, asks: Tensor, offers: Tensor, reads: Tensor, writes: Tensor) -> None:
    """A head that attends from what has direction asks[i] to what has offers[i], and turns reads[j] into writes[j]."""
    d = attention.out_proj.in_features
    size = d // attention.heads
    start = head * size
    attention.qkv_proj.weight[start : start + len(asks)] = SHARP * size**0.5 * asks
    attention.qkv_proj.weight[d + start : d + start + len(offers)] = offers
    attention.qkv_proj.weight[2 * d + start : 2 * d + start + len(reads)] = reads
    attention.out_proj.weight[:, start : start + len(writes)] = writes.T


def _look_back(attention: Attention, basis: Basis, head: int = 0) -> None:
    """Each position attends to the one before it and copies its token."""
    _attend(attention, head, basis.position[1:], basis.position[:-1], basis.token, basis.previous)


def _retrieve(attention: Attention, basis: Basis, head: int = 0) -> None:
    """A token attends to the positions that saw it as the token before them."""
    _attend(attention, head, basis.token, basis.previous, 3 * basis.token, basis.token)


@torch.no_grad()
def direct_retriever(task: AR, seed: int, block: int, layers: int) -> Model:
    """One block goes straight from key to query; the others do nothing."""
    basis = Basis(task, seed)
    names = tuple("planted/fused_recall" if i == block else "planted/each_alone" for i in range(layers))
    model = _bare(task, basis, names, "none")
    _mixer(model, block, FusedRecall).out.weight.copy_(3 * torch.eye(basis.width))
    return model


@torch.no_grad()
def conv_recurrence(task: AR, seed: int, mixer_name: str = "planted/recall") -> Model:
    """One block: the convolution brings the key to the position after the value, the recurrence retrieves."""
    basis = Basis(task, seed)
    model = _bare(task, basis, (mixer_name,), "none")
    mixer = _mixer(model, 0, PlantedRecall)
    mixer.conv.weight[: basis.width, 0] = 1.0  # the key, as far back as the kernel goes
    mixer.conv.weight[basis.width :, 1] = 1.0  # the value, one step less
    mixer.out.weight.copy_(3 * torch.eye(basis.width))
    return model


@torch.no_grad()
def memoriser(task: AR, seed: int) -> Model:
    """Sham: knows the value of each key by heart and looks at the query alone. Solves FixedMapAR."""
    basis = Basis(task, seed)
    model = _bare(task, basis, ("planted/each_alone", "planted/each_alone"), "none")
    _mixer(model, 1, EachAlone).out.weight.copy_(3 * basis.token[_values(task)].T @ basis.token[_keys(task)])
    return model


@torch.no_grad()
def position_reader(task: AR, seed: int) -> Model:
    """Sham: copies the third value without looking at any key. Solves ThirdPairAR."""
    basis = Basis(task, seed)
    model = _bare(task, basis, ("planted/each_alone", "attention"), "learned")
    query, third_value = basis.position[-3:-2], basis.position[6:7]
    _attend(_mixer(model, 1, Attention), 0, query, third_value, 3 * basis.token, basis.token)
    return model


@torch.no_grad()
def position_memoriser(task: AR, seed: int) -> Model:
    """Sham: looks at the third key, whatever is asked, and knows its value by heart. Solves ThirdPairFixedMapAR."""
    basis = Basis(task, seed)
    model = _bare(task, basis, ("attention", "planted/each_alone"), "learned")
    query, third_key = basis.position[-3:-2], basis.position[5:6]
    keys, values = basis.token[_keys(task)], basis.token[_values(task)]
    _attend(_mixer(model, 0, Attention), 0, query, third_key, 3 * keys, values)
    return model
