"""Deliberately broken mixers are refused, and the right test says so."""

import pytest
import torch
from torch import nn

from mixerscope.check import check_mixer
from mixerscope.errors import UserError
from mixerscope.mixers import Mixer, Mover
from mixerscope.randomness import construction
from mixerscope.sites import Site


class Sound(Mixer):
    """A running sum of a projection: small, and right. Each broken mixer below spoils one thing."""

    movers = (Mover("running sum", "total"),)

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, width)
        self.value = Site()
        self.total = Site()

    def forward(self, x):
        return self.total(self.value(self.proj(x)).cumsum(1))

    def state_size(self, length: int) -> int:
        return length * self.proj.in_features


class NotCausal(Sound):
    def forward(self, x):
        return super().forward(x).flip(1)


class SeesOneAhead(Sound):
    def forward(self, x):
        return super().forward(x) + torch.roll(x, -1, 1) * 1e-3


class DropsPositions(Sound):
    def forward(self, x):
        return super().forward(x)[:, 1:]


class MixesDocuments(Sound):
    def forward(self, x):
        return super().forward(x) - x.mean(0)


class OwnDevice(Sound):
    def forward(self, x):
        return super().forward(x) * torch.linspace(1, 2, x.shape[1], dtype=x.dtype)[:, None]


class Random(Sound):
    def forward(self, x):
        return super().forward(x) + torch.randn(x.shape, dtype=x.dtype)


class Dropout(Sound):
    def forward(self, x):
        return nn.functional.dropout(super().forward(x), 0.5)


class SilentSite(Sound):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.gate = Site()


class DoubleSite(Sound):
    def forward(self, x):
        return self.total(self.value(self.value(self.proj(x))).cumsum(1))


class DeadSite(Sound):
    """Fires, but what it returns is thrown away."""

    def forward(self, x):
        value = self.proj(x)
        self.value(value)
        return self.total(value.cumsum(1))


class SiteWithoutPositions(Sound):
    def forward(self, x):
        value = self.proj(x)
        return self.total(self.value(value.transpose(1, 2)).transpose(1, 2).cumsum(1))


class SiteWithOtherHeads(Sound):
    def __init__(self, width):
        super().__init__(width)
        self.value.heads = 4


class SiteChangesPath(Sound):
    """A tapped site takes another path, as a fused kernel would."""

    def forward(self, x):
        y = super().forward(x)
        return y * (1 + 1e-12) if self.value.taps else y


class SitesAcrossPositions(Sound):
    """The site sits in reversed time, so its position is not the document's."""

    def forward(self, x):
        return self.total(self.value(self.proj(x).flip(1)).flip(1).cumsum(1))


class WrongMover(Sound):
    movers = (Mover("scan", "scan_out"),)


class MoversOutOfOrder(Sound):
    movers = (Mover("running sum", "total"), Mover("projection", "value"))


class BreaksVmap(Sound):
    def forward(self, x):
        y = torch.zeros(x.shape, dtype=x.dtype)
        y[:] = super().forward(x)
        return y


class BranchesOnData(Sound):
    def forward(self, x):
        y = super().forward(x)
        return y if self.proj.weight.sum().item() > 1e9 else y * 2


class HiddenWeights(Sound):
    """A weight that is no parameter: neither saved nor trained nor stacked."""

    def init_weights(self, rng, rule):
        super().init_weights(rng, rule)
        self.secret = torch.randn(self.proj.in_features, generator=rng)

    def forward(self, x):
        return super().forward(x) * self.secret.to(x.dtype)


class UnusedWeight(Sound):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.extra = nn.Parameter(torch.ones(width))


class ForgottenWeight(Sound):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.scale = nn.Parameter(torch.empty(width))

    def forward(self, x):
        return super().forward(x) * self.scale


class GloballySeeded(Sound):
    def init_weights(self, rng, rule):
        self.proj.reset_parameters()


class InfiniteGradient(Sound):
    def forward(self, x):
        return super().forward(x) + torch.sqrt((x - x.detach()).abs())


class WrongStateSize(Sound):
    def state_size(self, length: int) -> int:
        return 7


class WrongStep(Sound):
    def step(self, x, state):
        y, state = super().step(x, state)
        return y * 1.000001, state


class Smuggler(Sound):
    """Keeps the history on the module instead of in the state."""

    def initial_state(self, x):
        self.history = x.new_zeros(x.shape[0], 0, x.shape[1])
        return (x.new_zeros(x.shape[0], 0),)

    def step(self, x, state):
        y, (self.history,) = super().step(x, (self.history,))
        return y, state

    def state_size(self, length: int) -> int:
        return 0


