"""Hyena: two gates around a long convolution whose filter is computed by a small network."""

import math

import torch
from torch import Tensor, nn

from mixerscope.mixers.base import InitRule, Mixer, Mover, State, init_linears, init_output, require_at_least, row_at
from mixerscope.mixers.ops.implicit_filter import FEATURES, TimeFeatures
from mixerscope.mixers.ops.long_conv import long_conv, long_conv_last
from mixerscope.mixers.ops.short_conv import ShortConv
from mixerscope.sites import Site

DECAY_TARGET = 0.01
"""What the window of a channel has come down to after the channel's share of the filter length, ..."""
DECAY_SLOW, DECAY_FAST = 1.5, 0.3
"""... which goes from one and a half filter lengths (first channel) to three tenths of one (last channel)."""


class Hyena(Mixer):
    """Hyena of order 2 (Poli et al. 2023): y = W_o (x2 * (h * (x1 * v))), with x1, x2, v behind a short convolution.

    The filter is a network with sine activations over features z_t of the lag t, times exp(-t |delta_c|).

    Points on which the published runs are doubtful, each an option with their value as default:
    `filter_skip` adds D * (x1 * v) to the long convolution's output. Off, the filter is the only way through, and it
    starts near zero, so the mixer begins almost silent. The published code holds a D of `width` numbers that is never
    used when off; here it does not exist.
    `train_time_features` decides whether z is trained (see BaseConv).
    """

    equation = "x1, x2, v = conv(W u + b);  y = W_o (x2 * (h * (x1 * v))) + b_o;  h_c(t) = MLP_sin(z_t)_c exp(-t |d_c|)"
    paper = "Poli et al. 2023, Hyena hierarchy: towards larger convolutional language models"
    movers = (Mover("short convolution", "conv_out"), Mover("long convolution", "long_conv_out"))

    def __init__(
        self,
        width: int,
        *,
        kernel: int = 3,
        filter_order: int = 64,
        filter_length: int = 1024,
        filter_skip: bool = False,
        train_time_features: bool = True,
    ) -> None:
        super().__init__()
        require_at_least(1, "hyena", {"kernel": kernel, "filter_order": filter_order})
        require_at_least(2, "hyena", {"filter_length": filter_length})
        self.in_proj = nn.Linear(width, 3 * width)
        self.conv = ShortConv(3 * width, kernel)
        self.filter = SineFilter(width, filter_order, filter_length, trained=train_time_features)
        self.skip = nn.Parameter(torch.empty(width)) if filter_skip else None
        self.out_proj = nn.Linear(width, width)
        self.conv_in = Site()  # [b, t, 3 d]
        self.conv_out = Site()  # [b, t, 3 d]: x1, x2, v
        self.gate_in = Site()  # [b, t, d]: x1
        self.gate_out = Site()  # [b, t, d]: x2
        self.v = Site()  # [b, t, d]
        self.long_conv_in = Site()  # [b, t, d]: x1 * v
        self.long_conv_out = Site()  # [b, t, d], the skip term included

    def init_weights(self, rng: torch.Generator, rule: InitRule) -> None:
        init_linears(self, rng, rule)
        init_output(self.out_proj, rng, rule)
        self.conv.init_weights(rng)
        self.filter.reset()
        if self.skip is not None:
            nn.init.normal_(self.skip, generator=rng)

    def _gated(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[b, t, d] -> what comes out of the long convolution and what it is multiplied by, [b, t, d] each."""
        x1, x2, v = self.conv_out(self.conv(self.conv_in(self.in_proj(x)))).chunk(3, -1)
        gated = self.long_conv_in(self.gate_in(x1) * self.v(v))
        out = long_conv(gated, self.filter(x.shape[1]))
        if self.skip is not None:
            out = out + self.skip * gated
        return self.long_conv_out(out), self.gate_out(x2)

    def forward(self, x: Tensor) -> Tensor:
        out, gate = self._gated(x)
        return self.out_proj(out * gate)

    def learn_at(self, x: Tensor, at: Tensor) -> Tensor:
        out, gate = (row_at(part, at) for part in self._gated(x))
        return self.out_proj(out * gate)

    def initial_state(self, x: Tensor) -> State:
        """The short convolution's window, and every input of the long one."""
        return self.conv.initial_window(x), x.new_zeros(x.shape[0], 0, x.shape[1])

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        out, window = self.conv.step(self.in_proj(x), state[0])
        x1, x2, v = out.chunk(3, -1)
        history = torch.cat([state[1], (x1 * v)[:, None]], 1)
        out = long_conv_last(history, self.filter(history.shape[1]))
        if self.skip is not None:
            out = out + self.skip * history[:, -1]
        return self.out_proj(out * x2), (window, history)

    def state_size(self, length: int) -> int:
        return self.conv.window_size(length) + length * self.out_proj.out_features


class SineFilter(nn.Module):
    """The long filter: three sine layers over the time features, under a window that decays at each channel's rate."""

    decay: Tensor

    def __init__(self, channels: int, order: int, length: int, *, trained: bool) -> None:
        super().__init__()
        self.time = TimeFeatures(length, trained=trained)
        self.hidden = nn.ModuleList(nn.Linear(size, order) for size in (FEATURES, order, order))
        self.frequency = nn.Parameter(torch.ones(order))  # one, shared by the three layers
        self.out = nn.Linear(order, channels, bias=False)
        slow, fast = (-math.log(DECAY_TARGET) / share for share in (DECAY_SLOW, DECAY_FAST))
        self.register_buffer("decay", torch.linspace(slow, fast, channels))

    def reset(self) -> None:
        self.time.reset()
        nn.init.ones_(self.frequency)

    def forward(self, length: int) -> Tensor:
        """[c, length]: the filter at the lags an input of this length needs."""
        h = self.time(length)
        for layer in self.hidden:
            h = torch.sin(self.frequency * layer(h))
        rows = self.time.features.shape[0]
        t = torch.arange(length, dtype=h.dtype, device=h.device) / (rows - 1)
        return self.out(h).T * torch.exp(-self.decay[:, None] * t)
