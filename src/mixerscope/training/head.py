"""The head and its loss in one: cross-entropy of x times the table, without logits that anyone keeps.

The logits of a large vocabulary are most of what a small model computes, and are wanted for their loss only. One
operator with a leading stack axis, like those of the mixers, with a plain body, which is the definition, and a kernel.
Shapes: x [m, n, d]; table [m, v, d]; targets [m, n]; each row's logarithm of the sum of exponentials, [m, n].
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from mixerscope.kernels import body
from mixerscope.kernels.precision import exact_products, tolerance_of
from mixerscope.mixers.ops.operator import stacked_operator
from mixerscope.tasks import UNSCORED
from mixerscope.training.product import product

Times = Callable[[Tensor, Tensor], Tensor]

WIDEST_EXACT = 64
"""Products of float32 numbers, which no tensor core makes, the kernel computes at 7% of an H200's rate if x is wide; it
has no room to make three of each by tensor cores. There the plain body runs, with products that have a kernel of
their own: it writes out the logits, but of the few positions only that are read."""


def head_loss(x: Tensor, table: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy over the scored targets [n] of the logits x [n, d] times table [v, d]; at least float32."""
    return _head_loss(x[None], table[None], targets[None])[0][0]


def _forward(x: Tensor, table: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    inputs = (x, table, targets, UNSCORED, exact_products())
    faster, plain = _faster(x), plain_head_loss
    plain = plain if faster is None else partial(plain, times=product)
    return body("head_loss", inputs, plain, 0, tolerance_of(x.dtype), faster=faster)(*inputs)


def _backward(grad: Tensor, x: Tensor, table: Tensor, targets: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    inputs = (grad, x, table, targets, total, UNSCORED, exact_products())
    faster, plain = _faster(x), plain_head_loss_backward
    plain = plain if faster is None else partial(plain, times=product)
    return body("head_loss_backward", inputs, plain, 0, tolerance_of(x.dtype), faster=faster)(*inputs)


def _faster(x: Tensor) -> str | None:
    wide = x.shape[-1] > WIDEST_EXACT and x.dtype == torch.float32
    return "wide, and in strict float32" if wide and exact_products() else None


def plain_head_loss(
    x: Tensor, table: Tensor, targets: Tensor, unscored: int, exact: bool, times: Times = torch.matmul
) -> tuple[Tensor, Tensor]:
    """The loss [m], and each row's logarithm of the sum of exponentials. `exact` is for the kernel's products."""
    logits = times(_wide(x), _wide(table).mT)
    total = logits.logsumexp(-1)
    scored = targets != unscored
    picked = logits.gather(-1, targets.where(scored, 0).unsqueeze(-1)).squeeze(-1)
    # Without any scored target it is 0 / 0, as torch has it.
    return (total - picked).where(scored, 0.0).sum(-1) / scored.sum(-1), total


def plain_head_loss_backward(
    grad: Tensor, x: Tensor, table: Tensor, targets: Tensor, total: Tensor, unscored: int, exact: bool,
    times: Times = torch.matmul,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The gradients of x and of the table."""
    of_logits = times(_wide(x), _wide(table).mT).sub_(total.unsqueeze(-1)).exp_()
    scored = targets != unscored
    at_target = targets.where(scored, 0).unsqueeze(-1)
    of_logits.scatter_add_(-1, at_target, torch.full_like(at_target, -1, dtype=of_logits.dtype))
    of_logits *= (grad / scored.sum(-1).clamp(min=1))[:, None].where(scored, 0.0).unsqueeze(-1)
    of_x, of_table = times(of_logits, _wide(table)), times(of_logits.mT, _wide(x))
    return of_x.to(x.dtype), of_table.to(table.dtype)


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _empty(x: Tensor, table: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(x.dtype, torch.float32)
    return x.new_empty(x.shape[0], dtype=wide), x.new_empty(x.shape[:2], dtype=wide)


_head_loss, _head_loss_backward = stacked_operator("head_loss", _forward, _backward, _empty, returns=("loss", "total"))
