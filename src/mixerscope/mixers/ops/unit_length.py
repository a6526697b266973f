"""Vectors scaled to length one."""

import torch
from torch import Tensor

EPSILON = 1e-6


def unit_length(x: Tensor) -> Tensor:
    """x [..., c] divided by its length; the small constant under the root keeps the gradient at zero finite."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + EPSILON)
