"""The selective scan: s_t = exp(dt_t A) * s_{t-1} + dt_t u_t B_t^T,  y_t = s_t C_t.

One operator with a leading stack axis, so that it has one batching rule and one gradient whether it runs for one
model or for a cohort, and so that a faster body can replace this one without touching a mixer.
Shapes: u, dt [m, b, t, e]; a [m, e, n]; b, c [m, b, t, n]; states [t, m, b, e, n].
"""

import torch
from torch import Tensor


def selective_scan(u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """y [batch, t, e] for u, dt [batch, t, e]; a [e, n]; b, c [batch, t, n], from a zero state."""
    return _scan(u[None], dt[None], a[None], b[None], c[None])[0][0]


def selective_scan_at(u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, at: Tensor) -> Tensor:
    """y [batch, e] at one position `at` [batch] of each document; c [batch, n] is what is read there.

    Position j has decayed by exp(A (dt_{j+1} + ... + dt_at)) when it is read, so no state need be built.
    """
    later = torch.arange(u.shape[1], device=u.device) > at[:, None]  # [batch, t]
    dt = dt.masked_fill(later[..., None], 0.0)
    elapsed = dt.sum(1, keepdim=True) - dt.cumsum(1)  # [batch, t, e]
    read = torch.zeros_like(u)
    for n in range(a.shape[1]):  # one [batch, t, e] at a time, so that it stays in the processor's cache
        read.add_(torch.mul(elapsed, a[:, n]).exp_().mul_((b[..., n] * c[:, None, n])[..., None]))
    return (read * dt * u).sum(1)


@torch.library.custom_op("mixerscope::selective_scan", mutates_args=())
def _scan(u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    # Position by position, so that one state at a time is in the processor's cache: twice as fast as whole tensors.
    dt_, x, b_, c_ = (_by_position(tensor) for tensor in (dt, dt * u, b, c))
    states = u.new_empty(u.shape[2], *u.shape[:2], *a.shape[1:])
    y: list[Tensor] = []
    for t in range(u.shape[2]):
        state = torch.mul(x[t].unsqueeze(-1), b_[t].unsqueeze(-2), out=states[t])
        if t:
            state.addcmul_(_decay(dt_[t], a), states[t - 1])
        y.append(torch.matmul(state, c_[t].unsqueeze(-1)).squeeze(-1))
    return torch.stack(y, 2), states


@torch.library.custom_op("mixerscope::selective_scan_backward", mutates_args=())
def _scan_backward(
    grad: Tensor, u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, states: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    grad_, dt_, x, b_, c_ = (_by_position(tensor) for tensor in (grad, dt, dt * u, b, c))
    length = u.shape[2]
    grad_x, grad_decay, grad_b, grad_c = ([grad] * length for _ in range(4))
    grad_a = torch.zeros_like(a)
    g = grad_[-1].unsqueeze(-1) * c_[-1].unsqueeze(-2)  # dL/ds_t, [m, b, e, n]
    for t in range(length - 1, -1, -1):
        grad_x[t] = torch.matmul(g, b_[t].unsqueeze(-1)).squeeze(-1)
        grad_b[t] = torch.matmul(x[t].unsqueeze(-2), g).squeeze(-2)
        grad_c[t] = torch.matmul(grad_[t].unsqueeze(-2), states[t]).squeeze(-2)
        if t == 0:
            grad_decay[t] = torch.zeros_like(grad_[t])
            continue
        g = g * _decay(dt_[t], a)
        through_decay = g * states[t - 1]  # dL/d(dt_t A)
        grad_decay[t] = (through_decay * a[:, None]).sum(-1)
        grad_a += through_decay.mul_(dt_[t].unsqueeze(-1)).sum(1)
        g.addcmul_(grad_[t - 1].unsqueeze(-1), c_[t - 1].unsqueeze(-2))
    through_input = torch.stack(grad_x, 2)
    grad_dt = u * through_input + torch.stack(grad_decay, 2)
    return dt * through_input, grad_dt, grad_a, torch.stack(grad_b, 2), torch.stack(grad_c, 2)


def _by_position(tensor: Tensor) -> Tensor:
    """[m, b, t, ...] -> [t, m, b, ...]."""
    return tensor.movedim(2, 0).contiguous()


def _decay(dt: Tensor, a: Tensor) -> Tensor:
    """exp(dt A) for dt [m, b, e] and a [m, e, n]."""
    return torch.mul(dt.unsqueeze(-1), a[:, None]).exp_()


@_scan.register_fake
def _(u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(u), u.new_empty(u.shape[2], *u.shape[:2], *a.shape[1:])


@_scan_backward.register_fake
def _(
    grad: Tensor, u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, states: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return torch.empty_like(u), torch.empty_like(dt), torch.empty_like(a), torch.empty_like(b), torch.empty_like(c)


def _save(ctx, inputs, output) -> None:  # noqa: ANN001
    ctx.save_for_backward(*inputs, output[1])
    # The states are returned for the backward pass alone.
    ctx.set_materialize_grads(False)


def _differentiate(ctx, grad_y, grad_states):  # noqa: ANN001, ANN202
    assert grad_states is None, "the saved states are not a differentiable output"
    return _scan_backward(grad_y, *ctx.saved_tensors)


_scan.register_autograd(_differentiate, setup_context=_save)


def _stack(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """[k, m, ...] -> [k m, ...]; a tensor that is the same for all k is repeated."""
    tensor = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return tensor.reshape(-1, *tensor.shape[2:])


@_scan.register_vmap
def _(info, in_dims, *inputs):  # noqa: ANN001, ANN202
    size = info.batch_size
    y, states = _scan(*(_stack(x, dim, size) for x, dim in zip(inputs, in_dims, strict=True)))
    return (y.unflatten(0, (size, -1)), states.unflatten(1, (size, -1))), (0, 1)
