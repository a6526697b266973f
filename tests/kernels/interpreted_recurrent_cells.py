"""The kernels of LSTM and GRU cells against their plain bodies in float64.

`test_interpreted.py` runs this file.
"""

import pytest
import torch

from mixerscope.kernels import recurrent_cells
from mixerscope.mixers.ops import gru_cells, lstm_cells
from tests.kernels.interpreted_operators import apart, assert_agree, assert_kernels_run

SHAPES = [(2, 3, 5, 4), (1, 17, 3, 20), (2, 1, 1, 16), (1, 2, 9, 33), (2, 2, 3, 70)]
"""Models, documents, length, width: fewer and more documents than a program has, widths that are no power of two, and
one whose weights are not at hand."""


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(0)


def cells(rng, shape, parts):
    models, documents, length, width = shape
    inputs = torch.randn(models, documents, length, parts, width, generator=rng)
    return inputs, apart(torch.randn(models, parts * width, width, generator=rng) / width**0.5)


@pytest.mark.parametrize("shape", SHAPES)
def test_lstm(rng, shape):
    inputs, recurrent = cells(rng, shape, 4)
    gates, states, kept = assert_agree(
        recurrent_cells.lstm, lstm_cells.plain_lstm, (inputs, recurrent, True, True), 1e-6
    )
    without = recurrent_cells.lstm(inputs, recurrent, False, True)
    assert torch.equal(without[0], gates)
    assert without[2].numel() == 0
    by_gates, by_cells = (torch.randn(*shape, generator=rng) for _ in range(2))
    backward = (by_gates, by_cells, recurrent, gates, states, kept, True)
    assert_agree(recurrent_cells.lstm_backward, lstm_cells.plain_lstm_backward, backward, 2e-6)


@pytest.mark.parametrize("reset_after", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_gru(rng, shape, reset_after):
    inputs, recurrent = cells(rng, shape, 3)
    width = shape[-1]
    weights = apart(recurrent[:, : 2 * width]), apart(recurrent[:, 2 * width :])
    forward = (inputs, *weights, reset_after, True, True)
    states, kept = assert_agree(recurrent_cells.gru, gru_cells.plain_gru, forward, 1e-6)
    assert torch.equal(recurrent_cells.gru(inputs, *weights, reset_after, False, True)[0], states)
    backward = (torch.randn(*shape, generator=rng), *weights, states, kept, reset_after, True)
    assert_agree(recurrent_cells.gru_backward, gru_cells.plain_gru_backward, backward, 2e-6)


def test_half_precision_is_computed_in_float32(rng):
    inputs, recurrent = (x.bfloat16() for x in cells(rng, (1, 2, 6, 8), 4))
    gates, states, kept = assert_agree(
        recurrent_cells.lstm, lstm_cells.plain_lstm, (inputs, recurrent, True, False), 1e-2
    )
    assert (gates.dtype, kept.dtype) == (torch.bfloat16, torch.float32)
    grads = recurrent_cells.lstm_backward(gates, states, recurrent, gates, states, kept, False)
    assert all(grad.dtype == torch.bfloat16 for grad in grads)


def test_states_that_do_not_fit_are_refused(rng):
    with pytest.raises(ValueError, match="more than 128 do not fit"):
        recurrent_cells.lstm(*cells(rng, (1, 1, 1, 129), 4), True, True)


def test_operators_run_their_kernels(rng):
    """Through batching and gradient rules, as training on a GPU takes them."""

    def loss(x, recurrent):
        width = recurrent.shape[1]
        gates, states = lstm_cells.lstm(x, recurrent)
        weights = recurrent[: 2 * width], recurrent[2 * width : 3 * width]
        hidden = gru_cells.gru(x[:, :, :3], *weights, reset_after=False)
        return (gates * states.tanh()).square().sum() + hidden.square().sum()

    assert_kernels_run(loss, cells(rng, (2, 3, 5, 6), 4), ("lstm", "gru"))
