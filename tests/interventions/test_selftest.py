"""The self-test must pass sound models and refuse each way in which an intervention can lie."""

import pytest
import torch
from torch import Tensor

from mixerscope.errors import SelfTestFailed
from mixerscope.interventions import PairSettings, interchange, make_pairs, plan_grid, self_test
from mixerscope.interventions.plan import editable_sites
from mixerscope.mixers import InitRule, Mixer
from mixerscope.model import build_model
from mixerscope.registry import register
from mixerscope.sites import Site
from mixerscope.spec import ModelSpec
from mixerscope.tasks import AR

TASK = AR(num_pairs=3, num_keys=6, num_values=6)
PAIRS = make_pairs(TASK, PairSettings(documents=6), data_seed=0)


class Broken(Mixer):
    """A mixer with one inner site, to be broken in different ways."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))
        self.inner = Site()

    def init_weights(self, rng: torch.Generator, rule: InitRule) -> None:
        torch.nn.init.normal_(self.weight, generator=rng)

    def state_size(self, length: int) -> int:
        return 0


@register("mixer", "broken/silent")
class Silent(Broken):
    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


@register("mixer", "broken/thrown_away")
class ThrownAway(Broken):
    def forward(self, x: Tensor) -> Tensor:
        self.inner(x)
        return x * self.weight


@register("mixer", "broken/not_causal")
class NotCausal(Broken):
    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).flip(1).cumsum(1).flip(1) * self.weight


@register("mixer", "broken/twice")
class Twice(Broken):
    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x * self.weight) + self.inner(x)


@register("mixer", "broken/restless")
class Restless(Broken):
    """Gives another answer at every call, so that nothing can be compared."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        Restless.calls += 1
        return self.inner(x) * self.weight * Restless.calls


@pytest.mark.parametrize(
    ("mixer", "complaint"),
    [
        ("broken/silent", "never fires"),
        ("broken/thrown_away", "thrown away"),
        ("broken/not_causal", "not causal"),
        ("broken/twice", "more than once"),
        ("broken/restless", "changes the logits"),
    ],
)
def test_each_lie_is_caught(mixer: str, complaint: str):
    model = build_model(ModelSpec(architecture=mixer, width=8), TASK.vocab_size, seed=0)
    plan = plan_grid(model, PAIRS, sites=["blocks.0.mixer.inner"])
    with pytest.raises(SelfTestFailed, match=f"'blocks.0.mixer.inner' cannot be trusted: .*{complaint}"):
        interchange(model, PAIRS, plan)


@pytest.mark.parametrize("architecture", ["attention", "based", "mamba"])
def test_sound_models_pass_with_an_exact_identity(architecture: str):
    model = build_model(ModelSpec(architecture=architecture, width=16), TASK.vocab_size, seed=0)
    with torch.inference_mode():
        tested = self_test(model, PAIRS, editable_sites(model))
    assert len(tested.sites) == len(editable_sites(model))
    assert all(site.identity_exact for site in tested.sites)
    assert max(site.resume_error for site in tested.sites) < 1e-5


def test_a_component_the_weights_ignore_is_dead_not_broken():
    model = build_model(ModelSpec(architecture="attention", width=16), TASK.vocab_size, seed=0)
    with torch.no_grad():
        model.layers()[0].mixer.out_proj.weight.zero_()
    with torch.inference_mode():
        tested = self_test(model, PAIRS, ["blocks.0.mixer.v", "blocks.1.mixer.v"])
    assert [site.dead for site in tested.sites] == [True, False]


@torch.no_grad()
def test_logits_that_are_not_finite_are_called_so():
    model = build_model(ModelSpec(architecture="attention", width=16), TASK.vocab_size, seed=0)
    model.token_embedding.weight[PAIRS.original.tokens[0, 1]] = float("nan")
    with pytest.raises(SelfTestFailed, match="cannot be trusted: the model's own logits are not finite"):
        interchange(model, PAIRS)
