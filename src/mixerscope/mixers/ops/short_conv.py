"""Causal depthwise convolution with a short kernel."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mixerscope.mixers.ops.direct_conv import OPERATOR_LENGTH, direct_conv


def causal_depthwise_conv(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """y[t, c] = sum_j weight[c, j] x[t - k + 1 + j, c] + bias[c], zeros before the start.

    On a CPU written as k shifted products: as fast as a convolution kernel at these widths, and it stacks under vmap
    without turning into a grouped convolution.
    """
    kernel = weight.shape[1]
    length = x.shape[1]
    if x.device.type != "cpu" and length <= OPERATOR_LENGTH:
        out = direct_conv(x.unsqueeze(-1), weight.flip(1)[:, :length]).squeeze(-1)
        return out if bias is None else out + bias
    padded = F.pad(x, (0, 0, kernel - 1, 0))  # [b, t + k - 1, c]
    out = padded[:, kernel - 1 :] * weight[:, kernel - 1]
    for j in range(kernel - 1):
        out = out + padded[:, j : j + length] * weight[:, j]
    return out if bias is None else out + bias


class ShortConv(nn.Module):
    """A causal depthwise convolution of width `kernel` over `channels` channels."""

    def __init__(self, channels: int, kernel: int, *, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, kernel))
        self.bias = nn.Parameter(torch.empty(channels)) if bias else None

    def init_weights(self, rng: torch.Generator) -> None:
        """Uniform in +-1/sqrt(kernel), weights and bias, as PyTorch does for a depthwise Conv1d."""
        bound = self.weight.shape[1] ** -0.5
        nn.init.uniform_(self.weight, -bound, bound, generator=rng)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound, generator=rng)

    def forward(self, x: Tensor) -> Tensor:
        return causal_depthwise_conv(x, self.weight, self.bias)

    def initial_window(self, x: Tensor) -> Tensor:
        """What `step` carries before the first position, for documents like x [b, ...]."""
        return x.new_zeros(x.shape[0], 0, self.weight.shape[0])

    def step(self, x: Tensor, window: Tensor) -> tuple[Tensor, Tensor]:
        """One position: x [b, c] and the up to k - 1 inputs before it to y [b, c] and the inputs the next one needs."""
        window = torch.cat([window, x[:, None]], 1)
        kept = window[:, 1:] if window.shape[1] == self.weight.shape[1] else window
        return self(window)[:, -1], kept

    def window_size(self, length: int) -> int:
        """Numbers per document in the window after `length` positions."""
        channels, kernel = self.weight.shape
        return min(length, kernel - 1) * channels
