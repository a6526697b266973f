"""Parameter counts and initial statistics are the published ones."""

import math

import pytest
import torch

from mixerscope.mixers import InitRule
from mixerscope.model import Model, parameter_count
from mixerscope.randomness import construction, stream
from mixerscope.registry import MIXERS
from mixerscope.spec import ModelSpec

WIDTHS = (16, 32, 64, 128, 256)
# Two layers, vocabulary 8196, by width: the published models for associative recall.
COUNTS = {
    "attention": (154_016, 320_320, 689_792, 1_576_192, 3_938_816),
    "base_conv": (139_568, 285_216, 604_160, 1_352_640, 3_291_968),
    "based": (136_656, 283_040, 604_992, 1_365_632, 3_353_856),
    "h3": (252_480, 517_248, 1_083_648, 2_363_904, 5_514_240),
    "hyena": (163_616, 316_096, 657_920, 1_489_024, 3_741_056),
    "mamba": (137_920, 282_240, 590_080, 1_282_560, 2_974_720),
    "deltanet": (138_048, 288_384, 625_920, 1_448_448, 3_683_328),
}


def count(architecture, width=64, vocab=8196, **options):
    with torch.device("meta"):
        return parameter_count(Model(ModelSpec(architecture=architecture, width=width, options=options), vocab))


@pytest.mark.parametrize("architecture", COUNTS)
def test_counts_at_every_width(architecture):
    # The published Hyena also holds a skip vector that its forward pass never uses; ours exists only when it is on.
    options = {"filter_skip": True} if architecture == "hyena" else {}
    assert tuple(count(architecture, width, **options) for width in WIDTHS) == COUNTS[architecture]


def test_hyena_without_the_unused_skip():
    assert tuple(count("hyena", width) + 2 * width for width in WIDTHS) == COUNTS["hyena"]


@pytest.mark.parametrize(
    ("architecture", "options", "expected"),
    [
        ("base_conv", {"kernels": ["long"]}, 608_128),
        ("based", {"kernel": "long"}, 608_960),
        ("mamba", {"d_conv": 1}, 589_312),
        # Published with the unused weights of a convolution of width 4: 2 layers x 128 channels x (4 + 1).
        ("mamba", {"d_conv": 0}, 590_080 - 2 * 128 * 5),
    ],
)
def test_counts_of_the_variants(architecture, options, expected):
    assert count(architecture, **options) == expected


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [("attention", 166_912), ("based", 82_112), ("h3", 560_768), ("mamba", 67_200), ("deltanet", 103_040)],
)
def test_counts_with_the_small_vocabulary(architecture, expected):
    assert count(architecture, vocab=26) == expected


def test_frozen_time_features_are_no_parameters():
    assert count("base_conv") - count("base_conv", train_time_features=False) == 3072


WIDTH, DEPTH = 64, 8
SCALED = 0.02 / math.sqrt(2 * DEPTH)
# Normal: the standard deviation. Uniform: the bound. Value: the value itself.
RULES = {
    "attention": {"qkv_proj.weight": ("normal", 0.02), "out_proj.weight": ("normal", SCALED)},
    "base_conv": {
        "conv.weight": ("uniform", 3**-0.5),
        "conv.bias": ("uniform", 3**-0.5),
        "projection.weight": ("normal", 0.02),
        "projection.bias": ("value", 0.0),
    },
    "linear_attention": {f"{part}_proj.weight": ("normal", 0.02) for part in "qkvo"},
    "hyena": {
        "in_proj.weight": ("normal", 0.02),
        "in_proj.bias": ("value", 0.0),
        "conv.weight": ("uniform", 3**-0.5),
        "filter.hidden.1.weight": ("normal", 0.02),
        "filter.hidden.1.bias": ("value", 0.0),
        "filter.frequency": ("value", 1.0),
        "filter.out.weight": ("normal", 0.02),
        "out_proj.weight": ("normal", SCALED),
    },
    "h3": {
        "q_proj.weight": ("normal", 0.02),
        "o_proj.weight": ("normal", 0.02),
        "o_proj.bias": ("value", 0.0),
        "shift_c": ("uniform", 1 / 32),
        "shift_skip": ("normal", 1.0),
        "a_log": ("value", math.log(0.5)),
        "c": ("normal", 0.5**0.5),
        "skip": ("normal", 1.0),
    },
    "deltanet": {
        "qkv_proj.weight": ("normal", 0.02),
        "beta_proj.weight": ("normal", 0.02),
        "conv.weight": ("uniform", 0.5),
        "norm.weight": ("value", 1.0),
        "o_proj.weight": ("normal", 0.02),
    },
    "mamba": {
        "in_proj.weight": ("uniform", WIDTH**-0.5),
        "conv.weight": ("uniform", 0.5),
        "conv.bias": ("uniform", 0.5),
        "x_proj.weight": ("uniform", (2 * WIDTH) ** -0.5),
        "dt_proj.weight": ("uniform", (WIDTH / 16) ** -0.5),
        "skip": ("value", 1.0),
        "out_proj.weight": ("uniform", (2 * WIDTH) ** -0.5 / DEPTH**0.5),
    },
}


