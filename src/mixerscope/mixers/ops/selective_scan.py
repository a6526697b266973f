"""The selective scan: s_t = exp(dt_t A) * s_{t-1} + dt_t u_t B_t^T,  y_t = s_t C_t.

Signed, transitions are 2 exp(dt_t A) - 1, which reach from -1 to 1.
One operator with a leading stack axis, so that it has one batching rule and one gradient whether it runs for one
model or for a cohort, and two bodies: the plain one here, which is the definition, and a kernel.
Shapes: u, dt [m, b, t, e]; a [m, e, n]; b, c [m, b, t, n]; kept states [t // stride, m, b, e, n].
"""

import torch
from torch import Tensor

from mixerscope.kernels import body, few_documents
from mixerscope.mixers.ops.operator import stacked_operator

STRIDE_ON_GPU = 4
"""As many states as the kernel of the backward pass has room for in registers: with 5 it takes 1.3 times as long, with
3 the forward pass writes more."""


def selective_scan(u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, signed: bool = False) -> Tensor:
    """y [batch, t, e] for u, dt [batch, t, e]; a [e, n]; b, c [batch, t, n], from a zero state."""
    # States are kept for the backward pass only: without gradients there is none.
    return _scan(u[None], dt[None], a[None], b[None], c[None], torch.is_grad_enabled(), signed)[0].squeeze(0)


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


def _forward(u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, keep: bool, signed: bool) -> tuple[Tensor, Tensor]:
    inputs = (u, dt, a, b, c, _stride(u), keep, signed)
    few_u, few_dt, few_b, few_c = few_documents(u, dt, b, c)
    sample = (few_u, few_dt, a, few_b, few_c, _stride(u), keep, signed)
    return body("selective_scan", inputs, plain_scan, sample=sample)(*inputs)


def _backward(
    grad: Tensor, u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, kept: Tensor, signed: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    inputs = (grad, u, dt, a, b, c, kept, _stride(u), signed)
    return body("selective_scan_backward", inputs, plain_scan_backward)(*inputs)


def plain_scan(
    u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, stride: int, keep: bool, signed: bool
) -> tuple[Tensor, Tensor]:
    """y [m, b, t, e] and, if they are to be kept, the states after every `stride` positions."""
    # Position by position, so that one state at a time is in the processor's cache: twice as fast as whole tensors.
    u_, dt_, b_, c_ = (_by_position(tensor) for tensor in (u, dt, b, c))
    x, a_ = dt_ * u_, _wide(a)
    kept = x.new_empty(_kept_shape(u, a, stride, keep))
    state = x  # of the position before; the first has none
    y: list[Tensor] = []
    for t in range(len(x)):
        place = kept[t // stride] if keep and (t + 1) % stride == 0 else None
        written = torch.mul(x[t].unsqueeze(-1), b_[t].unsqueeze(-2), out=place)
        state = written.addcmul_(_decay(dt_[t], a_, signed), state) if t else written
        y.append(torch.matmul(state, c_[t].unsqueeze(-1)).squeeze(-1))
    return torch.stack(y, 2).to(u.dtype), kept


def plain_scan_backward(
    grad: Tensor, u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, kept: Tensor, stride: int, signed: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of u, dt, a, b and c."""
    states = kept if stride == 1 else plain_scan(u, dt, a, b, c, 1, True, signed)[1]
    grad_, u_, dt_, b_, c_ = (_by_position(tensor) for tensor in (grad, u, dt, b, c))
    x, a_ = dt_ * u_, _wide(a)
    length = len(x)
    grad_x, grad_decay, grad_b, grad_c = ([grad] * length for _ in range(4))
    grad_a = torch.zeros_like(a_)
    g = grad_[-1].unsqueeze(-1) * c_[-1].unsqueeze(-2)  # dL/ds_t, [m, b, e, n]
    for t in range(length - 1, -1, -1):
        grad_x[t] = torch.matmul(g, b_[t].unsqueeze(-1)).squeeze(-1)
        grad_b[t] = torch.matmul(x[t].unsqueeze(-2), g).squeeze(-2)
        grad_c[t] = torch.matmul(grad_[t].unsqueeze(-2), states[t]).squeeze(-2)
        if t == 0:
            grad_decay[t] = torch.zeros_like(grad_[t])
            continue
        decay = _decay(dt_[t], a_, signed)
        # dL/d(dt_t A); signed, the exponential is half of one more than the transition, which has twice its slope
        through_decay = g * (decay + 1) * states[t - 1] if signed else g * decay * states[t - 1]
        g = g * decay
        grad_decay[t] = (through_decay * a_[:, None]).sum(-1)
        grad_a += through_decay.mul_(dt_[t].unsqueeze(-1)).sum(1)
        g.addcmul_(grad_[t - 1].unsqueeze(-1), c_[t - 1].unsqueeze(-2))
    through_input = torch.stack(grad_x, 2)
    grad_dt = u * through_input + torch.stack(grad_decay, 2)
    found = (dt * through_input, grad_dt, grad_a, torch.stack(grad_b, 2), torch.stack(grad_c, 2))
    of_u, of_dt, of_a, of_b, of_c = (x.to(like.dtype) for x, like in zip(found, (u, dt, a, b, c), strict=True))
    return of_u, of_dt, of_a, of_b, of_c


def _stride(u: Tensor) -> int:
    """Every how many positions a state is kept for the backward pass.

    A processor reads them all again, which is quicker there than making them once more; on a GPU memory is what is
    slow. It follows from the device alone, because the compiler has to know the shape without running anything.
    """
    return STRIDE_ON_GPU if u.device.type == "cuda" else 1


def _kept_shape(u: Tensor, a: Tensor, stride: int, keep: bool) -> tuple[int, ...]:
    models, documents, length, channels = u.shape
    return length // stride if keep else 0, models, documents, channels, a.shape[-1]


def _wide(tensor: Tensor) -> Tensor:
    """In float32 at least: a state that takes in hundreds of positions is not kept in bfloat16."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _by_position(tensor: Tensor) -> Tensor:
    """[m, b, t, ...] -> [t, m, b, ...], in float32 at least."""
    return _wide(tensor).movedim(2, 0).contiguous()


def _decay(dt: Tensor, a: Tensor, signed: bool) -> Tensor:
    """exp(dt A), or 2 exp(dt A) - 1, for dt [m, b, e] and a [m, e, n]."""
    decay = torch.mul(dt.unsqueeze(-1), a[:, None]).exp_()
    return decay.mul_(2).sub_(1) if signed else decay


def _empty(u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, keep: bool, signed: bool) -> tuple[Tensor, Tensor]:
    kept = _kept_shape(u, a, _stride(u), keep)
    return u.new_empty(u.shape), u.new_empty(kept, dtype=torch.promote_types(u.dtype, torch.float32))


_scan, _scan_backward = stacked_operator(
    "selective_scan", _forward, _backward, _empty, returns=("y", "kept"), stack_at=(0, 1)
)
