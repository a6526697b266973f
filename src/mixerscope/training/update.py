"""What a step does with its gradients: those of looked-up rows join the table's, and AdamW moves the weights.

Both work in place on K models at once, [k, ...], and have a kernel of their own on a GPU, where each would otherwise
be a dozen launches and passes over memory.
"""

import torch
from torch import Tensor

from mixerscope.kernels import body

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


def add_rows(table: Tensor, tokens: Tensor, rows: Tensor, order: Tensor) -> None:
    """Adds to the table's gradient [k, v, d] that of the rows [k, n, d] that were looked up for tokens [n].

    `order` [n] sorts the tokens, so that all rows of a token can be summed in one place, always in the same order.
    """
    inputs = (table, tokens, rows, order)
    body("add_rows", inputs, _add_rows, changes=1)(*inputs)


def _add_rows(table: Tensor, tokens: Tensor, rows: Tensor, order: Tensor) -> None:
    models = torch.arange(table.shape[0], device=table.device)[:, None]
    # Accumulating by index is repeatable on a GPU, index_add_ is not.
    table.index_put_((models, tokens), rows, accumulate=True)


def adamw(
    weights: Tensor, first: Tensor, second: Tensor, grads: Tensor, rates: Tensor, decays: Tensor, factors: Tensor
) -> None:
    """AdamW with decoupled weight decay on weights and moments [k, n], for gradients [k, n], rates and decays [k].

    `factors` [3]: the schedule, the schedule over the first moment's correction, and one over the second's root.
    """
    inputs = (weights, first, second, grads, rates, decays, factors, BETA1, BETA2, EPSILON)
    body("adamw", inputs, _adamw, changes=3)(*inputs)


def _adamw(
    weights: Tensor,
    first: Tensor,
    second: Tensor,
    grads: Tensor,
    rates: Tensor,
    decays: Tensor,
    factors: Tensor,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> None:
    if weights.dtype == torch.bfloat16:  # one rounding a step, not one an operation
        kept = (weights, first, second)
        w, m, v = wide = tuple(tensor.float() for tensor in kept)
        _adamw(w, m, v, grads.float(), rates, decays, factors, beta1, beta2, epsilon)
        for tensor, value in zip(kept, wide, strict=True):
            tensor.copy_(value)
        return
    schedule, step_factor, second_factor = factors.unbind()
    first.lerp_(grads, 1 - beta1)
    second.mul_(beta2).addcmul_(grads, grads, value=1 - beta2)
    weights.mul_(1 - (rates * schedule * decays)[:, None])
    scale = (second.sqrt() * second_factor).add_(epsilon)
    weights.sub_(first / scale * (rates * step_factor)[:, None])
