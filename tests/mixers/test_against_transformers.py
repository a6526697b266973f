"""Mamba, Mamba-2 and the gated delta rule against transformers, weights carried over: outputs and all gradients."""

import logging

import pytest
import torch
from torch import nn

from mixerscope.check import Subject
from mixerscope.mixers.ops.gated_delta_rule import gated_delta_rule
from mixerscope.mixers.ops.unit_length import unit_length
from mixerscope.randomness import construction, stream
from mixerscope.registry import MIXERS

pytest.importorskip(
    "transformers", reason="the peer's implementation comes with the extra: pip install 'mixerscope[hf]'"
)

NAMES = {
    "conv.weight": "conv1d.weight",
    "conv.bias": "conv1d.bias",
    "a_log": "A_log",
    "skip": "D",
}
"""Ours to theirs, where they differ."""


def assert_equal_with_weights_carried_over(subject: Subject, theirs: nn.Module, rtol: float, atol: float):
    """Outputs within the tolerance, gradients within ten times of it, as sums over positions round more."""
    ours = subject.build().float()
    weights = {NAMES.get(name, name): tensor for name, tensor in ours.state_dict().items()}
    weights["conv1d.weight"] = weights["conv1d.weight"][:, None]  # [channel, 1, tap]
    theirs.load_state_dict(weights, strict=True)

    x, readout = subject.documents(2, 13).float(), subject.documents(2, 13, seed=1).float()
    found, expected = ours(x), theirs(x)
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol)
    (found * readout).sum().backward()
    (expected * readout).sum().backward()
    peer = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        grad = peer[NAMES.get(name, name)].grad
        assert grad is not None
        torch.testing.assert_close(parameter.grad, grad.reshape(parameter.shape), rtol=10 * rtol, atol=10 * atol)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("d_conv", [4, 2])
def test_mamba_equals_transformers(d_conv):
    logging.getLogger("transformers").setLevel(logging.ERROR)
    from transformers import MambaConfig
    from transformers.models.mamba.modeling_mamba import MambaMixer

    width, state = 16, 5
    subject = Subject(MIXERS.load("mamba"), "mamba", width, {"d_conv": d_conv, "d_state": state})
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
    assert_equal_with_weights_carried_over(subject, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("heads", "d_conv"), [(2, 4), (4, 2)])
def test_mamba2_equals_transformers(heads, d_conv):
    logging.getLogger("transformers").setLevel(logging.ERROR)
    from transformers import Mamba2Config
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    width, state = 8, 6
    subject = Subject(MIXERS.load("mamba2"), "mamba2", width, {"heads": heads, "d_state": state, "d_conv": d_conv})
    config = Mamba2Config(
        hidden_size=width,
        num_heads=heads,
        head_dim=2 * width // heads,
        state_size=state,
        conv_kernel=d_conv,
        n_groups=1,
        chunk_size=5,
        num_hidden_layers=1,
        vocab_size=8,
    )
    with construction(0):
        theirs = Mamba2Mixer(config, layer_idx=0)
    assert_equal_with_weights_carried_over(subject, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_gated_delta_rule_equals_transformers():
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_recurrent_gated_delta_rule

    rng = stream(0, "gated delta rule")
    q, k, v = (torch.randn(2, 13, 3, c, generator=rng) for c in (4, 4, 5))
    beta = torch.rand(2, 13, 3, generator=rng)
    log_decay = -torch.rand(2, 13, 3, generator=rng)
    expected, _ = torch_recurrent_gated_delta_rule(q, k, v, log_decay, beta, use_qk_l2norm_in_kernel=True)
    found = gated_delta_rule(unit_length(q) * 4**-0.5, unit_length(k), v, beta, log_decay)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
