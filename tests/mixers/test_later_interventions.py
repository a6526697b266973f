"""The mixers that came after the paper can be patched, fresh or stirred, behind a short convolution."""

import pytest
import torch

from mixerscope.interventions import PairSettings, interchange, make_pairs
from mixerscope.model import build_model
from mixerscope.randomness import stream
from mixerscope.spec import LayerSpec, ModelSpec
from mixerscope.tasks import AR

LATER = ["mamba2", "gla", "gated_deltanet", "deltaproduct", "retnet", "rwkv7", "lstm", "gru", "sliding_window"]


@pytest.mark.parametrize("name", LATER)
@pytest.mark.parametrize("stir", [0.0, 0.1])
def test_the_self_test_holds_and_every_site_is_measured(name, stir):
    task = AR(num_pairs=2, num_keys=4, num_values=4)
    pairs = make_pairs(task, PairSettings(documents=4, slots=("key",)), data_seed=0)
    layer = LayerSpec(mixer=name, short_conv=2).model_dump()
    spec = ModelSpec(
        architecture="pattern", width=8, layers=2, max_length=16, init="small_model", options={"layers": [layer]}
    )
    model, rng = build_model(spec, task.vocab_size, seed=1).double(), stream(0, "stir")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += stir * torch.randn(parameter.shape, generator=rng, dtype=parameter.dtype)
    grid = interchange(model, pairs)
    sites = {cell.site for cell in grid.cells}
    inner = {f"blocks.0.mixer.{mover.site}" for mover in model.layers()[0].mixer.movers}
    assert sites >= inner | {"blocks.0.short_conv_out", "blocks.1.short_conv_out"}
    assert all(measured.effects.logit.isfinite().all() for measured in grid.cells.values())
