"""GRU cells: r, z = sigmoid(x_t + U h_{t-1}), n = tanh(x_t + V (r h_{t-1})), h_t = z h_{t-1} + (1 - z) n.

With `reset_after` it is r (V h_{t-1}) instead. x is what the current token contributes to each pre-activation, its bias
included. One operator with a leading stack axis, a batching rule and a gradient of its own: a compiler would write out
a loop over positions, and take minutes.
Shapes: inputs and kept r, z, n [m, b, t, 3, h]; gates (U) [m, 2 h, h]; candidate (V) [m, h, h]; hidden [m, b, t, h].
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from mixerscope.kernels import body, few_documents
from mixerscope.kernels.precision import exact_products, tolerance_of
from mixerscope.mixers.ops.operator import stacked_operator
from mixerscope.mixers.ops.slopes import through_sigmoid, through_tanh


def gru(inputs: Tensor, gates: Tensor, candidate: Tensor, *, reset_after: bool) -> Tensor:
    """Hidden states [b, t, h] for inputs [b, t, 3, h], gates [2 h, h] and candidate [h, h], from a zero state."""
    # What is kept is for the backward pass only: without gradients there is none.
    keep = torch.is_grad_enabled()
    return _gru(inputs[None], gates[None], candidate[None], reset_after, keep)[0].squeeze(0)


def gru_step(inputs: Tensor, gates: Tensor, candidate: Tensor, hidden: Tensor, *, reset_after: bool) -> Tensor:
    """The new hidden state [b, h] for inputs [b, 3, h]."""
    r, z, n = inputs.unbind(1)
    from_gates = F.linear(hidden, gates)
    width = hidden.shape[-1]
    r, z = (r + from_gates[:, :width]).sigmoid(), (z + from_gates[:, width:]).sigmoid()
    recalled = r * F.linear(hidden, candidate) if reset_after else F.linear(r * hidden, candidate)
    return z * hidden + (1 - z) * (n + recalled).tanh()


def plain_gru(
    inputs: Tensor, gates: Tensor, candidate: Tensor, reset_after: bool, keep: bool, exact: bool
) -> tuple[Tensor, Tensor]:
    """Hidden states and, if they are to be kept, the three parts; float32 at least inside. `exact` is for the kernel's
    products; those here are as torch is told."""
    kind = torch.promote_types(inputs.dtype, torch.float32)
    x, of_gates, of_candidate = inputs.to(kind), gates.to(kind).mT, candidate.to(kind).mT
    models, documents, length, _, width = inputs.shape
    states = x.new_empty(models, documents, length, width)
    kept = x.new_empty(_kept_shape(inputs, keep))
    hidden = x.new_zeros(models, documents, width)
    for t in range(length):
        parts = kept[:, :, t] if keep else torch.empty_like(x[:, :, t])
        r, z, n = parts.unbind(2)
        sums = torch.baddbmm(x[:, :, t, :2].flatten(2), hidden, of_gates)
        torch.sigmoid(sums.unflatten(-1, (2, width)), out=parts[:, :, :2])
        if reset_after:
            recalled = torch.addcmul(x[:, :, t, 2], r, torch.bmm(hidden, of_candidate))
        else:
            recalled = torch.baddbmm(x[:, :, t, 2], r * hidden, of_candidate)
        torch.tanh(recalled, out=n)
        hidden = torch.lerp(n, hidden, z, out=states[:, :, t])
    return states.to(inputs.dtype), kept


def plain_gru_backward(
    by_states: Tensor, gates: Tensor, candidate: Tensor, states: Tensor, kept: Tensor, reset_after: bool, exact: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of inputs, gates and candidate."""
    kind, (r, z, n) = kept.dtype, kept.unbind(3)
    h, of_gates, of_candidate, by_h = (x.to(kind) for x in (states, gates, candidate, by_states))
    before = F.pad(h[:, :, :-1], (0, 0, 1, 0))
    # All positions at once: what r does to its factor through its pre-activation, and z and n through theirs to h_t.
    by_sums = torch.empty_like(kept)  # grows into the gradients
    by_r, by_z, by_n = by_sums.unbind(3)
    other = torch.matmul(before, of_candidate.mT[:, None]) if reset_after else before
    through_sigmoid(other, r, grad_input=by_r)
    through_sigmoid(before - n, z, grad_input=by_z)
    through_tanh(1 - z, n, grad_input=by_n)
    total = by_h[:, :, -1]  # dL/dh_t
    for t in range(h.shape[2] - 1, -1, -1):
        by_sums[:, :, t, 1:].mul_(total[:, :, None])
        if reset_after:
            by_r[:, :, t].mul_(by_n[:, :, t])
            by_before = torch.bmm(by_n[:, :, t] * r[:, :, t], of_candidate)
        else:
            by_before = torch.bmm(by_n[:, :, t], of_candidate)
            by_r[:, :, t].mul_(by_before)
            by_before.mul_(r[:, :, t])
        if t:
            by_before.baddbmm_(by_sums[:, :, t, :2].flatten(2), of_gates).addcmul_(total, z[:, :, t])
            total = by_before.add_(by_h[:, :, t - 1])
    of_all = before.flatten(1, 2)
    by_gates = torch.bmm(by_sums[:, :, :, :2].flatten(3).flatten(1, 2).mT, of_all)
    by_candidate = (
        torch.bmm((by_n * r).flatten(1, 2).mT, of_all)
        if reset_after
        else torch.bmm(by_n.flatten(1, 2).mT, (r * before).flatten(1, 2))
    )
    return by_sums.to(states.dtype), by_gates.to(gates.dtype), by_candidate.to(candidate.dtype)


def _kept_shape(inputs: Tensor, keep: bool) -> tuple[int, ...]:
    models, documents, length, _, width = inputs.shape
    return models, documents, length if keep else 0, 3, width


def _forward(inputs: Tensor, gates: Tensor, candidate: Tensor, reset_after: bool, keep: bool) -> tuple[Tensor, Tensor]:
    everything = inputs, gates, candidate, reset_after, keep, exact_products()
    sample = *few_documents(inputs), *everything[1:]
    return body("gru", everything, plain_gru, tolerance=tolerance_of(inputs.dtype), sample=sample)(*everything)


def _backward(
    by_states: Tensor, gates: Tensor, candidate: Tensor, states: Tensor, kept: Tensor, reset_after: bool
) -> tuple[Tensor, Tensor, Tensor]:
    inputs = by_states, gates, candidate, states, kept, reset_after, exact_products()
    return body("gru_backward", inputs, plain_gru_backward, tolerance=tolerance_of(states.dtype))(*inputs)


def _empty(inputs: Tensor, gates: Tensor, candidate: Tensor, reset_after: bool, keep: bool) -> tuple[Tensor, Tensor]:
    models, documents, length, _, width = inputs.shape
    kind = torch.promote_types(inputs.dtype, torch.float32)
    states = inputs.new_empty(models, documents, length, width)
    return states, inputs.new_empty(_kept_shape(inputs, keep), dtype=kind)


def _empty_backward(
    by_states: Tensor, gates: Tensor, candidate: Tensor, states: Tensor, kept: Tensor, reset_after: bool
) -> tuple[Tensor, Tensor, Tensor]:
    by_inputs = kept.new_empty(kept.shape, dtype=states.dtype)
    return by_inputs, gates.new_empty(gates.shape), candidate.new_empty(candidate.shape)


_gru, _gru_backward = stacked_operator(
    "gru",
    _forward,
    _backward,
    _empty,
    returns=("states", "kept"),
    empty_backward=_empty_backward,
)
