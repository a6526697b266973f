"""x + mlp(norm(x)), the second half of a residual block, as one operator for training on a GPU.

As modules it is a dozen short launches and as many passes over the stream; as a kernel it is one launch forward and two
backward, and the hidden units are never written out. It has no sites, so it is for steps that nobody looks into.
Like the operators of mixers it has a leading stack axis, a batching rule, a gradient, and a plain body, its definition.
Shapes: x [m, n, d]; gain, shift and down's bias [m, d]; up [m, h, d] and its bias [m, h]; down [m, d, h].
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mixerscope.kernels import body
from mixerscope.kernels.precision import exact_products, tolerance_of
from mixerscope.mixers.ops.operator import stacked_operator

WIDEST, WIDEST_EXACT = 64, 0
"""Of the streams whose kernel holds all channels of some rows. In strict float32 there is none: without tensor cores
its backward pass takes three times as long (35 models of width 64), which is more than it saves."""


def fits(x: Tensor) -> bool:
    """Whether there is a kernel for this stream [..., d], and it is faster."""
    if not x.is_cuda or x.dtype != torch.float32:
        return False
    return x.shape[-1] <= (WIDEST_EXACT if exact_products() else WIDEST)


def residual_mlp(x: Tensor, norm: nn.LayerNorm, up: nn.Linear, down: nn.Linear) -> Tensor:
    """x + down(gelu(up(norm(x)))) [b, t, d]."""
    weights = (norm.weight, norm.bias, up.weight, up.bias, down.weight, down.bias)
    found = _residual_mlp(x.flatten(0, 1)[None], *(weight[None] for weight in weights), norm.eps)
    return found.squeeze(0).view(x.shape)


def plain_residual_mlp(
    x: Tensor, gain: Tensor, shift: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor,
    epsilon: float, exact: bool,
) -> Tensor:  # fmt: skip
    """`exact` is for the kernel's products; those here are as torch is told."""
    normed = F.layer_norm(x, x.shape[-1:], eps=epsilon)
    n = normed * gain[:, None] + shift[:, None]
    return x + F.gelu(n @ up.mT + up_bias[:, None]) @ down.mT + down_bias[:, None]


def plain_residual_mlp_backward(
    grad: Tensor, x: Tensor, gain: Tensor, shift: Tensor, up: Tensor, up_bias: Tensor, down: Tensor,
    down_bias: Tensor, epsilon: float, exact: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The gradients of x and of the six weights."""
    normed = F.layer_norm(x, x.shape[-1:], eps=epsilon)
    n = normed * gain[:, None] + shift[:, None]
    h = n @ up.mT + up_bias[:, None]
    of_h = torch.ops.aten.gelu_backward(grad @ down, h)
    of_n = of_h @ up
    of_normed = of_n * gain[:, None]
    scale = (x.var(-1, correction=0, keepdim=True) + epsilon).rsqrt()
    along = (of_normed * normed).mean(-1, keepdim=True)
    of_x = grad + scale * (of_normed - of_normed.mean(-1, keepdim=True) - normed * along)
    of_weights = (of_n * normed).sum(1), of_n.sum(1), of_h.mT @ n, of_h.sum(1), grad.mT @ F.gelu(h), grad.sum(1)
    return of_x, *of_weights


def _forward(
    x: Tensor, gain: Tensor, shift: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, epsilon: float
) -> Tensor:
    inputs = (x, gain, shift, up, up_bias, down, down_bias, epsilon, exact_products())
    return body("residual_mlp", inputs, plain_residual_mlp, tolerance=tolerance_of(x.dtype))(*inputs)


def _backward(
    grad: Tensor, x: Tensor, gain: Tensor, shift: Tensor, up: Tensor, up_bias: Tensor, down: Tensor,
    down_bias: Tensor, epsilon: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    inputs = (grad, x, gain, shift, up, up_bias, down, down_bias, epsilon, exact_products())
    found = body("residual_mlp_backward", inputs, plain_residual_mlp_backward, tolerance=tolerance_of(x.dtype))(*inputs)
    of_x, of_gain, of_shift, of_up, of_up_bias, of_down, of_down_bias = (tensor.contiguous() for tensor in found)
    return of_x, of_gain, of_shift, of_up, of_up_bias, of_down, of_down_bias


def _empty(x: Tensor, *weights: Tensor | float) -> Tensor:
    return x.new_empty(x.shape)


_residual_mlp, _residual_mlp_backward = stacked_operator("residual_mlp", _forward, _backward, _empty)
