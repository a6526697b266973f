"""Every architecture can be patched: all of its sites pass the self-test, and every cell of its grid is settled."""

import pytest

from mixerscope.interventions import PairSettings, interchange, make_pairs
from mixerscope.interventions.plan import editable_sites
from mixerscope.model import build_model
from mixerscope.registry import architecture_entries
from mixerscope.spec import ModelSpec
from mixerscope.tasks import AR

PAPER = ("attention", "base_conv", "based", "h3", "hyena", "mamba", "deltanet")
VARIANTS = [
    ("attention", {"heads": 2, "relative": "rope"}),
    ("attention", {"relative": "alibi"}),
    ("base_conv", {"kernels": ["long"]}),
    ("based", {"kernel": "long"}),
    ("mamba", {"d_conv": 0}),
    ("deltanet", {"d_conv": 0, "heads": 2}),
    ("mamba", {"signed": True}),
    ("pattern", {"layers": [{"mixer": "lstm", "residual": False, "norm": "none", "mlp": False}]}),
    ("pattern", {"layers": [{"mixer": "gru", "residual": False}, {"mixer": "attention"}]}),
]
NEEDS_OPTIONS = {"pattern"}
BUILT_IN = [
    entry.name for entry in architecture_entries() if entry.origin == "mixerscope" and entry.name not in NEEDS_OPTIONS
]
TASK = AR(num_pairs=3, num_keys=6, num_values=6)


def test_the_paper_is_complete():
    assert set(BUILT_IN) >= set(PAPER)


@pytest.mark.parametrize(("architecture", "options"), [*((name, {}) for name in BUILT_IN), *VARIANTS], ids=str)
def test_all_sites_can_be_trusted(architecture, options):
    spec = ModelSpec(architecture=architecture, width=16, options=options)
    model = build_model(spec, TASK.vocab_size, seed=0)
    grid = interchange(model, make_pairs(TASK, PairSettings(documents=4), data_seed=0))
    tested = {test.site for test in grid.self_test.sites}
    assert tested == set(editable_sites(model))
    assert all(any(site.startswith(f"blocks.{layer}.mixer.") for site in tested) for layer in (0, 1))
    assert {measured.status for measured in grid.cells.values()} <= {"measured", "same", "no path"}