def initialised(name):
    with construction(0):
        mixer = MIXERS.load(name)(WIDTH)
    mixer.init_weights(stream(0, "test"), InitRule(DEPTH))
    return mixer, {key: value.detach() for key, value in mixer.named_parameters()}


@pytest.mark.parametrize("name", RULES)
def test_initial_statistics(name):
    _, weights = initialised(name)
    for key, (kind, size) in RULES[name].items():
        w = weights[key].flatten().double()
        error = 5 / len(w) ** 0.5  # five standard errors
        if kind == "value":
            assert torch.equal(weights[key], torch.full_like(weights[key], size)), key
        elif kind == "normal":
            assert abs(w.mean()) < error * size, key
            assert abs(w.std() / size - 1) < error, key
        else:
            assert w.abs().max() <= size, key
            assert w.abs().max() > size * (1 - 10 / len(w)), key
            assert abs(w.std() / (size / 3**0.5) - 1) < error, key


def test_mamba_starts_with_the_published_time_scales():
    mixer, weights = initialised("mamba")
    dt = torch.nn.functional.softplus(weights["dt_proj.bias"])
    assert dt.min() >= 1e-3 * 0.999
    assert dt.max() <= 0.1 * 1.001
    assert abs(dt.log().mean() - math.log(1e-2)) < 5 * math.log(100) / 12**0.5 / len(dt) ** 0.5  # log-uniform
    expected = torch.arange(1, 17).float().log().expand(2 * WIDTH, 16)
    torch.testing.assert_close(weights["a_log"], expected)
    assert mixer.block_norm == "rms"
    assert not mixer.block_mlp


def test_h3_starts_with_a_shift_and_harmonic_modes():
    _, weights = initialised("h3")
    impulse = torch.zeros(WIDTH, 1024)
    impulse[:, 0] = 1
    assert torch.equal(weights["shift_b"], impulse)
    torch.testing.assert_close(weights["frequency"][3], math.pi * torch.arange(512.0))
    assert torch.equal(weights["b"][..., 0], torch.ones(32, 512))
    assert torch.equal(weights["b"][..., 1], torch.zeros(32, 512))
    assert weights["dt_log"].min() >= math.log(1e-3)
    assert weights["dt_log"].max() <= math.log(0.1)


def test_initialising_again_forgets_training():
    for name in ("base_conv", "hyena"):
        options = {"kernel": "long"} if name == "base_conv" else {}
        with construction(0):
            mixer = MIXERS.load(name)(8, **options)
        mixer.init_weights(stream(0, "test"), InitRule(2))
        before = {key: value.clone() for key, value in mixer.state_dict().items()}
        with torch.no_grad():
            for parameter in mixer.parameters():
                parameter += 1.0
        mixer.init_weights(stream(0, "test"), InitRule(2))
        for key, value in mixer.state_dict().items():
            assert torch.equal(value, before[key]), key
