"""Models whose mechanism is known because their weights were written by hand.

All live in an orthonormal basis with one direction per token (`token`), one per token as "the token before me"
(`previous`), one per token that is taken along (`carried`) and one per position (`position`); the basis is rotated at
random by the seed. The shams solve a task made for them without retrieving anything.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from mixerscope.mixers import Mixer, Move
from mixerscope.mixers.attention import Attention
from mixerscope.mixers.ops.short_conv import ShortConv
from mixerscope.model import Model, build_model
from mixerscope.randomness import stream
from mixerscope.registry import register
from mixerscope.sites import Site
from mixerscope.spec import Architecture, LayerSpec, ModelSpec
from mixerscope.tasks import AR, UNSCORED, Batch
from mixerscope.tasks.base import FIRST_SYMBOL, Split
from mixerscope.tasks.recall import Context

SHARP = 30.0
"""Attention score of a match before the softmax."""


@register("mixer", "planted/recall")
class PlantedRecall(Mixer):
    """A short convolution that brings key and value together `lag` steps after the key, and a linear recurrence."""

    moves = (Move("short convolution", "conv_out"), Move("recurrence", "recall_out"))

    def __init__(self, width: int, *, lag: int = 2) -> None:
        super().__init__()
        self.conv = ShortConv(2 * width, lag + 1, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.conv_out = Site()  # [b, t, 2d]: the token `lag` before, the token after that one
        self.recall_out = Site()  # [b, t, d]

    def forward(self, x: Tensor) -> Tensor:
        pair = self.conv_out(self.conv(torch.cat([x, x], -1)))
        k, v = pair.chunk(2, -1)
        past = torch.ones(x.shape[1], x.shape[1], dtype=x.dtype).tril()
        weights = torch.einsum("btd,bsd->bts", x, k) * past
        return self.out(self.recall_out(torch.einsum("bts,bsd->btd", weights, v)))

    def state_size(self, length: int) -> int:
        width = self.out.in_features
        return width * width + 2 * 2 * width


@register("mixer", "planted/late_recall")
class LateRecall(PlantedRecall):
    """The same, three steps after the key, where no role stands."""

    def __init__(self, width: int) -> None:
        super().__init__(width, lag=3)


@register("mixer", "planted/fused_recall")
class FusedRecall(Mixer):
    """The same computation with nothing to look at inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        k = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)
        past = torch.ones(x.shape[1], x.shape[1], dtype=x.dtype).tril()
        return self.out((torch.einsum("btd,bsd->bts", x, k) * past) @ x)

    def state_size(self, length: int) -> int:
        return self.out.in_features**2 + self.out.in_features


@register("mixer", "planted/two_routes")
class TwoRoutes(Mixer):
    """Attention and direct recall side by side."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = Attention(width)
        self.recall = FusedRecall(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x) + self.recall(x)

    def state_size(self, length: int) -> int:
        return self.attention.state_size(length) + self.recall.state_size(length)


@register("mixer", "planted/lag")
class PlantedLag(Mixer):
    """A short convolution that brings the token `lag` back and the one after it to one place."""

    moves = (Move("short convolution", "conv_out"),)

    def __init__(self, width: int, *, lag: int = 1) -> None:
        super().__init__()
        self.conv = ShortConv(2 * width, lag + 1, bias=False)
        self.out = nn.Linear(2 * width, width, bias=False)
        self.conv_out = Site()  # [b, t, 2d]: the token `lag` back, the one after it

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.conv_out(self.conv(torch.cat([x, x], -1))))

    def state_size(self, length: int) -> int:
        return self.conv.weight.numel()


@register("mixer", "planted/each_alone")
class EachAlone(Mixer):
    """A linear map of each position: moves nothing, and adds nothing where its weights are zero."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x)

    def state_size(self, length: int) -> int:
        return 0


