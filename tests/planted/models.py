"""Models whose mechanism is known because their weights were written by hand.

All live in an orthonormal basis with one direction per token (`token`), one per token as "the token before me"
(`previous`) and one per position (`position`); the basis is rotated at random by the seed.
"""

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
from mixerscope.tasks import AR

SHARP = 30.0
"""Attention score of a match before the softmax."""


@register("mixer", "planted/recall")
class PlantedRecall(Mixer):
    """A short convolution that brings key and value together two steps after the key, and a linear recurrence."""

    moves = (Move("short convolution", "conv_out"), Move("recurrence", "recall_out"))

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = ShortConv(2 * width, 3, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.conv_out = Site()  # [b, t, 2d]: the token two before, the token before
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


@register("mixer", "planted/nothing")
class Nothing(Mixer):
    """Adds nothing to the residual stream."""

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

    def layer(self, index: int) -> LayerSpec:
        return LayerSpec(mixer=self.mixers[index], mlp=False, norm="none")


class Basis:
    """Orthonormal directions, rotated at random."""

    def __init__(self, task: AR, seed: int) -> None:
        tokens, positions = task.vocab_size, task.max_length
        self.width = 2 * tokens + positions
        random = torch.randn(self.width, self.width, generator=stream(seed, "basis"))
        rotation = torch.linalg.qr(random).Q
        self.token, self.previous, self.position = rotation.split([tokens, tokens, positions])


def _bare(task: AR, basis: Basis, mixers: tuple[str, ...], positions: str) -> Model:
    spec = ModelSpec(
        architecture="planted/pattern",
        width=basis.width,
        layers=len(mixers),
        options={"mixers": mixers},
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
def induction_transformer(task: AR, seed: int) -> Model:
    """Layer 0: each position learns the token before it. Layer 1: the query finds the position that saw itself."""
    basis = Basis(task, seed)
    model = _bare(task, basis, ("attention", "attention"), "learned")
    first, second = (block.mixer for block in model.layers())
    _look_back(first, basis)
    _retrieve(second, basis)
    return model


@torch.no_grad()
def two_routes(task: AR, seed: int) -> Model:
    """Induction through the value, and beside it block 1 retrieves directly from the key."""
    basis = Basis(task, seed)
    model = _bare(task, basis, ("attention", "planted/two_routes"), "learned")
    first, second = (block.mixer for block in model.layers())
    _look_back(first, basis)
    _retrieve(second.attention, basis)
    second.recall.out.weight.copy_(3 * torch.eye(basis.width))
    return model


def _look_back(attention: Mixer, basis: Basis) -> None:
    """An attention layer in which each position attends to the one before it and copies its token."""
    d = basis.width
    before = torch.cat([basis.position[:1], basis.position[:-1]])  # the direction of position p - 1, for each p
    attention.qkv_proj.weight[:d] = SHARP * d**0.5 * before.T @ basis.position
    attention.qkv_proj.weight[d : 2 * d] = basis.position.T @ basis.position
    attention.qkv_proj.weight[2 * d :] = basis.previous.T @ basis.token
    attention.out_proj.weight.copy_(torch.eye(d))


def _retrieve(attention: Mixer, basis: Basis) -> None:
    """An attention layer in which a token attends to the positions that saw it as the token before them."""
    d = basis.width
    attention.qkv_proj.weight[:d] = SHARP * d**0.5 * basis.token.T @ basis.token
    attention.qkv_proj.weight[d : 2 * d] = basis.token.T @ basis.previous
    attention.qkv_proj.weight[2 * d :] = 3 * basis.token.T @ basis.token
    attention.out_proj.weight.copy_(torch.eye(d))


@torch.no_grad()
def direct_retriever(task: AR, seed: int, block: int, layers: int) -> Model:
    """One block goes straight from key to query; the others do nothing."""
    basis = Basis(task, seed)
    names = tuple("planted/fused_recall" if i == block else "planted/nothing" for i in range(layers))
    model = _bare(task, basis, names, "none")
    model.layers()[block].mixer.out.weight.copy_(3 * torch.eye(basis.width))
    return model


@torch.no_grad()
def conv_recurrence(task: AR, seed: int) -> Model:
    """One block: the convolution brings the key to the position after the value, the recurrence retrieves."""
    basis = Basis(task, seed)
    model = _bare(task, basis, ("planted/recall",), "none")
    mixer = model.layers()[0].mixer
    mixer.conv.weight[: basis.width, 0] = 1.0  # two steps back
    mixer.conv.weight[basis.width :, 1] = 1.0  # one step back
    mixer.out.weight.copy_(3 * torch.eye(basis.width))
    return model
