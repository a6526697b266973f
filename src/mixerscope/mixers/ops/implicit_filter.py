"""Time features of implicit filters: what the small network that makes a long filter reads at each lag."""

import math

import torch
from torch import Tensor, nn

from mixerscope.errors import UserError

FREQUENCY = 1e-4
"""Of the one band; that low, cosine and sine hardly move over the filter's length, as published."""
FEATURES = 3


def time_features(length: int) -> Tensor:
    """[length, 3]: t / (length - 1), cos(f w), -sin(f w) with w = 2 pi t / length."""
    t = torch.arange(length, dtype=torch.float64)
    w = FREQUENCY * 2 * math.pi * t / length
    return torch.stack([t / (length - 1), w.cos(), -w.sin()], 1).to(torch.float32)


class TimeFeatures(nn.Module):
    """The features of lags 0 .. `length` - 1: parameters if `trained`, a buffer otherwise."""

    features: Tensor

    def __init__(self, length: int, *, trained: bool) -> None:
        super().__init__()
        if trained:
            self.features = nn.Parameter(time_features(length))
        else:
            self.register_buffer("features", time_features(length))

    def reset(self) -> None:
        """Back to the values before training."""
        with torch.no_grad():
            self.features.copy_(time_features(self.features.shape[0]))

    def forward(self, length: int) -> Tensor:
        """[length, 3]: the features of the lags that an input of this length needs."""
        rows = self.features.shape[0]
        if length > rows:
            raise UserError(f"a document of {length} tokens is longer than the implicit filter, filter_length = {rows}")
        return self.features[:length]
