"""Writing back what is there changes no bit, at widths where vectorised functions leave a remainder."""

import pytest
import torch

from mixerscope.interventions import PairSettings, make_pairs
from mixerscope.interventions.plan import editable_sites
from mixerscope.interventions.selftest import self_test
from mixerscope.model import build_model
from mixerscope.spec import ModelSpec
from mixerscope.tasks import AR


@pytest.mark.parametrize("architecture", ["attention", "based", "mamba"])
@pytest.mark.parametrize("width", [4, 12, 24])
def test_identity_patch_is_exact_at_odd_widths(architecture, width):
    task = AR(num_pairs=3, num_keys=8, num_values=8)
    model = build_model(ModelSpec(architecture=architecture, width=width), task.vocab_size, 0).eval()
    pairs = make_pairs(task, PairSettings(documents=4), 0)
    with torch.inference_mode():
        tested = self_test(model, pairs, editable_sites(model))
    assert all(site.identity_exact for site in tested.sites)
