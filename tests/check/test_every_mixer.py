"""Every registered mixer, and every variant the paper makes of one, has every property."""

import pytest

from mixerscope.check import NEEDS_NAME, PROPERTIES, check_mixer
from mixerscope.registry import MIXERS

VARIANTS = [
    ("attention", {"heads": 4}),
    ("attention", {"heads": 2, "relative": "rope"}),
    ("attention", {"heads": 2, "relative": "alibi"}),
    ("base_conv", {"kernel": 1}),
    ("base_conv", {"kernel": 2}),
    ("base_conv", {"kernel": 4}),
    ("base_conv", {"kernel": "long"}),
    ("base_conv", {"kernel": "long", "train_time_features": False}),
    ("mamba", {"d_conv": 3}),
    ("mamba", {"d_conv": 2}),
    ("mamba", {"d_conv": 1}),
    ("mamba", {"d_conv": 0}),
    ("hyena", {"filter_skip": True}),
    ("hyena", {"train_time_features": False}),
    ("h3", {"head_dim": 4}),
    ("h3", {"d_state": 6}),
    ("deltanet", {"heads": 4}),
    ("deltanet", {"d_conv": 0}),
    ("deltanet", {"negative_eigenvalues": True}),
    ("mamba", {"signed": True}),
    ("deltaproduct", {"heads": 2, "factors": 3}),
    ("deltaproduct", {"d_conv": 0, "factors": 1, "negative_eigenvalues": False}),
]
# What other tests registered by hand is theirs to judge; some of it is broken on purpose.
REGISTERED = [entry.name for entry in MIXERS.entries() if entry.origin != "local"]
PAPER = {"attention", "base_conv", "linear_attention", "h3", "hyena", "mamba", "deltanet"}


def test_the_suite_is_not_empty():
    assert set(REGISTERED) >= PAPER
    assert len(PROPERTIES) >= 17
    assert set(PROPERTIES) >= NEEDS_NAME


def assert_passes(name, options):
    results = check_mixer(name, options=options)
    assert [result.name for result in results] == list(PROPERTIES)
    assert not [(result.name, result.detail) for result in results if not result.passed]


@pytest.mark.parametrize("name", REGISTERED)
def test_registered(name):
    assert_passes(name, {})
    mixer = MIXERS.load(name)
    assert mixer.equation
    assert mixer.paper
    assert mixer.movers


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=lambda value: str(value))
def test_variants(name, options):
    assert_passes(name, options)