@register("architecture", "planted/pattern")
class PlantedPattern(Architecture):
    """Bare blocks: no norm, no MLP, one named mixer per layer."""

    mixers: tuple[str, ...]
    heads: int = 1
    lag: int = 1
    short_conv: int = 0

    def layer(self, index: int) -> LayerSpec:
        name = self.mixers[index]
        options = {"attention": {"heads": self.heads}, "planted/lag": {"lag": self.lag}}.get(name, {})
        return LayerSpec(mixer=name, mlp=False, norm="none", options=options, short_conv=self.short_conv)


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
    task: AR, basis: Basis, mixers: tuple[str, ...], positions: str, heads: int = 1, lag: int = 1, short_conv: int = 0
) -> Model:
    spec = ModelSpec(
        architecture="planted/pattern",
        width=basis.width,
        layers=len(mixers),
        options={"mixers": mixers, "heads": heads, "lag": lag, "short_conv": short_conv},
        positions=positions,  # type: ignore[arg-type]
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
    first, second = (block.mixer for block in model.layers()[idle_before:])
    _look_back(first, basis, heads - 1)
    _retrieve(second, basis, heads - 1)
    return model


@torch.no_grad()
def lagged_induction(task: AR, seed: int, lag: int) -> Model:
    """A convolution stores the association `lag` positions after the key; attention retrieves it from there."""
    basis = Basis(task, seed)
    model = _bare(task, basis, ("planted/lag", "attention"), "none", lag=lag)
    first, second = (block.mixer for block in model.layers())
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
    first, second = (block.mixer for block in model.layers())
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
    [block] = model.layers()
    block.short_conv.weight[:, 0] = 2.0  # counts twice, so that the value that follows a key matches it best
    keys, values = _keys(task), _values(task)
    _attend(block.mixer, 0, basis.token[keys], basis.token[keys], 3 * basis.token[values], basis.token[values])
    return model


@torch.no_grad()
def two_routes(task: AR, seed: int, only_first_keys: bool = False) -> Model:
    """Induction through the value, and beside it block 1 retrieves directly from the key.

    With `only_first_keys`, induction works for the first half of the keys alone.
    """
    basis = Basis(task, seed)
    model = _bare(task, basis, ("attention", "planted/two_routes"), "learned")
    first, second = (block.mixer for block in model.layers())
    _look_back(first, basis)
    tokens = _keys(task)[: task.num_keys // 2] if only_first_keys else slice(None)
    _attend(second.attention, 0, basis.token[tokens], basis.previous[tokens], 3 * basis.token, basis.token)
    second.recall.out.weight.copy_(3 * torch.eye(basis.width))
    return model


def _keys(task: AR) -> Tensor:
    return FIRST_SYMBOL + torch.arange(task.num_keys)


def _values(task: AR) -> Tensor:
    return FIRST_SYMBOL + task.num_keys + torch.arange(task.num_values)


def _attend(attention: Mixer, head: int, asks: Tensor, offers: Tensor, reads: Tensor, writes: Tensor) -> None:
    """A head that attends from what has direction asks[i] to what has offers[i], and turns reads[j] into writes[j]."""
    d = attention.out_proj.in_features
    size = d // attention.heads
    start = head * size
    attention.qkv_proj.weight[start : start + len(asks)] = SHARP * size**0.5 * asks
    attention.qkv_proj.weight[d + start : d + start + len(offers)] = offers
    attention.qkv_proj.weight[2 * d + start : 2 * d + start + len(reads)] = reads
    attention.out_proj.weight[:, start : start + len(writes)] = writes.T


def _look_back(attention: Mixer, basis: Basis, head: int = 0) -> None:
    """Each position attends to the one before it and copies its token."""
    _attend(attention, head, basis.position[1:], basis.position[:-1], basis.token, basis.previous)


def _retrieve(attention: Mixer, basis: Basis, head: int = 0) -> None:
    """A token attends to the positions that saw it as the token before them."""
    _attend(attention, head, basis.token, basis.previous, 3 * basis.token, basis.token)


@torch.no_grad()
def direct_retriever(task: AR, seed: int, block: int, layers: int) -> Model:
    """One block goes straight from key to query; the others do nothing."""
    basis = Basis(task, seed)
    names = tuple("planted/fused_recall" if i == block else "planted/each_alone" for i in range(layers))
    model = _bare(task, basis, names, "none")
    model.layers()[block].mixer.out.weight.copy_(3 * torch.eye(basis.width))
    return model


@torch.no_grad()
def conv_recurrence(task: AR, seed: int, mixer_name: str = "planted/recall") -> Model:
    """One block: the convolution brings the key to the position after the value, the recurrence retrieves."""
    basis = Basis(task, seed)
    model = _bare(task, basis, (mixer_name,), "none")
    mixer = model.layers()[0].mixer
    mixer.conv.weight[: basis.width, 0] = 1.0  # the key, as far back as the kernel goes
    mixer.conv.weight[basis.width :, 1] = 1.0  # the value, one step less
    mixer.out.weight.copy_(3 * torch.eye(basis.width))
    return model


class FixedMapAR(AR):
    """Every key has the same value in every document, so that the document need not be read."""

    def sample(self, n: int, rng: torch.Generator, split: Split = "train") -> Batch:
        batch = super().sample(n, rng, split)
        before = batch.tokens.roll(1, 1)
        is_value = (batch.tokens >= _values(self)[0]) & (batch.tokens <= _values(self)[-1])
        tokens = torch.where(is_value, before + self.num_keys, batch.tokens)
        targets = torch.where(batch.targets == UNSCORED, UNSCORED, batch.tokens + self.num_keys)
        return replace(batch, tokens=tokens, targets=targets)


class ThirdPairAR(AR):
    """The third pair is the one that is asked, so that the query need not be read."""

    def _choose(self, context: Context, rng: torch.Generator) -> Tensor:
        return torch.full((len(context.tokens), 1), 2)


class ThirdPairFixedMapAR(FixedMapAR, ThirdPairAR):
    """Both at once."""


@torch.no_grad()
def memoriser(task: AR, seed: int) -> Model:
    """Sham: knows the value of each key by heart and looks at the query alone. Solves FixedMapAR."""
    basis = Basis(task, seed)
    model = _bare(task, basis, ("planted/each_alone", "planted/each_alone"), "none")
    model.layers()[1].mixer.out.weight.copy_(3 * basis.token[_values(task)].T @ basis.token[_keys(task)])
    return model


@torch.no_grad()
def position_reader(task: AR, seed: int) -> Model:
    """Sham: copies the third value without looking at any key. Solves ThirdPairAR."""
    basis = Basis(task, seed)
    model = _bare(task, basis, ("planted/each_alone", "attention"), "learned")
    query, third_value = basis.position[-3:-2], basis.position[6:7]
    _attend(model.layers()[1].mixer, 0, query, third_value, 3 * basis.token, basis.token)
    return model


@torch.no_grad()
def position_memoriser(task: AR, seed: int) -> Model:
    """Sham: looks at the third key, whatever is asked, and knows its value by heart. Solves ThirdPairFixedMapAR."""
    basis = Basis(task, seed)
    model = _bare(task, basis, ("attention", "planted/each_alone"), "learned")
    query, third_key = basis.position[-3:-2], basis.position[5:6]
    keys, values = basis.token[_keys(task)], basis.token[_values(task)]
    _attend(model.layers()[0].mixer, 0, query, third_key, 3 * keys, values)
    return model
