"""Operators with a leading stack axis, each declared once: its two passes, and the shapes that they give.

An operator runs for one model, for a cohort under `vmap` and inside a compiled step. For that torch wants a batching
rule, a gradient, and shapes without numbers; all of these follow from the two functions and the names of their
arguments, so they are written here and nowhere else. A pass calls `kernels.body`, which runs a kernel in place of the
plain body where one agrees with it.
"""

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mixerscope.mixers.ops.stacked import fold_stack

NAMESPACE = "mixerscope"
"""Of the operators' names, which all of torch sees."""


def stacked_operator(
    name: str,
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    empty: Callable[..., Any],
    *,
    returns: Sequence[str] = ("y",),
    differentiable: int = 1,
    stack_at: Sequence[int] | None = None,
    empty_backward: Callable[..., Any] | None = None,
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """An operator of tensors [m, ...], m models, and that of its gradient, which few need; under `vmap` over k it runs
    once for all k m.

    `forward` and `backward` say by annotations what is a `Tensor` and what a number. `forward` returns what `returns`
    names; gradients flow through the first `differentiable` of these, the others are kept for the backward pass alone.
    `backward` takes these gradients and then, by name, whichever arguments and results of `forward` it needs; it gives
    the gradients of the first arguments, and the rest have none. Where `forward` has an argument `keep`, a pass without
    it has no gradient. `empty` takes the arguments of `forward` and gives tensors of the right shapes; those of the
    gradients are the shapes of the arguments unless `empty_backward` says otherwise. The stack axis of results is the
    first, or where `stack_at` says. Neither pass may return a view.
    """
    in_torch = re.sub(r"\W", "_", name)
    operator = torch.library.custom_op(f"{NAMESPACE}::{in_torch}", forward, mutates_args=())
    gradient = torch.library.custom_op(f"{NAMESPACE}::{in_torch}_backward", backward, mutates_args=())
    arguments = inspect.signature(forward).parameters
    names = list(arguments)
    wanted = list(inspect.signature(backward).parameters)[differentiable:]
    tensors = [i for i, argument in enumerate(arguments.values()) if argument.annotation is Tensor]
    unknown = set(wanted) - set(names) - set(returns)
    assert not unknown, f"{name}: the backward pass asks for {', '.join(sorted(unknown))}, which nobody gives"

    def like_the_arguments(*given: Any) -> Any:
        known = dict(zip(wanted, given[differentiable:], strict=True))
        found = [known[at] for at in names if isinstance(known.get(at), Tensor) and known[at].is_floating_point()]
        made = [tensor.new_empty(tensor.shape) for tensor in found]
        return tuple(made) if len(made) > 1 else made[0]

    def save(ctx, inputs, output) -> None:  # noqa: ANN001
        given = dict(zip(names, inputs, strict=True))
        assert given.get("keep", True), f"{name}: a pass that kept nothing has no gradient"
        given |= dict(zip(returns, output if isinstance(output, tuple) else (output,), strict=True))
        ctx.save_for_backward(*(given[at] for at in wanted if isinstance(given[at], Tensor)))
        ctx.settings = [None if isinstance(given[at], Tensor) else (given[at],) for at in wanted]
        # Most results are for the backward pass alone: no zeros are made for what has no gradient.
        ctx.set_materialize_grads(len(returns) == 1)

    def differentiate(ctx, *by):  # noqa: ANN001, ANN202
        assert all(each is None for each in by[differentiable:]), f"{name}: what is kept has no gradient"
        held = iter(ctx.saved_tensors)
        given = [next(held) if setting is None else setting[0] for setting in ctx.settings]
        known = dict(zip(wanted, given, strict=True))
        through = zip(returns[:differentiable], by[:differentiable], strict=True)
        grads = [torch.zeros_like(known[at]) if each is None else each for at, each in through]
        found = gradient(*grads, *given)
        found = found if isinstance(found, tuple | list) else (found,)
        return *found, *[None] * (len(names) - len(found))

    def batch(info, in_dims, *inputs):  # noqa: ANN001, ANN202
        size = info.batch_size
        folded = iter(fold_stack([inputs[i] for i in tensors], [in_dims[i] for i in tensors], size))
        found = operator(*(next(folded) if i in tensors else given for i, given in enumerate(inputs)))
        at = tuple(stack_at or [0] * len(returns))
        if len(returns) == 1:
            return found.unflatten(at[0], (size, -1)), at[0]
        return tuple(tensor.unflatten(axis, (size, -1)) for tensor, axis in zip(found, at, strict=True)), at

    operator.register_fake(empty)
    gradient.register_fake(empty_backward or like_the_arguments)
    operator.register_autograd(differentiate, setup_context=save)
    operator.register_vmap(batch)
    return operator, gradient
