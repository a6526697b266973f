"""The output at one position alone must be what the whole output has there, for every mixer and its variants."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mixerscope.check import Subject
from mixerscope.mixers.attention import Attention
from mixerscope.registry import MIXERS

VARIANTS = [("attention", {"heads": 2}), ("attention", {"relative": "rope"}), ("mamba", {"d_conv": 0})]


@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in MIXERS.names() if "/" not in name), *VARIANTS])
def test_one_position_alone(name, options):
    subject = Subject(MIXERS.load(name), name, 8, options)
    mixer, x = subject.build(), subject.documents(3, 9)
    at = torch.tensor([8, 0, 4])
    everywhere = mixer(x)[torch.arange(3), at]
    torch.testing.assert_close(mixer.forward_at(x, at), everywhere, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(mixer.learn_at(x, at), everywhere, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "terms"),  # of products that no other position needs, in widths: 8 positions of 9 of each are spared
    [
        ("attention", 4),
        ("base_conv", 1),
        ("linear_attention", 2),
        ("deltanet", 1),
        ("h3", 2),
        ("hyena", 1),
        ("mamba", 4),
    ],
)
def test_learning_from_one_position_spares_the_others_products(name, terms):
    subject = Subject(MIXERS.load(name), name, 32)
    mixer, x = subject.build(), subject.documents(3, 9)

    def products(run):
        with FlopCounterMode(display=False) as counter:
            run()
        return counter.get_total_flops()

    spared = products(lambda: mixer(x)) - products(lambda: mixer.learn_at(x, torch.tensor([8, 0, 4])))
    assert spared >= 2 * 3 * 8 * terms * 32**2


def test_a_subclass_with_its_own_forward_does_not_inherit_the_shortcut():
    class Doubled(Attention):
        def forward(self, x):
            return 2 * super().forward(x)

    subject = Subject(Doubled, None, 8)
    mixer, x, at = subject.build(), subject.documents(2, 5), torch.tensor([3, 4])
    torch.testing.assert_close(mixer.forward_at(x, at), mixer(x)[torch.arange(2), at], rtol=0, atol=0)
