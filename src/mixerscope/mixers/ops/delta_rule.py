"""The delta rule: a memory matrix that replaces what it held at a key instead of adding to it.

S_t = S_{t-1} + beta_t k_t (v_t - S_{t-1}^T k_t)^T,  o_t = S_t^T q_t.

What is written at t, u_t = beta_t (v_t - sum_{j<t} (k_j . k_t) u_j), is a triangular system in u; solving it gives all
positions at once, and o_t = sum_{j<=t} (q_t . k_j) u_j.

On a GPU this is one operator with a leading stack axis, a batching rule and a gradient of its own: a batch of small
triangular systems is slow there as a library call, and at the reduced precision of matrix products it loses digits.
Shapes: q, k [m, b, t, h, c]; v, u, o [m, b, t, h, e]; beta [m, b, t, h]; and for the backward pass [m, b, h, 3, t, t]:
q_i . k_j for j <= i, k_i . k_j for j < i, and the inverse of the system.
"""

import torch
from torch import Tensor

from mixerscope.kernels import body, few_documents
from mixerscope.mixers.ops.operator import stacked_operator

OPERATOR_LENGTH = 64
"""The longest input whose t x t matrices a kernel can hold."""


def delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """o [b, t, h, e] for q, k [b, t, h, c], v [b, t, h, e] and beta [b, t, h], from an empty memory."""
    if q.device.type == "cpu" or q.shape[1] > OPERATOR_LENGTH:
        # Differentiating the solution as it stands keeps the t x t matrices, and is faster on a CPU.
        return plain_delta_rule(q, k, v, beta)
    return _delta_rule(q[None], k[None], v[None], beta[None])[0].squeeze(0)


def delta_step(memory: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """One position: memory [b, h, c, e], q, k [b, h, c], v [b, h, e], beta [b, h] to o [b, h, e] and the new memory."""
    held = torch.einsum("bhce,bhc->bhe", memory, k)
    memory = memory + torch.einsum("bhc,bhe->bhce", k, beta[..., None] * (v - held))
    return torch.einsum("bhce,bhc->bhe", memory, q), memory


def plain_delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """o; half precision is computed in float32."""
    q_, k_, v_, beta_ = _by_head(q, k, v, beta)
    # The diagonal is not read: `unitriangular` takes it as ones.
    overlap = (beta_ * (k_ @ k_.mT)).tril(-1)
    written = torch.linalg.solve_triangular(overlap, beta_ * v_, upper=False, unitriangular=True)
    return ((q_ @ k_.mT).tril() @ written).transpose(-2, -3).to(q.dtype)


def plain_delta_rule_kept(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """o, u and the matrices, the latter two in float32 at least."""
    q_, k_, v_, beta_ = _by_head(q, k, v, beta)
    scores, similar = (q_ @ k_.mT).tril(), (k_ @ k_.mT).tril(-1)
    overlap = beta_ * similar
    one = torch.eye(q_.shape[-2], dtype=q_.dtype, device=q_.device).expand_as(overlap)
    # Solved for, not multiplied with: products may have a reduced precision here.
    written = torch.linalg.solve_triangular(overlap, beta_ * v_, upper=False, unitriangular=True)
    inverse = torch.linalg.solve_triangular(overlap, one, upper=False, unitriangular=True)
    out = (scores @ written).transpose(-2, -3).to(q.dtype)
    return out, written.transpose(-2, -3), torch.stack((scores, similar, inverse), -3)


def plain_delta_rule_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, written: Tensor, matrices: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of q, k, v and beta."""
    q_, k_, v_, beta_ = _by_head(q, k, v, beta)
    grad_, u = grad.to(written.dtype).transpose(-2, -3), written.transpose(-2, -3)
    scores, similar, _ = matrices.unbind(-3)
    overlap = beta_ * similar
    by_right = torch.linalg.solve_triangular(overlap.mT, scores.mT @ grad_, upper=True, unitriangular=True)
    by_overlap = -(by_right @ u.mT).tril(-1)
    by_scores = (grad_ @ u.mT).tril()
    by_similar = beta_ * by_overlap
    grad_k = (by_similar + by_similar.mT) @ k_ + by_scores.mT @ q_
    grad_beta = (v_ * by_right).sum(-1) + (similar * by_overlap).sum(-1)
    by_position = [x.transpose(-2, -3).to(q.dtype) for x in (by_scores @ k_, grad_k, beta_ * by_right)]
    return by_position[0], by_position[1], by_position[2], grad_beta.mT.to(q.dtype)


def _by_head(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """[..., t, h, c] -> [..., h, t, c]; beta gets a last axis of size 1. Solving needs float32 at least."""
    kind = torch.promote_types(q.dtype, torch.float32)
    q, k, v, beta = (x.to(kind).transpose(-2, -3) for x in (q, k, v, beta.unsqueeze(-1)))
    return q, k, v, beta


def _forward(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    inputs = (q, k, v, beta)
    found = body("delta_rule", inputs, plain_delta_rule_kept, sample=few_documents(*inputs))(*inputs)
    o, written, matrices = (tensor.contiguous() for tensor in found)
    return o, written, matrices


def _backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, written: Tensor, matrices: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    inputs = (grad, q, k, v, beta, written, matrices)
    of_q, of_k, of_v, of_beta = body("delta_rule_backward", inputs, plain_delta_rule_backward)(*inputs)
    return of_q.contiguous(), of_k.contiguous(), of_v.contiguous(), of_beta.contiguous()


def _empty(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    models, documents, length, heads, _ = q.shape
    kind = torch.promote_types(v.dtype, torch.float32)
    matrices = v.new_empty(models, documents, heads, 3, length, length, dtype=kind)
    return v.new_empty(v.shape), v.new_empty(v.shape, dtype=kind), matrices


_delta_rule, _delta_rule_backward = stacked_operator(
    "delta_rule", _forward, _backward, _empty, returns=("o", "written", "matrices")
)
