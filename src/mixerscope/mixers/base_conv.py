"""BaseConv: a convolution gated by a projection."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mixerscope.mixers.base import InitRule, Mixer, Mover, State, init_linears, require_at_least, row_at
from mixerscope.mixers.ops.implicit_filter import FEATURES, TimeFeatures
from mixerscope.mixers.ops.long_conv import long_conv, long_conv_last
from mixerscope.mixers.ops.short_conv import ShortConv
from mixerscope.sites import Site
from mixerscope.spec.options import Kernel

FILTER_HIDDEN = 16


class BaseConv(Mixer):
    """BaseConv (Arora et al. 2023): y = conv(u) * (W u + b) + u, with a causal depthwise convolution.

    `kernel` is the width of a short convolution, or `long`: conv(u) = h * u + u, where the filter
    h(t) = W_2 ReLU(W_1 z_t + b_1) + b_2 is as long as the input and z_t are features of the lag t.

    Options that only the long kernel reads: `filter_length` is the longest document it can take;
    `train_time_features` decides whether z is trained. The published code declares z frozen, yet its evaluation loop
    turns its gradient on, so the published models trained it: hence the default.
    """

    equation = "y = conv(u) * (W u + b) + u"
    paper = "Arora et al. 2023, Zoology: measuring and improving recall in efficient language models"
    movers = (Mover("short convolution", "conv_out"),)

    def __init__(
        self,
        width: int,
        *,
        kernel: Kernel = 3,
        filter_length: int = 1024,
        train_time_features: bool = True,
    ) -> None:
        super().__init__()
        require_at_least(2, "base_conv", {"filter_length": filter_length})
        self.conv: ShortConv | ImplicitFilter
        if kernel == "long":
            self.conv = ImplicitFilter(width, filter_length, trained=train_time_features)
            self.movers = (Mover("long convolution", "conv_out"),)
        else:
            require_at_least(1, "base_conv", {"kernel": kernel})
            self.conv = ShortConv(width, kernel)
        self.projection = nn.Linear(width, width)
        self.conv_out = Site()  # [b, t, d]
        self.gate = Site()  # [b, t, d]

    def init_weights(self, rng: torch.Generator, rule: InitRule) -> None:
        self.conv.init_weights(rng)
        init_linears(self.projection, rng, rule)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv_out(self.conv(x)) * self.gate(self.projection(x)) + x

    def learn_at(self, x: Tensor, at: Tensor) -> Tensor:
        here = row_at(x, at)
        return row_at(self.conv(x), at) * self.projection(here) + here

    def initial_state(self, x: Tensor) -> State:
        return (self.conv.initial_window(x),)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        out, window = self.conv.step(x, state[0])
        return out * self.projection(x) + x, (window,)

    def state_size(self, length: int) -> int:
        return self.conv.window_size(length)


class ImplicitFilter(nn.Module):
    """conv(u) = h * u + u with h(t) = W_2 ReLU(W_1 z_t + b_1) + b_2."""

    def __init__(self, channels: int, length: int, *, trained: bool) -> None:
        super().__init__()
        self.time = TimeFeatures(length, trained=trained)
        self.hidden = nn.Linear(FEATURES, FILTER_HIDDEN)
        self.out = nn.Linear(FILTER_HIDDEN, channels)

    def init_weights(self, rng: torch.Generator) -> None:
        self.time.reset()
        init_linears(self, rng, InitRule(depth=1))  # a filter starts small whatever the model's rule is

    def kernel(self, length: int) -> Tensor:
        """[c, length]: the filter at the lags an input of this length needs."""
        return self.out(F.relu(self.hidden(self.time(length)))).T

    def forward(self, x: Tensor) -> Tensor:
        return long_conv(x, self.kernel(x.shape[1])) + x

    def initial_window(self, x: Tensor) -> Tensor:
        return x.new_zeros(x.shape[0], 0, self.out.out_features)

    def step(self, x: Tensor, window: Tensor) -> tuple[Tensor, Tensor]:
        """One position; what is carried is every input so far."""
        window = torch.cat([window, x[:, None]], 1)
        return long_conv_last(window, self.kernel(window.shape[1])) + x, window

    def window_size(self, length: int) -> int:
        return length * self.out.out_features
