"""A plain stack of cells: each layer's output is all that the next one sees."""

import torch
from torch import nn

from mixerscope.model import build_model
from mixerscope.randomness import construction
from mixerscope.spec import ModelSpec, RunSpec

PLAIN = {"residual": False, "norm": "none", "mlp": False}


def plain(mixer, layers=3):
    options = {"layers": [{"mixer": mixer, **PLAIN}]}
    return ModelSpec(architecture="pattern", width=5, layers=layers, options=options, init="small_model")


def test_three_plain_layers_of_lstm_are_the_lstm_of_pytorch():
    model = build_model(plain("lstm"), 7, 0).double()
    with construction(0):
        other = nn.LSTM(5, 5, num_layers=3, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        for i, layer in enumerate(model.layers()):
            getattr(other, f"weight_ih_l{i}").copy_(layer.mixer.input_proj.weight)
            getattr(other, f"weight_hh_l{i}").copy_(layer.mixer.recurrent)
            getattr(other, f"bias_ih_l{i}").copy_(layer.mixer.input_proj.bias)
            getattr(other, f"bias_hh_l{i}").zero_()
        tokens = torch.arange(14).view(2, 7) % 7
        expected, _ = other(model.token_embedding(tokens))
        torch.testing.assert_close(model.through_blocks(model.embed_tokens(tokens)), expected, rtol=1e-10, atol=1e-12)


def test_a_block_is_residual_unless_it_says_otherwise_and_ids_stay():
    usual = RunSpec(task="parity", model={"architecture": "pattern", "options": {"layers": [{"mixer": "gru"}]}})
    said = {"layers": [{"mixer": "gru", "residual": True}]}
    assert RunSpec(task="parity", model={"architecture": "pattern", "options": said}).run_id == usual.run_id
    other = {"layers": [{"mixer": "gru", "residual": False}]}
    assert RunSpec(task="parity", model={"architecture": "pattern", "options": other}).run_id != usual.run_id
