"""x + attention(norm(x)), the first half of a residual block, as one operator for training on a GPU.

As modules it is two dozen short launches; as a kernel it is one forward and three backward. It has no sites, so it is
for steps that nobody looks into. Like the other operators it has a leading stack axis, a batching rule, a gradient, and
a plain body, its definition.
Shapes: x [m, b, t, d]; gain, shift and the bias out [m, d]; qkv [m, 3 d, d]; out [m, d, d]; and kept for the backward
pass [m, b, t, 4, d]: queries, keys, values and what the heads give.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mixerscope.kernels import body
from mixerscope.kernels.precision import exact_products, tolerance_of
from mixerscope.mixers.ops.operator import stacked_operator
from mixerscope.mixers.ops.softmax_attention import attention_weights

LONGEST = 64
"""Of the documents whose kernel holds all positions at once."""


def residual_attention(
    x: Tensor, norm: nn.LayerNorm, qkv: nn.Linear, out: nn.Linear, heads: int, alibi: bool
) -> Tensor:
    """x [b, t, d] and what causal attention makes of norm(x)."""
    weights = (norm.weight, norm.bias, qkv.weight, out.weight, out.bias)
    found = _residual_attention(x[None], *(weight[None] for weight in weights), heads, alibi, norm.eps)
    return found[0].squeeze(0)


def alibi_slopes(heads: int, like: Tensor) -> Tensor:
    """[h]"""
    rank = torch.arange(1, heads + 1, dtype=like.dtype, device=like.device)
    return 2 ** (-8 * rank / heads)


def plain_residual_attention(
    x: Tensor, gain: Tensor, shift: Tensor, qkv: Tensor, out: Tensor, out_bias: Tensor,
    heads: int, alibi: bool, epsilon: float, exact: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The stream and what is kept. `exact` is for the kernel's products; those here are as torch is told."""
    n = F.layer_norm(x, x.shape[-1:], eps=epsilon) * gain[:, None, None] + shift[:, None, None]
    q, k, v = (n @ qkv.mT[:, None]).unflatten(-1, (3, heads, -1)).flatten(0, 1).unbind(2)  # [m b, t, h, c]
    pattern = attention_weights(q, k, slopes=alibi_slopes(heads, x) if alibi else None)
    mixed = torch.einsum("bths,bshc->bthc", pattern, v)
    kept = torch.stack((q, k, v, mixed), 2).flatten(3).view(*x.shape[:3], 4, x.shape[3])
    return x + kept[..., 3, :] @ out.mT[:, None] + out_bias[:, None, None], kept


def plain_residual_attention_backward(
    grad: Tensor, x: Tensor, gain: Tensor, shift: Tensor, qkv: Tensor, out: Tensor, out_bias: Tensor, kept: Tensor,
    heads: int, alibi: bool, epsilon: float, exact: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The gradients of x and of the five weights."""
    q, k, v, _ = kept.flatten(0, 1).unflatten(-1, (heads, -1)).unbind(2)  # [m b, t, h, c]
    pattern = attention_weights(q, k, slopes=alibi_slopes(heads, x) if alibi else None)
    of_mixed = (grad @ out[:, None]).flatten(0, 1).unflatten(-1, (heads, -1))
    of_v = torch.einsum("bths,bthc->bshc", pattern, of_mixed)
    of_pattern = torch.einsum("bthc,bshc->bths", of_mixed, v)
    of_scores = pattern * (of_pattern - (pattern * of_pattern).sum(-1, keepdim=True)) * q.shape[-1] ** -0.5
    of_q, of_k = torch.einsum("bths,bshc->bthc", of_scores, k), torch.einsum("bths,bthc->bshc", of_scores, q)
    of_qkv = torch.stack((of_q, of_k, of_v), 2).flatten(2).view(*x.shape[:3], -1)
    normed = F.layer_norm(x, x.shape[-1:], eps=epsilon)
    n = normed * gain[:, None, None] + shift[:, None, None]
    of_n = of_qkv @ qkv[:, None]
    of_normed = of_n * gain[:, None, None]
    scale = (x.var(-1, correction=0, keepdim=True) + epsilon).rsqrt()
    along = (of_normed * normed).mean(-1, keepdim=True)
    of_x = grad + scale * (of_normed - of_normed.mean(-1, keepdim=True) - normed * along)
    by_row = [tensor.flatten(1, 2) for tensor in (of_qkv, n, grad, kept[..., 3, :])]
    of_weights = by_row[0].mT @ by_row[1], by_row[2].mT @ by_row[3], grad.sum((1, 2))
    return of_x, (of_n * normed).sum((1, 2)), of_n.sum((1, 2)), *of_weights


def _forward(
    x: Tensor, gain: Tensor, shift: Tensor, qkv: Tensor, out: Tensor, out_bias: Tensor, heads: int, alibi: bool,
    epsilon: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    inputs = (x, gain, shift, qkv, out, out_bias, heads, alibi, epsilon, exact_products())
    y, kept = body("residual_attention", inputs, plain_residual_attention, tolerance=tolerance_of(x.dtype))(*inputs)
    return y.contiguous(), kept.contiguous()


def _backward(
    grad: Tensor, x: Tensor, gain: Tensor, shift: Tensor, qkv: Tensor, out: Tensor, out_bias: Tensor, kept: Tensor,
    heads: int, alibi: bool, epsilon: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    inputs = (grad, x, gain, shift, qkv, out, out_bias, kept, heads, alibi, epsilon, exact_products())
    plain = plain_residual_attention_backward
    found = body("residual_attention_backward", inputs, plain, tolerance=tolerance_of(x.dtype))(*inputs)
    of_x, of_gain, of_shift, of_qkv, of_out, of_out_bias = (tensor.contiguous() for tensor in found)
    return of_x, of_gain, of_shift, of_qkv, of_out, of_out_bias


def _empty(x: Tensor, *others: Tensor | float) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(*x.shape[:3], 4, x.shape[3])


_residual_attention, _residual_attention_backward = stacked_operator(
    "residual_attention", _forward, _backward, _empty, returns=("y", "kept")
)
