"""Mamba against the implementation in transformers, weights carried over: outputs and all gradients."""

import logging

import pytest
import torch

from mixerscope.check import Subject
from mixerscope.randomness import construction
from mixerscope.registry import MIXERS

pytest.importorskip(
    "transformers", reason="the peer's implementation comes with the extra: pip install 'mixerscope[hf]'"
)

NAMES = {
    "in_proj.weight": "in_proj.weight",
    "conv.weight": "conv1d.weight",
    "conv.bias": "conv1d.bias",
    "x_proj.weight": "x_proj.weight",
    "dt_proj.weight": "dt_proj.weight",
    "dt_proj.bias": "dt_proj.bias",
    "a_log": "A_log",
    "skip": "D",
    "out_proj.weight": "out_proj.weight",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("d_conv", [4, 2])
def test_mamba_equals_transformers(d_conv):
    logging.getLogger("transformers").setLevel(logging.ERROR)
    from transformers import MambaConfig
    from transformers.models.mamba.modeling_mamba import MambaMixer

    width, state = 16, 5
    subject = Subject(MIXERS.load("mamba"), "mamba", width, {"d_conv": d_conv, "d_state": state})
    ours = subject.build().float()
    config = MambaConfig(
        hidden_size=width,
        state_size=state,
        conv_kernel=d_conv,
        time_step_rank=1,
        num_hidden_layers=1,
        vocab_size=8,
    )
    with construction(0):
        theirs = MambaMixer(config, layer_idx=0)
    weights = {NAMES[name]: tensor for name, tensor in ours.state_dict().items()}
    weights["conv1d.weight"] = weights["conv1d.weight"][:, None]  # [channel, 1, tap]
    theirs.load_state_dict(weights, strict=True)

    x, readout = subject.documents(2, 13).float(), subject.documents(2, 13, seed=1).float()
    found, expected = ours(x), theirs(x)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    (found * readout).sum().backward()
    (expected * readout).sum().backward()
    peer = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        grad = peer[NAMES[name]].grad
        assert grad is not None
        torch.testing.assert_close(parameter.grad, grad.reshape(parameter.shape), rtol=1e-4, atol=1e-5)
