"""Kernels that need no GPU and no Triton: one that is right, and some that are wrong in a way of their own."""

import torch
from torch import Tensor

runs: list[str] = []


def plain(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.cumsum(-1), torch.zeros_like(x)


def never(x: Tensor) -> tuple[Tensor, Tensor]:
    """For when nothing is to be compared any more."""
    raise AssertionError("never")


def right(x: Tensor) -> tuple[Tensor, Tensor]:
    runs.append("right")
    return x.flip(-1).cumsum(-1).flip(-1).neg() + x + x.sum(-1, keepdim=True), torch.zeros_like(x)


def what_is_left(x: Tensor) -> Tensor:
    return (x + 1e6) - 1e6


def a_little_off(x: Tensor) -> tuple[Tensor, Tensor]:
    return plain(x)[0] * (1 + 1e-4), torch.zeros_like(x)


def not_a_number(x: Tensor) -> tuple[Tensor, Tensor]:
    y = plain(x)[0].clone()
    y.view(-1)[-1] = float("nan")
    return y, torch.zeros_like(x)


def not_zero(x: Tensor) -> tuple[Tensor, Tensor]:
    return plain(x)[0], torch.full_like(x, 1e-4)


def another_type(x: Tensor) -> tuple[Tensor, Tensor]:
    return plain(x)[0].double(), torch.zeros_like(x)


def raising(x: Tensor) -> tuple[Tensor, Tensor]:
    raise RuntimeError("out of registers\nand more lines")
