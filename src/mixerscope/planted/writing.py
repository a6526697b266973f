"""How weights are written by hand: a basis with a direction for everything there is to say, and heads that use it.

All planted models live in an orthonormal basis with one direction per token (`token`), one per token as "the token
before me" (`previous`), one per token that is taken along (`carried`) and one per position (`position`), and more where
a model has more to say; the basis is rotated at random by the seed.
"""

from collections.abc import Mapping
from typing import Literal, TypeVar

import torch
from torch import Tensor

from mixerscope.mixers import Mixer
from mixerscope.mixers.attention import Attention
from mixerscope.model import Model, build_model
from mixerscope.planted.parts import ChosenRecall
from mixerscope.randomness import stream
from mixerscope.spec import ModelSpec
from mixerscope.tasks import AR
from mixerscope.tasks.base import FIRST_SYMBOL

M = TypeVar("M", bound=Mixer)
SHARP = 30.0
"""Attention score of a match before the softmax."""
LOUD = 3.0
"""How strongly an answer is written; the query's own token stands there with 1."""
AT_REST = 0.4
"""How much a head that finds nothing is drawn to BOS, relative to a match."""
CONFIDENT = 4.0
"""Weight of the last norm: it brings the largest entry to about sqrt(width), so answers are given with certainty."""


class Basis:
    """Orthonormal directions, rotated at random. `more` are names of further ones and how many of each.

    They are `level`, their entries sum to zero, so that the last norm takes nothing off. The oldest models are not, and
    have as much width again for every head: numbers that were recorded of them hold them to it.
    """

    def __init__(
        self, task: AR, seed: int, heads: int = 1, *, more: Mapping[str, int] | None = None, level: bool = True
    ) -> None:
        more = {} if more is None else more
        tokens, positions = task.vocab_size, task.max_length
        sizes = [tokens, tokens, tokens, positions, *more.values()]
        needed = sum(sizes)
        # A head needs a row for each direction it may look at, and one to rest.
        rows = max(-(-(needed + 1) // heads), max(sizes) + 1) if level else needed
        self.width = heads * rows
        random = torch.randn(self.width, self.width, generator=stream(seed, "basis"))
        if level:
            random[:, 0] = 1.0
        rotation = torch.linalg.qr(random).Q
        rotation = rotation.T[1 : needed + 1] if level else rotation[:needed]
        self.token, self.previous, self.carried, self.position, *others = rotation.split(sizes)
        self.more = dict(zip(more, others, strict=True))
        self.keys, self.values = self.token[key_tokens(task)], self.token[value_tokens(task)]
        self.previous_keys = self.previous[key_tokens(task)]
        self.carried_values = self.carried[value_tokens(task)]


def key_tokens(task: AR) -> Tensor:
    return FIRST_SYMBOL + torch.arange(task.num_keys)


def value_tokens(task: AR) -> Tensor:
    return FIRST_SYMBOL + task.num_keys + torch.arange(task.num_values)


def key_places(task: AR) -> Tensor:
    """Where keys stand in a document without fillers; each value stands one behind."""
    return 1 + 2 * torch.arange(task.num_pairs)


def query_place(task: AR) -> int:
    """Where the query stands in documents of one length; the divider stands before it."""
    return task.context_length


def bare(
    task: AR,
    basis: Basis,
    mixers: tuple[str, ...],
    positions: Literal["learned", "none"] = "learned",
    *,
    heads: int = 1,
    lag: int = 1,
    short_conv: int = 0,
    mlp: bool = False,
) -> Model:
    """A model whose blocks do nothing yet."""
    spec = ModelSpec(
        architecture="planted/pattern",
        width=basis.width,
        layers=len(mixers),
        options={"mixers": mixers, "heads": heads, "lag": lag, "short_conv": short_conv, "mlp": mlp},
        positions=positions,
        max_length=task.max_length,
    )
    model = build_model(spec, task.vocab_size, seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.token_embedding.weight.copy_(basis.token)
        model.final_norm.weight.fill_(CONFIDENT)
        if model.position_embedding is not None:
            model.position_embedding.weight.copy_(basis.position)
    return model


def mixer_of(model: Model, block: int, kind: type[M]) -> M:
    """The mixer of a block, which is known to be of a kind."""
    mixer = model.layers()[block].mixer
    assert isinstance(mixer, kind), f"block {block} holds {type(mixer).__name__}"
    return mixer


def attention_of(model: Model, block: int) -> Attention:
    return mixer_of(model, block, Attention)


def attend(
    attention: Attention,
    head: int,
    asks: Tensor,
    offers: Tensor,
    reads: Tensor,
    writes: Tensor,
    rest: Basis | None = None,
) -> None:
    """A head that attends from what has direction asks[i] to what has offers[i], and turns reads[j] into writes[j].

    Without a match it spreads over all positions; with `rest`, in a basis whose positions are learned, it looks at BOS.
    """
    d = attention.out_proj.in_features
    size = d // attention.heads
    start = head * size
    if rest is not None:
        asks = torch.cat([asks, AT_REST * rest.position.sum(0, keepdim=True)])
        offers = torch.cat([offers, rest.position[:1]])
    assert max(len(asks), len(reads)) <= size, "a head has fewer rows than directions to look at"
    attention.qkv_proj.weight[start : start + len(asks)] = SHARP * size**0.5 * asks
    attention.qkv_proj.weight[d + start : d + start + len(offers)] = offers
    attention.qkv_proj.weight[2 * d + start : 2 * d + start + len(reads)] = reads
    attention.out_proj.weight[:, start : start + len(writes)] = writes.T


def look_back(attention: Attention, basis: Basis, head: int = 0) -> None:
    """Each position attends to the one before it and copies its token."""
    attend(attention, head, basis.position[1:], basis.position[:-1], basis.token, basis.previous)


def fetch(attention: Attention, basis: Basis, head: int, steps: int, reads: Tensor, writes: Tensor) -> None:
    """Each position attends to the one `steps` before it and turns reads[j] into writes[j]."""
    attend(attention, head, basis.position[steps:], basis.position[:-steps], reads, writes, rest=basis)


def retrieve(attention: Attention, basis: Basis, head: int = 0) -> None:
    """A token attends to the positions that saw it as the token before them."""
    attend(attention, head, basis.token, basis.previous, LOUD * basis.token, basis.token)


def find(
    attention: Attention, basis: Basis, head: int, offers: Tensor, reads: Tensor, keys: slice = slice(None)
) -> None:
    """A key attends to what offers itself for it, and what is read there is written as the answer."""
    attend(attention, head, basis.keys[keys], offers[keys], LOUD * reads, basis.values, rest=basis)


def recall(part: ChosenRecall, asks: Tensor, offers: Tensor, reads: Tensor, writes: Tensor) -> None:
    """Straight from the key: a position that asks finds what follows on what offers, and turns reads into writes."""
    part.asks.weight[: len(asks)] = asks
    part.offers.weight[: len(offers)] = offers
    part.reads.weight[: len(reads)] = reads
    part.out.weight[:, : len(writes)] = writes.T


def detect(model: Model, block: int, what: Tensor, threshold: float | Tensor, writes: Tensor) -> None:
    """The MLP of a block writes writes[i] where what[i] is there with half a unit more than the threshold."""
    mlp = model.layers()[block].mlp
    assert mlp is not None, "the block was asked for one"
    steep = 20.0
    mlp.fc1.weight[: len(what)] = steep * what
    mlp.fc1.bias[: len(what)] = -steep * threshold
    mlp.fc2.weight[:, : len(writes)] = writes.T / (steep / 2)
