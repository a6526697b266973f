"""LSTM cells: i, f, o = sigmoid(x_t + U h_{t-1}), g = tanh(the same form), c_t = f c_{t-1} + i g, h_t = o tanh(c_t).

x is what the current token contributes to each pre-activation, its bias included. One operator with a leading stack
axis, a batching rule and a gradient of its own: a compiler would write out a loop over positions, and take minutes.
Shapes: inputs [m, b, t, 4, h] (i, f, g, o); recurrent [m, 4 h, h]; o, c [m, b, t, h]; kept i, f, g [m, b, t, 3, h].
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from mixerscope.kernels import body, few_documents
from mixerscope.kernels.precision import exact_products, tolerance_of
from mixerscope.mixers.ops.operator import stacked_operator
from mixerscope.mixers.ops.slopes import through_sigmoid, through_tanh


def lstm(inputs: Tensor, recurrent: Tensor) -> tuple[Tensor, Tensor]:
    """Output gates and cells [b, t, h] for inputs [b, t, 4, h] and recurrent [4 h, h], from a zero state."""
    # What is kept is for the backward pass only: without gradients there is none.
    gates, cells, _ = _lstm(inputs[None], recurrent[None], torch.is_grad_enabled())
    return gates.squeeze(0), cells.squeeze(0)


def lstm_step(inputs: Tensor, recurrent: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Output gate and new cell [b, h] for inputs [b, 4, h]; the new hidden state is gate * tanh(cell)."""
    i, f, g, o = (inputs + F.linear(hidden, recurrent).view(inputs.shape)).unbind(1)
    return o.sigmoid(), f.sigmoid() * cell + i.sigmoid() * g.tanh()


def plain_lstm(inputs: Tensor, recurrent: Tensor, keep: bool, exact: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Output gates, cells and, if they are to be kept, the other three parts; float32 at least inside. `exact` is for
    the kernel's products; those here are as torch is told."""
    kind = torch.promote_types(inputs.dtype, torch.float32)
    x, weight = inputs.to(kind).flatten(3), recurrent.to(kind).mT
    models, documents, length, _, width = inputs.shape
    gates, cells = (x.new_empty(models, documents, length, width) for _ in range(2))
    kept = x.new_empty(_kept_shape(inputs, keep))
    hidden = cell = x.new_zeros(models, documents, width)
    for t in range(length):
        sums = torch.baddbmm(x[:, :, t], hidden, weight).unflatten(-1, (4, width))
        parts = kept[:, :, t] if keep else torch.empty_like(sums[:, :, :3])
        torch.sigmoid(sums[:, :, :2], out=parts[:, :, :2])
        torch.tanh(sums[:, :, 2], out=parts[:, :, 2])
        i, f, g = parts.unbind(2)
        gate = torch.sigmoid(sums[:, :, 3], out=gates[:, :, t])
        cell = torch.mul(f, cell, out=cells[:, :, t]).addcmul_(i, g)
        hidden = cell.tanh().mul_(gate)
    return gates.to(inputs.dtype), cells.to(inputs.dtype), kept


def plain_lstm_backward(
    by_gates: Tensor, by_cells: Tensor, recurrent: Tensor, gates: Tensor, cells: Tensor, kept: Tensor, exact: bool
) -> tuple[Tensor, Tensor]:
    """The gradients of inputs and recurrent."""
    kind, (i, f, g) = kept.dtype, kept.unbind(3)
    o, c, weight, by_o, by_c = (x.to(kind) for x in (gates, cells, recurrent, by_gates, by_cells))
    length = c.shape[2]
    by_sums = kept.new_empty(*c.shape[:3], 4, c.shape[3])  # grows into the gradients
    # All positions at once: what i, f and g do to c_t through their pre-activations, and what h_t does to c_t and o.
    by_i, by_f, by_g, by_last = by_sums.unbind(3)
    through_sigmoid(g, i, grad_input=by_i)
    through_sigmoid(c[:, :, :-1], f[:, :, 1:], grad_input=by_f[:, :, 1:])
    by_f[:, :, 0] = 0
    through_tanh(i, g, grad_input=by_g)
    through_sigmoid(by_o, o, grad_input=by_last)
    read = c.tanh()
    before = torch.empty_like(c)  # h_{t-1}
    before[:, :, 0] = 0
    torch.mul(o[:, :, :-1], read[:, :, :-1], out=before[:, :, 1:])
    into_c = through_tanh(o, read, grad_input=torch.empty_like(read))
    into_o = through_sigmoid(read, o, grad_input=read)
    total = by_c[:, :, -1]  # dL/dc_t
    for t in range(length - 1, -1, -1):
        if t + 1 < length:
            by_hidden = torch.bmm(by_sums[:, :, t + 1].flatten(2), weight)
            by_last[:, :, t].addcmul_(by_hidden, into_o[:, :, t])
            later = torch.addcmul(by_c[:, :, t], total, f[:, :, t + 1])
            total = later.addcmul_(by_hidden, into_c[:, :, t])
        by_sums[:, :, t, :3].mul_(total[:, :, None])
    by_recurrent = torch.bmm(by_sums.flatten(3).flatten(1, 2).mT, before.flatten(1, 2))
    return by_sums.to(gates.dtype), by_recurrent.to(recurrent.dtype)


def _kept_shape(inputs: Tensor, keep: bool) -> tuple[int, ...]:
    models, documents, length, _, width = inputs.shape
    return models, documents, length if keep else 0, 3, width


def _forward(inputs: Tensor, recurrent: Tensor, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    everything = inputs, recurrent, keep, exact_products()
    sample = *few_documents(inputs), *everything[1:]
    return body("lstm", everything, plain_lstm, tolerance=tolerance_of(inputs.dtype), sample=sample)(*everything)


def _backward(
    by_gates: Tensor, by_cells: Tensor, recurrent: Tensor, gates: Tensor, cells: Tensor, kept: Tensor
) -> tuple[Tensor, Tensor]:
    inputs = by_gates, by_cells, recurrent, gates, cells, kept, exact_products()
    return body("lstm_backward", inputs, plain_lstm_backward, tolerance=tolerance_of(gates.dtype))(*inputs)


def _empty(inputs: Tensor, recurrent: Tensor, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    models, documents, length, _, width = inputs.shape
    gates, cells = (inputs.new_empty(models, documents, length, width) for _ in range(2))
    kind = torch.promote_types(inputs.dtype, torch.float32)
    return gates, cells, inputs.new_empty(_kept_shape(inputs, keep), dtype=kind)


def _empty_backward(
    by_gates: Tensor, by_cells: Tensor, recurrent: Tensor, gates: Tensor, cells: Tensor, kept: Tensor
) -> tuple[Tensor, Tensor]:
    models, documents, length, width = gates.shape
    return gates.new_empty(models, documents, length, 4, width), recurrent.new_empty(recurrent.shape)


_lstm, _lstm_backward = stacked_operator(
    "lstm",
    _forward,
    _backward,
    _empty,
    returns=("gates", "cells", "kept"),
    differentiable=2,
    empty_backward=_empty_backward,
)