class LeaksBeyond(Sound):
    """Right for short documents."""

    beyond = 16

    def forward(self, x):
        y = super().forward(x)
        return y + torch.roll(x, -1, 1) if x.shape[1] > self.beyond else y


class LeaksBeyond40(LeaksBeyond):
    beyond = 40


class LeaksBeyond64(LeaksBeyond):
    beyond = 64


class LeaksBeyond500(LeaksBeyond):
    beyond = 500


class LeaksInSinglePrecision(Sound):
    def forward(self, x):
        y = super().forward(x)
        return y + torch.roll(x, -1, 1) if x.dtype == torch.float32 else y


class WrongStepBeyond64(Sound):
    def step(self, x, state):
        y, state = super().step(x, state)
        return (2 * y if state[0].shape[1] > 64 else y), state


class MixesLargeBatches(Sound):
    def forward(self, x):
        y = super().forward(x)
        return y - x.mean(0) if len(x) > 32 else y


class OtherModeOtherOutput(Sound):
    def forward(self, x):
        return super().forward(x) * (1.0 if self.training else 0.9)


class Leaves(Sound):
    def forward(self, x):
        raise SystemExit(0)


def refused(mixer):
    # Some of these draw from the global generator, which is what they are refused for.
    with construction(0):
        return {result.name: result.detail for result in check_mixer(mixer) if not result.passed}


def test_the_sound_one_passes():
    assert refused(Sound) == {}


@pytest.mark.parametrize(
    ("mixer", "test", "detail"),
    [
        (NotCausal, "causality", "moved an earlier output"),
        (SeesOneAhead, "causality", "moved an earlier output"),
        (DropsPositions, "shape", "became"),
        (MixesDocuments, "documents", "off those it gives among others"),
        (OwnDevice, "device", "cpu"),
        (Random, "determinism", "global random generator"),
        (Dropout, "determinism", "global random generator"),
        (SilentSite, "sites_fire", "'gate' never fired"),
        (DoubleSite, "sites_fire", "'value' fired 2 times"),
        (DeadSite, "sites_noise", "'value' changed nothing"),
        (SiteWithoutPositions, "sites_fire", "'value' holds [2, 16, 7]"),
        (SiteWithOtherHeads, "sites_fire", "'value' holds [2, 7, 16], expected [document = 2, position = 7, head = 4"),
        (SiteChangesPath, "sites_identity", "'value' held changed the output"),
        (SitesAcrossPositions, "sites_noise", "moved an earlier output"),
        (WrongMover, "movers", "'scan_out', which the mixer does not have"),
        (MoversOutOfOrder, "movers", "fire in the order"),
        (BreaksVmap, "cohort", "vmap"),
        (BranchesOnData, "cohort", ".item()"),
        (HiddenWeights, "state_dict", "not in the state dict"),
        (HiddenWeights, "cohort", "outputs differ"),
        (UnusedWeight, "gradients", "extra is not used"),
        (ForgottenWeight, "initialisation", "scale is not initialised"),
        (GloballySeeded, "initialisation", "proj.weight depends on more than the generator"),
        (InfiniteGradient, "gradients", "the input is not finite"),
        (WrongStateSize, "state_size", "16 numbers cross, declared are 7"),
        (WrongStep, "step", "differ from the parallel form"),
        (Smuggler, "carried_state", ""),
        (LeaksBeyond, "causality", "of 40 (float64) moved an earlier output"),
        (LeaksBeyond40, "causality", "of 64 (float64) moved an earlier output"),
        (LeaksBeyond64, "causality", "of 129 (float64) moved an earlier output"),
        (LeaksInSinglePrecision, "causality", "(float32) moved an earlier output"),
        (WrongStepBeyond64, "step", "at length 129 the steps differ"),
        (MixesLargeBatches, "documents", "off those it gives among others"),
        (OtherModeOtherOutput, "determinism", "`train()` and `eval()` give other outputs"),
        (Leaves, "shape", "SystemExit"),
    ],
)
def test_broken(mixer, test, detail):
    found = refused(mixer)
    assert test in found
    assert detail in found[test]


def test_a_further_length_is_tried_when_asked_for():
    assert refused(LeaksBeyond500) == {}
    found = {result.name: result.detail for result in check_mixer(LeaksBeyond500, length=501) if not result.passed}
    assert "of 501 (float64) moved an earlier output" in found["causality"]
    with pytest.raises(UserError, match="lengths from 1 to 100000, got 0"):
        check_mixer(Sound, length=0)


def test_a_class_that_is_no_mixer_is_the_callers_error():
    with pytest.raises(UserError, match="must be a subclass"):
        check_mixer(nn.Linear)


def test_a_width_it_cannot_take_is_the_callers_error():
    with pytest.raises(UserError, match="not divisible"):
        check_mixer("attention", width=10, options={"heads": 4})
