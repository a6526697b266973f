"""The first lags of a correlation by direct sums: k[i] = sum_n b[n] c[n + i].

One operator with a leading stack axis, one batching rule and one gradient.
Shapes: b, c [m, d, n]; k [m, d, t].
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from mixerscope.kernels import body
from mixerscope.mixers.ops.operator import stacked_operator


def direct_correlation(b: Tensor, c: Tensor, length: int) -> Tensor:
    """k [d, length] for b, c [d, n]."""
    # On a CPU the plain body is differentiated as it stands: that keeps the blocks, and is faster.
    return (plain_correlation if b.device.type == "cpu" else _correlation)(b[None], c[None], length).squeeze(0)


def _forward(b: Tensor, c: Tensor, length: int) -> Tensor:
    return body("direct_correlation", (b, c, length), plain_correlation)(b, c, length)


def _backward(grad: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    return body("direct_correlation_backward", (grad, b, c), plain_correlation_backward)(grad, b, c)


# In blocks of t taps: sums[r, s] = sum over blocks p of b[p, r] c[p, s], where c's blocks reach over the next one too;
# lag i is the sum of the diagonal s = r + i.


def plain_correlation(b: Tensor, c: Tensor, length: int) -> Tensor:
    """k [m, d, length]."""
    sums = _blocks(b, length).mT @ _double_blocks(c, length)  # [m, d, t, 2 t]
    skewed = F.pad(sums.flatten(-2), (0, length)).unflatten(-1, (length, 2 * length + 1))
    return skewed[..., :length].sum(-2)


def plain_correlation_backward(grad: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of b and c."""
    length, taps = grad.shape[-1], b.shape[-1]
    rows = F.pad(grad, (0, length + 1)).unsqueeze(-2).expand(*grad.shape, 2 * length + 1)
    by_sums = rows.flatten(-2)[..., : 2 * length * length].unflatten(-1, (length, 2 * length))
    grad_b = _double_blocks(c, length) @ by_sums.mT
    first, second = (_blocks(b, length) @ by_sums).split(length, -1)
    grad_c = first.contiguous()
    grad_c[..., 1:, :] += second[..., :-1, :]
    return grad_b.flatten(-2)[..., :taps].contiguous(), grad_c.flatten(-2)[..., :taps].contiguous()


def _blocks(b: Tensor, length: int) -> Tensor:
    """[m, d, n] -> [m, d, p, t], zeros at the end."""
    return F.pad(b, (0, -b.shape[-1] % length)).unflatten(-1, (-1, length))


def _double_blocks(c: Tensor, length: int) -> Tensor:
    """[m, d, n] -> [m, d, p, 2 t]: each block and the one after it."""
    single = F.pad(c, (0, -c.shape[-1] % length + length)).unflatten(-1, (-1, length))
    return torch.cat([single[..., :-1, :], single[..., 1:, :]], -1)


def _empty(b: Tensor, c: Tensor, length: int) -> Tensor:
    return b.new_empty(*b.shape[:2], length)


_correlation, _correlation_backward = stacked_operator("direct_correlation", _forward, _backward, _empty)
