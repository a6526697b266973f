"""Rotary positions (Su et al. 2021): pairs of coordinates turned by an angle that grows with the position."""

import torch
from torch import Tensor

BASE = 10_000.0


def rotate(x: Tensor, first: int = 0) -> Tensor:
    """[b, t, h, c] -> the same, the positions being first, first + 1, ...; coordinate i is paired with i + c/2."""
    length, half = x.shape[1], x.shape[-1] // 2
    position = torch.arange(first, first + length, dtype=x.dtype, device=x.device)
    frequency = BASE ** (-torch.arange(half, dtype=x.dtype, device=x.device) / half)
    angle = (position[:, None] * frequency)[:, None]  # [t, 1, c/2]
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
