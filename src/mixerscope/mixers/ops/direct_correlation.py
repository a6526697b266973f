"""The first lags of a correlation by direct sums: k[i] = sum_n b[n] c[n + i].

One operator with a leading stack axis, one batching rule and one gradient.
Shapes: b, c [m, d, n]; k [m, d, t].
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from mixerscope.kernels import body
from mixerscope.mixers.ops.stacked import fold_stack


def direct_correlation(b: Tensor, c: Tensor, length: int) -> Tensor:
    """k [d, length] for b, c [d, n]."""
    # On a CPU the plain body is differentiated as it stands: that keeps the blocks, and is faster.
    return (plain_correlation if b.device.type == "cpu" else _correlation)(b[None], c[None], length).squeeze(0)


@torch.library.custom_op("mixerscope::direct_correlation", mutates_args=())
def _correlation(b: Tensor, c: Tensor, length: int) -> Tensor:
    return body("direct_correlation", (b, c, length), plain_correlation)(b, c, length)


@torch.library.custom_op("mixerscope::direct_correlation_backward", mutates_args=())
def _correlation_backward(grad: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
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


@_correlation.register_fake
def _(b: Tensor, c: Tensor, length: int) -> Tensor:
    return b.new_empty(*b.shape[:2], length)


@_correlation_backward.register_fake
def _(grad: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    return b.new_empty(b.shape), c.new_empty(c.shape)


def _save(ctx, inputs, output) -> None:  # noqa: ANN001
    ctx.save_for_backward(*inputs[:2])


def _differentiate(ctx, grad):  # noqa: ANN001, ANN202
    return *_correlation_backward(grad, *ctx.saved_tensors), None


_correlation.register_autograd(_differentiate, setup_context=_save)


@_correlation.register_vmap
def _(info, in_dims, b, c, length):  # noqa: ANN001, ANN202
    b, c = fold_stack((b, c), in_dims[:2], info.batch_size)
    return _correlation(b, c, length).unflatten(0, (info.batch_size, -1)), 0
