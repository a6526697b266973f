"""The short convolution of the layer spec: there when asked for, without a trace when not."""

import pytest
import torch

from mixerscope.errors import UnknownName, UserError
from mixerscope.mixers.ops.short_conv import causal_depthwise_conv
from mixerscope.model.backbone import build_model, parameter_count
from mixerscope.sites import edit, named_sites, record
from mixerscope.spec import LayerSpec, ModelSpec, parse

TOKENS = torch.tensor([[1, 5, 2, 7, 3], [4, 4, 0, 1, 6]])


def model(kernel, mixer="gla", seed=0):
    layer = LayerSpec(mixer=mixer, short_conv=kernel).model_dump()
    spec = ModelSpec(architecture="pattern", width=8, layers=2, options={"layers": [layer]})
    return build_model(spec, 9, seed).double()


def test_zero_means_no_parameter_and_no_site():
    bare = model(0)
    assert not [name for name in named_sites(bare) if "short_conv" in name]
    assert not [name for name in bare.state_dict() if "short_conv" in name]
    with pytest.raises(UnknownName), record(bare, ["blocks.0.short_conv_out"]):
        bare(TOKENS)


def test_it_adds_a_kernel_a_channel_and_leaves_the_other_initial_weights_alone():
    bare, canon = model(0), model(4)
    assert parameter_count(canon) - parameter_count(bare) == 2 * 8 * 4
    first = {name: p for name, p in canon.blocks[0].named_parameters() if "short_conv" not in name}
    for name, weight in bare.blocks[0].named_parameters():
        assert torch.equal(weight, first[name])
    weight = canon.blocks[0].short_conv.weight
    assert 0.3 < weight.abs().max() <= 0.5


@pytest.mark.parametrize("mixer", ["attention", "mamba2", "lstm"])
def test_the_mixer_sees_the_norm_plus_its_convolution(mixer):
    canon = model(3, mixer)
    block = canon.blocks[1]
    names = [f"blocks.1.{name}" for name in ("resid_pre", "short_conv_out", "mixer_in", "mixer_out")]
    with record(canon, names) as seen:
        canon(TOKENS)
    before, conv, into, out = (seen[name] for name in names)
    normed = block.norm1(before)
    torch.testing.assert_close(conv, causal_depthwise_conv(normed, block.short_conv.weight, None))
    torch.testing.assert_close(into, normed + conv)
    torch.testing.assert_close(out, block.mixer(into))


def test_its_site_can_be_edited():
    canon = model(2)
    y = canon(TOKENS)
    with edit(canon, {"blocks.0.short_conv_out": torch.zeros_like}):
        without = canon(TOKENS)
    with torch.no_grad():
        canon.blocks[0].short_conv.weight.zero_()
    torch.testing.assert_close(without, canon(TOKENS))
    assert not torch.allclose(without, y)


def test_a_kernel_below_zero_is_refused():
    with pytest.raises(UserError, match="short_conv"):
        parse(LayerSpec, {"mixer": "gla", "short_conv": -1})


def test_the_block_names_it_before_the_parts_of_the_mixer():
    inner = [("short convolution", "mixer.conv_out"), ("state space recurrence", "mixer.scan_out")]
    assert [(mover.component, mover.site) for mover in model(0, "mamba2").blocks[0].movers()] == inner
    canon = model(2, "mamba2")
    movers = canon.blocks[0].movers()
    assert [(mover.component, mover.site) for mover in movers] == [
        ("block short convolution", "short_conv_out"),
        *inner,
    ]
    assert {f"blocks.0.{mover.site}" for mover in movers} <= set(named_sites(canon))
