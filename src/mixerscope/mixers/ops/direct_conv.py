"""Causal convolution by direct sums: y_t = sum_l kernel[l] x_{t-l}, with up to as many lags l as there are positions.

One operator with a leading stack axis, one batching rule and one gradient.
Shapes: x, y [m, b, t, c, r], where the r copies of a channel share its kernel; kernel [m, c, l].
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from mixerscope.kernels import body, few_documents
from mixerscope.mixers.ops.operator import stacked_operator

FEW_LAGS = 8
OPERATOR_LENGTH = 256
"""The longest input that is worth direct sums: their number grows with its square."""


def direct_conv(x: Tensor, kernel: Tensor) -> Tensor:
    """y [b, t, c, r] for x [b, t, c, r] and kernel [c, l]."""
    if x.device.type == "cpu":
        # Differentiating the matrix product as it stands keeps x as it was rearranged, and is faster here.
        return torch.einsum("bscr,cst->btcr", x, _triangular(kernel, x.shape[1]))
    return _conv(x[None], kernel[None]).squeeze(0)


def _forward(x: Tensor, kernel: Tensor) -> Tensor:
    return body("direct_conv", (x, kernel), plain_conv, sample=(*few_documents(x), kernel))(x, kernel)


def _backward(grad: Tensor, x: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
    return body("direct_conv_backward", (grad, x, kernel), plain_conv_backward)(grad, x, kernel)


# A few lags are shifted products. Many are laid out as a triangular matrix, so that the sums are one matrix product a
# channel; padding and reshaping makes the matrix: an index would be slower, and its reverse a scatter.


def plain_conv(x: Tensor, kernel: Tensor) -> Tensor:
    """y."""
    if kernel.shape[-1] <= FEW_LAGS:
        y = torch.zeros_like(x, memory_format=torch.contiguous_format)
        for lag, tap in enumerate(_taps(kernel)):
            y[:, :, lag:] += tap * x[:, :, : x.shape[2] - lag]
        return y
    return torch.einsum("mbscr,mcst->mbtcr", x, _triangular(kernel, x.shape[2])).contiguous()


def plain_conv_backward(grad: Tensor, x: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of x and of the kernel."""
    if kernel.shape[-1] <= FEW_LAGS:
        grad_x = torch.zeros_like(x, memory_format=torch.contiguous_format)
        grad_taps: list[Tensor] = []
        for lag, tap in enumerate(_taps(kernel)):
            later = grad[:, :, lag:]
            grad_x[:, :, : later.shape[2]] += tap * later
            grad_taps.append((x[:, :, : later.shape[2]] * later).sum((1, 2, 4)))
        return grad_x, torch.stack(grad_taps, -1)
    grad_x = torch.einsum("mbtcr,mcst->mbscr", grad, _triangular(kernel, x.shape[2])).contiguous()
    sums = _diagonal_sums(torch.einsum("mbscr,mbtcr->mcst", x, grad))
    return grad_x, sums[..., : kernel.shape[-1]].contiguous()


def _taps(kernel: Tensor) -> list[Tensor]:
    """Each lag's [m, 1, 1, c, 1]."""
    return [tap[:, None, None, :, None] for tap in kernel.unbind(-1)]


def _triangular(kernel: Tensor, length: int) -> Tensor:
    """[..., c, l] -> [..., c, s, t] with entry kernel[t - s], zero where there is no such lag."""
    rows = F.pad(kernel, (0, 2 * length - kernel.shape[-1])).unsqueeze(-2).expand(*kernel.shape[:-1], length, -1)
    flat = rows.flatten(-2)[..., : length * (2 * length - 1)]
    return flat.unflatten(-1, (length, 2 * length - 1))[..., :length]


def _diagonal_sums(matrix: Tensor) -> Tensor:
    """[m, c, s, t] -> [m, c, t]: the sum of entries with t - s = 0, 1, ..., the reverse of `_triangular`."""
    length = matrix.shape[-1]
    flat = F.pad(F.pad(matrix, (0, length - 1)).flatten(-2), (0, length))
    return flat.unflatten(-1, (length, 2 * length))[..., :length].sum(-2)


def _empty(x: Tensor, kernel: Tensor) -> Tensor:
    return x.new_empty(x.shape)


_conv, _conv_backward = stacked_operator("direct_conv", _forward, _backward, _empty)
