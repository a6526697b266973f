"""LSTM and GRU operators against what autograd makes of the loop over positions, stacked, in float64."""

import pytest
import torch

from mixerscope.mixers.ops import gru_cells, lstm_cells
from mixerscope.mixers.ops.gru_cells import gru
from mixerscope.mixers.ops.lstm_cells import lstm
from tests.mixers.test_operator import MEMBERS, assert_equals_definition, randn

DOCUMENTS, WIDTH = 3, 4


def lstm_loop(inputs, recurrent):
    hidden = cell = torch.zeros(len(inputs), inputs.shape[-1], dtype=inputs.dtype)
    gates, cells = [], []
    for at_t in inputs.unbind(1):
        i, f, g, o = (at_t.flatten(1) + hidden @ recurrent.T).chunk(4, 1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        hidden = torch.sigmoid(o) * torch.tanh(cell)
        gates.append(torch.sigmoid(o))
        cells.append(cell)
    return torch.stack(gates, 1), torch.stack(cells, 1)


def gru_loop(inputs, gates, candidate, reset_after):
    hidden = torch.zeros(len(inputs), inputs.shape[-1], dtype=inputs.dtype)
    states = []
    for at_t in inputs.unbind(1):
        r, z = torch.sigmoid(at_t[:, :2].flatten(1) + hidden @ gates.T).chunk(2, 1)
        recalled = r * (hidden @ candidate.T) if reset_after else (r * hidden) @ candidate.T
        hidden = z * hidden + (1 - z) * torch.tanh(at_t[:, 2] + recalled)
        states.append(hidden)
    return torch.stack(states, 1)


def stacked_inputs(parts, length, weights, shared):
    """Inputs and weights [rows, WIDTH], with an axis for the members where they are not shared."""
    shapes = [(DOCUMENTS, length, parts, WIDTH), *((rows * WIDTH, WIDTH) for rows in weights)]
    return [randn(*(() if i in shared else (MEMBERS,)), *shape, seed=i) for i, shape in enumerate(shapes)]


READERS = {
    "both": lambda gates, cells: torch.stack([gates, cells]),
    "gates": lambda gates, _: gates,
    "cells": lambda _, cells: cells,
}


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("shared", [(), (0,), (1,)])
def test_lstm(read, shared):
    """Each of the two outputs has gradients of its own, and either may be unused."""
    read = READERS[read]
    inputs = stacked_inputs(4, 6, [4], shared)
    assert_equals_definition(lambda *x: read(*lstm(*x)), lambda *x: read(*lstm_loop(*x)), inputs, shared)


@pytest.mark.parametrize("reset_after", [False, True])
@pytest.mark.parametrize("shared", [(), (0,), (1, 2)])
def test_gru(reset_after, shared):
    inputs = stacked_inputs(3, 6, [2, 1], shared)
    assert_equals_definition(
        lambda *x: gru(*x, reset_after=reset_after), lambda *x: gru_loop(*x, reset_after), inputs, shared
    )


def test_a_single_position_has_no_past():
    inputs = randn(DOCUMENTS, 1, 4, WIDTH).requires_grad_()
    recurrent = randn(4 * WIDTH, WIDTH, seed=1).requires_grad_()
    gates, cells = lstm(inputs, recurrent)
    torch.testing.assert_close((gates, cells), lstm_loop(inputs, recurrent))
    (by_recurrent,) = torch.autograd.grad((gates + cells).sum(), [recurrent])
    assert (by_recurrent == 0).all()


def operators(inputs_of):
    lstm_inputs = inputs_of(*stacked_inputs(4, 5, [4], ()))
    gru_inputs = inputs_of(*stacked_inputs(3, 5, [2, 1], ()))
    return [
        (lstm_cells._lstm, lstm_inputs, ()),
        (gru_cells._gru, gru_inputs, (False,)),
        (gru_cells._gru, gru_inputs, (True,)),
    ]


def test_without_gradients_nothing_is_kept_and_the_values_are_the_same():
    for operator, inputs, options in operators(lambda *x: x):
        *found, kept = operator(*inputs, *options, False)
        *expected, _ = operator(*inputs, *options, True)
        assert kept.numel() == 0
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_operators_say_what_shapes_they_return(dtype):
    """Compilers trust what is registered: shapes, types, and that everything is contiguous."""
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    for operator, inputs, options in operators(lambda *x: [y.to(dtype).requires_grad_() for y in x]):
        torch.library.opcheck(operator, (*inputs, *options, True), test_utils=checks)
        inputs = [x.detach() for x in inputs]
        torch.library.opcheck(operator, (*inputs, *options, False), test_utils=checks[:2])
        outputs = operator(*inputs, *options, True)
        readouts = [torch.ones_like(x) for x in outputs[:-1]]
        backward = lstm_cells._lstm_backward if operator is lstm_cells._lstm else gru_cells._gru_backward
        torch.library.opcheck(backward, (*readouts, *inputs[1:], *outputs, *options), test_utils=checks[:2])


def test_half_precision_is_computed_in_single():
    """What a bfloat16 cell returns is off by the rounding of its inputs and outputs, not of every position."""
    inputs, recurrent = (x[0].bfloat16() for x in stacked_inputs(4, 60, [4], ()))
    _, cells = lstm(inputs, recurrent)
    _, exact = lstm_loop(inputs.double(), recurrent.double())
    assert cells.dtype == torch.bfloat16
    torch.testing.assert_close(cells.double(), exact, rtol=2**-8, atol=1e-5)
