"""The state of a mixer as a site: writing the source's state is resuming the recurrence from it."""

import pytest
import torch
from torch import Tensor

from mixerscope.errors import SelfTestFailed, UserError
from mixerscope.interventions import Cell, PairSettings, interchange, make_pairs, plan_grid, self_test, state_sites
from mixerscope.interventions.effects import Effects
from mixerscope.interventions.states import read_states
from mixerscope.mixers import Mixer
from mixerscope.mixers.base import State
from mixerscope.model import build_model
from mixerscope.randomness import stream
from mixerscope.registry import register
from mixerscope.sites import edit, record
from mixerscope.spec import ModelSpec
from mixerscope.tasks import AR

TASK = AR(num_pairs=2, num_keys=4, num_values=4)
PAIRS = make_pairs(TASK, PairSettings(documents=5), data_seed=0)
RECURRENT = [
    "mamba",
    "mamba2",
    "gla",
    "deltanet",
    "gated_deltanet",
    "deltaproduct",
    "retnet",
    "rwkv7",
    "lstm",
    "gru",
    "linear_attention",
]
OTHERS = ["attention", "h3", "hyena", "base_conv"]


def make(architecture: str):
    spec = ModelSpec(architecture=architecture, width=8, layers=2, max_length=16, init="small_model")
    model, rng = build_model(spec, TASK.vocab_size, seed=1).double(), stream(0, "stir")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=rng, dtype=parameter.dtype)
    return model


def steps(mixer: Mixer, x: Tensor, state: State | None = None) -> tuple[list[Tensor], State]:
    state = mixer.initial_state(x[:, 0]) if state is None else state
    outputs = []
    for t in range(x.shape[1]):
        y, state = mixer.step(x[:, t], state)
        outputs.append(y)
    return outputs, state


@torch.no_grad()
@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("architecture", RECURRENT + OTHERS)
def test_writing_the_sources_state_is_resuming_from_it(architecture: str, layer: int):
    model = make(architecture)
    site, inputs = f"blocks.{layer}.mixer.state", f"blocks.{layer}.mixer_in"
    assert site in state_sites(model)
    grid = interchange(model, PAIRS, plan_grid(model, PAIRS, [site], ["key", "value"]), batch_documents=2)
    mixer = model.layers()[layer].mixer
    read, answers = PAIRS.original.answers()
    rows = torch.arange(len(PAIRS))
    for cell, measured in grid.cells.items():
        base, source = PAIRS.corrupted["key"], PAIRS.original
        if cell.direction == "break":
            base, source = source, base
        with record(model, [inputs]) as of_base:
            model(base.tokens)
        with record(model, [inputs]) as of_source:
            model(source.tokens)
        mixed = []
        for i, t in enumerate(PAIRS.positions(cell.role).tolist()):
            x, other = of_base[inputs][i : i + 1], of_source[inputs][i : i + 1]
            before, _ = steps(mixer, x[:, : t + 1])
            _, state = steps(mixer, other[:, : t + 1])
            after, _ = steps(mixer, x[:, t + 1 :], state)
            mixed.append(torch.stack([*before, *after], 1))
        with edit(model, {f"blocks.{layer}.mixer_out": lambda _, mixed=mixed: torch.cat(mixed)}):
            want = Effects.of(model(base.tokens)[rows, read], answers)
        torch.testing.assert_close(measured.effects.likelihood, want.likelihood, rtol=1e-9, atol=0)
        torch.testing.assert_close(measured.effects.logit, want.logit, rtol=1e-8, atol=1e-10)
    if architecture in RECURRENT and layer == 0:
        restored = grid.cells[Cell("key", "restore", site, "key")]
        assert restored.status == "measured"
        assert (restored.effects.logit - grid.corrupted["key"].logit).abs().max() > 1e-6


@pytest.mark.parametrize("name", ["zero", "mean", "resample", "noise"])
def test_every_edit_works_on_a_state(name: str):
    model = make("mamba2")
    plan = plan_grid(model, PAIRS, state_sites(model), ["divider", "divider-1&divider"], edits=[name])
    grid = interchange(model, PAIRS, plan)
    assert all(measured.status == "measured" for measured in grid.cells.values())
    assert max(float(measured.effects.kl.max()) for measured in grid.cells.values()) > 1e-9


def test_states_of_different_sizes_do_not_stand_in_for_one_another():
    model = make("attention")
    plan = plan_grid(model, PAIRS, ["blocks.0.mixer.state"], ["key"], edits=["resample"])
    assert len(set(PAIRS.positions("key").tolist())) > 1
    with pytest.raises(UserError, match=r"'blocks.0.mixer.state' has between \d+ and \d+ numbers"):
        interchange(model, PAIRS, plan)


def test_a_state_after_the_position_that_is_read_has_no_path():
    model = make("gla")
    cells = interchange(model, PAIRS, plan_grid(model, PAIRS, ["blocks.1.mixer.state"], ["query"])).cells
    assert {(m.status, m.reason) for m in cells.values()} == {
        ("no path", "the state after that position is not carried on to the one that is read")
    }


@torch.no_grad()
def test_read_states_are_those_of_the_steps():
    mixer = make("mamba").layers()[0].mixer
    x = torch.randn(2, 6, 8, generator=stream(0, "x"), dtype=torch.float64)
    found = read_states(mixer, x)
    for t in range(6):
        _, state = steps(mixer, x[:, : t + 1])
        flat = torch.cat([part.flatten(1) for part in state], 1)
        assert torch.equal(found[:, t, : flat.shape[1]], flat)
        assert flat.shape[1] == mixer.state_size(t + 1)
        assert bool((found[:, t, flat.shape[1] :] == 0).all())


class Stepping(Mixer):
    """A running sum, whose step form is broken in different ways."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def init_weights(self, rng, rule) -> None:
        torch.nn.init.normal_(self.weight, generator=rng)

    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(1) * self.weight

    def initial_state(self, x: Tensor) -> State:
        return (torch.zeros_like(x),)

    def state_size(self, length: int) -> int:
        return len(self.weight)


@register("mixer", "stepping/sound")
class Sound(Stepping):
    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return (state[0] + x) * self.weight, (state[0] + x,)


@register("mixer", "stepping/ignored")
class Ignored(Stepping):
    """Keeps a state and reads another."""

    def initial_state(self, x: Tensor) -> State:
        self.hidden = torch.zeros_like(x)
        return super().initial_state(x)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        self.hidden = self.hidden + x
        return self.hidden * self.weight, (state[0] + x,)


@torch.no_grad()
def test_the_self_test_covers_states():
    sound = build_model(ModelSpec(architecture="stepping/sound", width=8), TASK.vocab_size, seed=0)
    [tested] = self_test(sound, PAIRS, ["blocks.1.mixer.state"]).sites
    facts = (tested.fires, tested.identity_exact, tested.noise_moves_later, tested.noise_moves_earlier)
    assert facts == (True, True, True, False)
    ignored = build_model(ModelSpec(architecture="stepping/ignored", width=8), TASK.vocab_size, seed=0)
    with pytest.raises(SelfTestFailed, match=r"'blocks.1.mixer.state' cannot be trusted: .*thrown away"):
        self_test(ignored, PAIRS, ["blocks.1.mixer.state"])
