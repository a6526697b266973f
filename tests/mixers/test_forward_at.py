"""The output at one position alone must be what the whole output has there, for every mixer and its variants."""

import pytest
import torch

from mixerscope.check import Subject
from mixerscope.mixers.attention import Attention
from mixerscope.registry import MIXERS

VARIANTS = [("attention", {"heads": 2}), ("attention", {"relative": "rope"}), ("mamba", {"d_conv": 0})]


@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in MIXERS.names() if "/" not in name), *VARIANTS])
def test_one_position_alone(name, options):
    subject = Subject(MIXERS.load(name), name, 8, options)
    mixer, x = subject.build(), subject.documents(3, 9)
    at = torch.tensor([8, 0, 4])
    torch.testing.assert_close(mixer.forward_at(x, at), mixer(x)[torch.arange(3), at], rtol=1e-10, atol=1e-12)


def test_a_subclass_with_its_own_forward_does_not_inherit_the_shortcut():
    class Doubled(Attention):
        def forward(self, x):
            return 2 * super().forward(x)

    subject = Subject(Doubled, None, 8)
    mixer, x, at = subject.build(), subject.documents(2, 5), torch.tensor([3, 4])
    torch.testing.assert_close(mixer.forward_at(x, at), mixer(x)[torch.arange(2), at], rtol=0, atol=0)
