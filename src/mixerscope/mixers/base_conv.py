"""BaseConv: a convolution gated by a projection."""

import torch
from torch import Tensor, nn

from mixerscope.errors import UserError
from mixerscope.mixers.base import Mixer, Move, init_linears
from mixerscope.mixers.ops.short_conv import ShortConv
from mixerscope.sites import Site


class BaseConv(Mixer):
    """BaseConv (Arora et al. 2023): y = conv(u) * (W u + b) + u, with a short causal depthwise convolution."""

    equation = "y = conv(u) * (W u + b) + u"
    paper = "Arora et al. 2023, Zoology: measuring and improving recall in efficient language models"
    moves = (Move("short convolution", "conv_out"),)

    def __init__(self, width: int, *, kernel: int = 3) -> None:
        super().__init__()
        if kernel < 1:
            raise UserError(f"base_conv: kernel = {kernel} must be at least 1")
        self.conv = ShortConv(width, kernel)
        self.projection = nn.Linear(width, width)
        self.conv_out = Site()  # [b, t, d]
        self.gate = Site()  # [b, t, d]

    def init_weights(self, rng: torch.Generator, depth: int) -> None:
        self.conv.init_weights(rng)
        init_linears(self, rng)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv_out(self.conv(x)) * self.gate(self.projection(x)) + x

    def state_size(self, length: int) -> int:
        channels, kernel = self.conv.weight.shape
        return min(length, kernel - 1) * channels
