"""Causal convolution by direct sums, with a kernel as long as the input: y_t = sum_{s<=t} kernel[t - s] x_s.

One operator with a leading stack axis, one batching rule and one gradient.
Shapes: x, y [m, b, t, c, r], where the r copies of a channel share its kernel; kernel [m, c, t].
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from mixerscope.kernels import body
from mixerscope.mixers.ops.stacked import fold_stack


def direct_conv(x: Tensor, kernel: Tensor) -> Tensor:
    """y [b, t, c, r] for x [b, t, c, r] and kernel [c, t]."""
    if x.device.type == "cpu":
        # Differentiating the matrix product as it stands keeps x as it was rearranged, and is faster here.
        return torch.einsum("bscr,cst->btcr", x, _triangular(kernel))
    return _conv(x[None], kernel[None])[0]


@torch.library.custom_op("mixerscope::direct_conv", mutates_args=())
def _conv(x: Tensor, kernel: Tensor) -> Tensor:
    return body("direct_conv", (x, kernel), plain_conv)(x, kernel)


@torch.library.custom_op("mixerscope::direct_conv_backward", mutates_args=())
def _conv_backward(grad: Tensor, x: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
    return body("direct_conv_backward", (grad, x, kernel), plain_conv_backward)(grad, x, kernel)


# The kernel is laid out as a triangular matrix, so that the sums are one matrix product a channel. Padding and
# reshaping makes the matrix; an index would be slower, and its reverse a scatter.


def plain_conv(x: Tensor, kernel: Tensor) -> Tensor:
    """y."""
    return torch.einsum("mbscr,mcst->mbtcr", x, _triangular(kernel)).contiguous()


def plain_conv_backward(grad: Tensor, x: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of x and of the kernel."""
    grad_x = torch.einsum("mbtcr,mcst->mbscr", grad, _triangular(kernel)).contiguous()
    return grad_x, _diagonal_sums(torch.einsum("mbscr,mbtcr->mcst", x, grad))


def _triangular(kernel: Tensor) -> Tensor:
    """[..., c, t] -> [..., c, s, t] with entry kernel[t - s], zero where t < s."""
    length = kernel.shape[-1]
    rows = F.pad(kernel, (0, length)).unsqueeze(-2).expand(*kernel.shape, 2 * length)
    flat = rows.flatten(-2)[..., : length * (2 * length - 1)]
    return flat.unflatten(-1, (length, 2 * length - 1))[..., :length]


def _diagonal_sums(matrix: Tensor) -> Tensor:
    """[m, c, s, t] -> [m, c, t]: the sum of entries with t - s = 0, 1, ..., the reverse of `_triangular`."""
    length = matrix.shape[-1]
    flat = F.pad(F.pad(matrix, (0, length - 1)).flatten(-2), (0, length))
    return flat.unflatten(-1, (length, 2 * length))[..., :length].sum(-2)


@_conv.register_fake
def _(x: Tensor, kernel: Tensor) -> Tensor:
    return x.new_empty(x.shape)


@_conv_backward.register_fake
def _(grad: Tensor, x: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), kernel.new_empty(kernel.shape)


def _save(ctx, inputs, output) -> None:  # noqa: ANN001
    ctx.save_for_backward(*inputs)


def _differentiate(ctx, grad):  # noqa: ANN001, ANN202
    return _conv_backward(grad, *ctx.saved_tensors)


_conv.register_autograd(_differentiate, setup_context=_save)


@_conv.register_vmap
def _(info, in_dims, *inputs):  # noqa: ANN001, ANN202
    return _conv(*fold_stack(inputs, in_dims, info.batch_size)).unflatten(0, (info.batch_size, -1)), 0
