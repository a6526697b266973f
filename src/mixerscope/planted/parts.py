"""Mixers that do one thing, for models written by hand; known to specs once `mixerscope.planted` is imported."""

import torch
from torch import Tensor, nn

from mixerscope.mixers import Mixer, Mover
from mixerscope.mixers.attention import Attention
from mixerscope.mixers.ops.short_conv import ShortConv
from mixerscope.registry import register
from mixerscope.sites import Site
from mixerscope.spec import Architecture, LayerSpec

BUCKET = 3
"""Keys that a bucket has."""


@register("mixer", "planted/recall")
class PlantedRecall(Mixer):
    """A short convolution that brings key and value together `lag` steps after the key, and a linear recurrence."""

    movers = (Mover("short convolution", "conv_out"), Mover("recurrence", "recall_out"))

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


@register("mixer", "planted/chosen_recall")
class ChosenRecall(Mixer):
    """The same for chosen directions: who asks, what a key offers, what is read behind it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.asks = nn.Linear(width, width, bias=False)
        self.offers = nn.Linear(width, width, bias=False)
        self.reads = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        offered = self.offers(x)
        offered = torch.cat([torch.zeros_like(offered[:, :1]), offered[:, :-1]], 1)
        past = torch.ones(x.shape[1], x.shape[1], dtype=x.dtype).tril()
        return self.out((torch.einsum("btd,bsd->bts", self.asks(x), offered) * past) @ self.reads(x))

    def state_size(self, length: int) -> int:
        return self.out.in_features**2 + self.out.in_features


@register("mixer", "planted/two_routes")
class TwoRoutes(Mixer):
    """Attention and direct recall side by side."""

    def __init__(self, width: int, *, heads: int = 1) -> None:
        super().__init__()
        self.attention = Attention(width, heads=heads)
        self.recall = ChosenRecall(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x) + self.recall(x)

    def state_size(self, length: int) -> int:
        return self.attention.state_size(length) + self.recall.state_size(length)


@register("mixer", "planted/lag")
class PlantedLag(Mixer):
    """A short convolution that brings the token `lag` back and the one after it to one place."""

    movers = (Mover("short convolution", "conv_out"),)

    def __init__(self, width: int, *, lag: int = 1) -> None:
        super().__init__()
        self.conv = ShortConv(2 * width, lag + 1, bias=False)
        self.out = nn.Linear(2 * width, width, bias=False)
        self.conv_out = Site()  # [b, t, 2d]: the token `lag` back, the one after it

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.conv_out(self.conv(torch.cat([x, x], -1))))

    def state_size(self, length: int) -> int:
        return self.conv.weight.numel()


@register("mixer", "planted/neighbour_recall")
class NeighbourRecall(Mixer):
    """A key that stands behind its pair finds it and the one beside it, the first with the second, the third with the
    fourth, each of the two in directions of its own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.keys = nn.Linear(width, width, bias=False)
        self.values = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(4 * width, width, bias=False)  # key and value of one, of the other

    def forward(self, x: Tensor) -> Tensor:
        groups = (x.shape[1] - 1) // 4  # behind BOS
        asked = self.keys(x)
        two = x[:, 1 : 1 + 4 * groups].unflatten(1, (groups, 2, 2))
        key, value = self.keys(two[..., 0, :]), self.values(two[..., 1, :])
        ended = torch.arange(x.shape[1])[:, None] > 4 + 4 * torch.arange(groups)
        found = torch.einsum("btd,bgpd->btg", asked, key) * ended
        return self.out(found @ torch.stack([key, value], -2).flatten(2))

    def state_size(self, length: int) -> int:
        return length * self.keys.in_features


@register("mixer", "planted/bucket_recall")
class BucketRecall(Mixer):
    """A key finds what follows on all keys of its bucket, each with the number of that key in the bucket."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bucket = nn.Linear(width, width, bias=False)
        self.number = nn.Linear(width, BUCKET, bias=False)
        self.values = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(BUCKET * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)
        past = torch.ones(x.shape[1], x.shape[1], dtype=x.dtype).tril()
        found = torch.einsum("btd,bsd->bts", self.bucket(x), self.bucket(before)) * past
        numbered = torch.einsum("bsn,bsd->bsnd", self.number(before), self.values(x))
        return self.out(found @ numbered.flatten(2))

    def state_size(self, length: int) -> int:
        return BUCKET * self.out.out_features**2 + self.out.out_features


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
    """Bare blocks: no norm, one named mixer per layer, an MLP where they are asked for."""

    mixers: tuple[str, ...]
    """Of the layers, in order."""
    heads: int = 1
    """Of those mixers that have heads."""
    lag: int = 1
    """How many positions back a planted mixer looks."""
    short_conv: int = 0
    """Kernel of a convolution in front of each mixer; 0 for none."""
    mlp: bool = False
    """Whether an MLP follows each mixer."""

    def layer(self, index: int) -> LayerSpec:
        name = self.mixers[index]
        heads = {"heads": self.heads}
        options = {"attention": heads, "planted/two_routes": heads, "planted/lag": {"lag": self.lag}}.get(name, {})
        return LayerSpec(mixer=name, mlp=self.mlp, norm="none", options=options, short_conv=self.short_conv)
