"""The selective scan: s_t = exp(dt_t A) * s_{t-1} + dt_t u_t B_t^T,  y_t = s_t C_t.

One operator with a leading stack axis, so that it has one batching rule and one gradient whether it runs for one
model or for a cohort, and so that a faster body can replace this one without touching a mixer.
Shapes: u, dt [m, b, t, e]; a [m, e, n]; b, c [m, b, t, n]; states [m, b, t, e, n].
"""

import torch
from torch import Tensor


def selective_scan(u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """y [batch, t, e] for u, dt [batch, t, e]; a [e, n]; b, c [batch, t, n], from a zero state."""
    return _scan(u[None], dt[None], a[None], b[None], c[None])[0][0]


@torch.library.custom_op("mixerscope::selective_scan", mutates_args=())
def _scan(u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    decay = torch.exp(dt.unsqueeze(-1) * a[:, None, None])  # [m, b, t, e, n]
    states = (dt * u).unsqueeze(-1) * b.unsqueeze(-2)
    for t in range(1, u.shape[2]):
        states[:, :, t].addcmul_(decay[:, :, t], states[:, :, t - 1])
    y = torch.matmul(states, c.unsqueeze(-1)).squeeze(-1)
    return y, states


@torch.library.custom_op("mixerscope::selective_scan_backward", mutates_args=())
def _scan_backward(
    grad: Tensor, u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, states: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    decay = torch.exp(dt.unsqueeze(-1) * a[:, None, None])
    g = grad.unsqueeze(-1) * c.unsqueeze(-2)  # [m, b, t, e, n], becomes dL/ds_t
    for t in range(u.shape[2] - 2, -1, -1):
        g[:, :, t].addcmul_(decay[:, :, t + 1], g[:, :, t + 1])
    through_input = torch.matmul(g, b.unsqueeze(-1)).squeeze(-1)  # sum_n g B
    grad_b = torch.matmul((dt * u).unsqueeze(-2), g).squeeze(-2)
    grad_c = torch.matmul(grad.unsqueeze(-2), states).squeeze(-2)
    # dL/d(dt A): the state before t, times the decay into t.
    g = g[:, :, 1:] * decay[:, :, 1:] * states[:, :, :-1]
    grad_a = torch.einsum("mbten,mbte->men", g, dt[:, :, 1:])
    through_decay = torch.nn.functional.pad(torch.einsum("mbten,men->mbte", g, a), (0, 0, 1, 0))
    return dt * through_input, u * through_input + through_decay, grad_a, grad_b, grad_c


@_scan.register_fake
def _(u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(u), u.new_empty(*u.shape, a.shape[-1])


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
    outputs = _scan(*(_stack(x, dim, size) for x, dim in zip(inputs, in_dims, strict=True)))
    return tuple(x.reshape(size, -1, *x.shape[1:]) for x in outputs), (0, 0)
