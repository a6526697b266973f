"""Options: what each changes, and the one-sentence errors of bad ones."""

import pytest
import torch

from mixerscope.errors import UserError
from mixerscope.model import build_model
from mixerscope.randomness import construction
from mixerscope.registry import MIXERS
from mixerscope.sites import named_sites
from mixerscope.spec import ModelSpec, parse


def build(name, width, **options):
    with construction(0):
        return MIXERS.load(name)(width, **options)


@pytest.mark.parametrize(
    ("architecture", "options", "message"),
    [
        ("attention", {"heads": 3}, "width = 10 is not divisible by heads = 3"),
        ("attention", {"heads": 0}, "not divisible by heads = 0"),
        ("attention", {"heads": 2, "relative": "rope"}, "even head dimension, got width / heads = 5"),
        ("attention", {"relative": "rotary"}, "'none', 'rope' or 'alibi'"),
        ("attention", {"head": 2}, "did you mean 'heads'"),
        ("base_conv", {"kernels": [3, 0]}, "kernels.1: a kernel is a whole number from 1 on or 'long', got 0"),
        ("base_conv", {"kernels": []}, "at least 1 item"),
        ("base_conv", {"kernels": ["wide"]}, "or 'long', got 'wide'"),
        ("based", {"kernel": -1}, "kernel: a kernel is a whole number from 1 on"),
        ("linear_attention", {"feature_dim": 0}, "feature_dim = 0 must be at least 1"),
        ("mamba", {"d_conv": -1}, "d_conv = -1 must be at least 0"),
        ("mamba", {"d_state": 0}, "d_state = 0 must be at least 1"),
        ("h3", {"head_dim": 4}, "width = 10 is not divisible by head_dim = 4"),
        ("h3", {"d_state": 7}, "d_state = 7 must be even"),
        ("hyena", {"kernel": 0}, "kernel = 0 must be at least 1"),
        ("hyena", {"filter_length": 1}, "filter_length = 1 must be at least 2"),
        ("hyena", {"filter_skips": True}, "did you mean 'filter_skip'"),
        ("deltanet", {"heads": 4}, "width = 10 is not divisible by heads = 4"),
        ("deltanet", {"d_conv": -2}, "d_conv = -2 must be at least 0"),
        ("pattern", {"layers": []}, "at least 1 item"),
        ("pattern", {"layers": [{"mixer": "mambo"}]}, "did you mean 'mamba'"),
        ("pattern", {"layers": [{"mixer": "base_conv", "options": {"kernel": 2.5}}]}, "from 1 on or 'long', got 2.5"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(architecture, options, message):
    with pytest.raises(UserError) as caught:
        build_model(parse(ModelSpec, {"architecture": architecture, "width": 10, "options": options}), 8, seed=0)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_kernel_below_one_is_refused_by_the_mixer_too():
    with pytest.raises(UserError, match="base_conv: kernel = 0 must be at least 1"):
        build("base_conv", 4, kernel=0)


@pytest.mark.parametrize(("name", "options"), [("base_conv", {"kernel": "long"}), ("hyena", {})])
def test_a_document_longer_than_the_filter_is_refused_when_it_arrives(name, options):
    mixer = build(name, 4, filter_length=5, **options)
    mixer(torch.zeros(1, 5, 4))
    with pytest.raises(UserError, match="6 tokens is longer than the implicit filter, filter_length = 5"):
        mixer(torch.zeros(1, 6, 4))


@pytest.mark.parametrize(
    ("options", "positions"), [({}, "learned"), ({"relative": "rope"}, "none"), ({"relative": "alibi"}, "none")]
)
def test_learned_positions_come_only_where_nothing_else_tells_order(options, positions):
    assert ModelSpec(architecture="attention", options=options).positions == positions
    assert ModelSpec(architecture="attention", options=options, positions="learned").positions == "learned"


def test_hybrid_with_plain_attention_gets_positions():
    layers = [{"mixer": "mamba"}, {"mixer": "attention", "options": {"relative": "rope"}}]
    assert ModelSpec(architecture="pattern", options={"layers": layers}).positions == "none"
    assert ModelSpec(architecture="pattern", options={"layers": [{"mixer": "attention"}]}).positions == "learned"


def layers_of(architecture, layers, **options):
    return ModelSpec(architecture=architecture, layers=layers, options=options).layer_specs()


def test_base_conv_alternates_short_and_long():
    assert [layer.options["kernel"] for layer in layers_of("base_conv", 4)] == [3, "long", 3, "long"]
    assert [layer.options["kernel"] for layer in layers_of("base_conv", 3, kernels=["long"])] == ["long"] * 3


@pytest.mark.parametrize("kernel", [1, 2, 3, 4, "long"])
def test_based_takes_every_kernel(kernel):
    conv, attention, again = layers_of("based", 3, kernel=kernel)
    assert conv == again
    assert (conv.mixer, conv.options["kernel"], attention.mixer) == ("base_conv", kernel, "linear_attention")


def test_pattern_writes_defaults_out():
    short = ModelSpec(architecture="pattern", options={"layers": [{"mixer": "mamba"}]})
    long = ModelSpec(architecture="pattern", options={"layers": [{"mixer": "mamba", "options": {"d_conv": 4}}]})
    assert short == long
    assert short.layer_specs() == layers_of("mamba", 2)


@pytest.mark.parametrize("name", ["mamba", "deltanet"])
def test_without_a_convolution_its_sites_weights_and_move_are_gone(name):
    full, bare = build(name, 8), build(name, 8, d_conv=0)
    assert set(named_sites(full)) - set(named_sites(bare)) == {"conv_in", "conv_out"}
    assert not [key for key in bare.state_dict() if key.startswith("conv")]
    assert [mover.component for mover in full.movers][1:] == [mover.component for mover in bare.movers]


def test_the_long_kernel_names_its_move():
    assert [mover.component for mover in build("base_conv", 4, kernel="long").movers] == ["long convolution"]
    assert [mover.component for mover in build("base_conv", 4).movers] == ["short convolution"]


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("attention", {}, 2 * 10 * 16),
        ("attention", {"heads": 4}, 2 * 10 * 16),
        ("base_conv", {"kernel": 3}, 2 * 16),
        ("base_conv", {"kernel": "long"}, 10 * 16),
        ("linear_attention", {}, 73 * 17),
        ("mamba", {}, 32 * 16 + 3 * 32),
        ("mamba", {"d_conv": 0}, 32 * 16),
        ("hyena", {}, 2 * 48 + 10 * 16),
        ("deltanet", {}, 16 * 16 + 3 * 48),
        ("deltanet", {"heads": 4, "d_conv": 0}, 4 * 4 * 4),
        ("h3", {}, 10 * 16 + 8 * 4 * 1024),
        ("h3", {"d_state": 4}, 3 * 16 + 8 * 4 * 4),
    ],
)
def test_state_size_after_ten_positions_at_width_16(name, options, expected):
    assert build(name, 16, **options).state_size(10) == expected
