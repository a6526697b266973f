"""Where a step begins and what it does with its gradients: rows are looked up in the table, the gradients of these join
the table's, and AdamW moves the weights.

All work on K models at once, [k, ...], the latter two in place, and have a kernel of their own on a GPU, where an
update would otherwise be a dozen launches and passes over memory.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from mixerscope.kernels import body

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
LARGE = 2**20
"""Numbers in a gradient of all models, from which on plain operations take it by itself: laying it in a row with others
would take longer."""


def look_up(table: Tensor, tokens: Tensor) -> Tensor:
    """The rows [k, b, t, d] of a table [k, v, d] for tokens [b, t]."""
    return body("look_up", (table, tokens), _look_up)(table, tokens)


def _look_up(table: Tensor, tokens: Tensor) -> Tensor:
    return table[:, tokens]


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
    weights: Tensor,
    first: Tensor,
    second: Tensor,
    grads: Sequence[Tensor],
    rates: Tensor,
    decays: Tensor,
    factors: Tensor,
) -> None:
    """AdamW with decoupled weight decay on weights and moments [k, n], rates and decays [k].

    Gradients [k, ...], wherever they lie, are those of the columns one after the other; columns after the last hold
    zeros and stay so. `factors` [3]: the schedule, the schedule over the first moment's correction, and one over the
    second's root.
    """
    inputs = (weights, first, second, rates, decays, factors, BETA1, BETA2, EPSILON, *grads)
    body("adamw", inputs, _adamw, changes=3)(*inputs)


def _adamw(
    weights: Tensor,
    first: Tensor,
    second: Tensor,
    rates: Tensor,
    decays: Tensor,
    factors: Tensor,
    beta1: float,
    beta2: float,
    epsilon: float,
    *grads: Tensor,
) -> None:
    start = 0
    for grad in _in_rows(grads, weights.shape[1]):
        columns = slice(start, start + grad.shape[1])
        w, m, v = kept = [tensor[:, columns] for tensor in (weights, first, second)]
        if weights.dtype == torch.bfloat16:  # one rounding a step, not one an operation
            w, m, v = (tensor.float() for tensor in kept)
        _move(w, m, v, grad.to(w.dtype), rates, decays, factors, beta1, beta2, epsilon)
        for tensor, value in zip(kept, (w, m, v), strict=True):
            if value is not tensor:
                tensor.copy_(value)
        start = columns.stop


def _in_rows(grads: Sequence[Tensor], width: int) -> Iterator[Tensor]:
    """Gradients [k, n] whose numbers of columns add up to `width`: large ones as they are, all others in one row."""
    flat = [grad.flatten(1) for grad in grads]
    large = 1
    while large < len(flat) and flat[large].numel() >= LARGE:
        large += 1
    yield from flat[:large]
    missing = width - sum(grad.shape[1] for grad in flat)
    if flat[large:] or missing:
        yield torch.cat([*flat[large:], flat[0].new_zeros(len(flat[0]), missing)], 1)


def _move(
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
    schedule, step_factor, second_factor = factors.unbind()
    first.lerp_(grads, 1 - beta1)
    second.mul_(beta2).addcmul_(grads, grads, value=1 - beta2)
    weights.mul_(1 - (rates * schedule * decays)[:, None])
    scale = (second.sqrt() * second_factor).add_(epsilon)
    weights.sub_(first / scale * (rates * step_factor)[:, None])
