"""What our own components compute, and their defaults, change with their revision only."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mixerscope.analysis import Rules, quantiles
from mixerscope.interventions import plan
from mixerscope.mixers.attention import Attention
from mixerscope.mixers.base import InitRule
from mixerscope.registry import ARCHITECTURES, MIXERS
from mixerscope.spec import ModelSpec, TrainSpec
from mixerscope.spec.architectures import Based, LayerSpec
from mixerscope.spec.options import options_model
from mixerscope.stages.emergence import Emergence
from mixerscope.stages.patch import Patch
from mixerscope.tasks import AR, ATR, Batch, GrammarRecipe
from mixerscope.training import Answer, stack
from tests.golden import record
from tests.golden.compare import complaints
from tests.golden.pins import (
    MIXER_VARIANTS,
    PATTERN_VARIANTS,
    Pinned,
    built_in,
    default_pins,
    defaults_of,
    mixer_pins,
    model_pins,
    task_pins,
)
from tests.golden.pipeline import makers, stage_pins, training_pins

MAKERS = makers()
COMPONENTS = [(file, name) for file, components in MAKERS.items() for name in components]
RAISE = "raise `revision` of {} and record it with python -m tests.golden.record"


def recorded(file: str, name: str) -> dict[str, Any]:
    return record.load(record.FOLDER, file)[name]


def complaint_about(file: str, name: str, found: Pinned) -> str:
    return "\n".join(complaints(recorded(file, name), found))


@pytest.mark.parametrize(("file", "name"), COMPONENTS)
def test_a_component_does_what_is_recorded_of_its_revision(file, name):
    found = MAKERS[file][name]()
    wrong = complaints(record.load(record.FOLDER, file).get(name), found)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("file", MAKERS)
def test_the_record_names_no_component_that_is_gone(file):
    gone = record.load(record.FOLDER, file).keys() - MAKERS[file].keys()
    assert not gone, f"{gone} cannot be found any more; record it with python -m tests.golden.record"


@pytest.mark.parametrize("name", built_in(MIXERS.entries()))
def test_each_option_of_a_mixer_is_tried_and_changes_something(name):
    tried = {option for options in MIXER_VARIANTS.get(name, []) for option in options}
    assert tried == set(options_model(MIXERS.load(name)).model_fields), "give MIXER_VARIANTS a setting of each option"
    cases = recorded("mixers", name)["cases"]
    assert len({json.dumps(case) for case in cases.values()}) == len(cases)


@pytest.mark.parametrize("name", built_in(ARCHITECTURES.entries()))
def test_each_option_of_a_layer_pattern_is_tried_and_changes_something(name):
    tried = {option for options in PATTERN_VARIANTS.get(name, []) for option in options}
    assert tried == set(ARCHITECTURES.load(name).model_fields), "give PATTERN_VARIANTS a setting of each option"
    cases = recorded("models", name)["cases"]
    assert len({json.dumps(case) for case in cases.values()}) == len(cases)


# The guard itself: each of these changes would otherwise give new results the ids of old ones.


def scale_attention(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    plain = Attention.forward

    def forward(self: Attention, x: Tensor) -> Tensor:
        return plain(self, x) * factor

    monkeypatch.setattr(Attention, "forward", forward)


def test_a_mixer_that_computes_something_slightly_else_is_found(monkeypatch):
    scale_attention(monkeypatch, 1 + 1e-6)
    wrong = complaint_about("mixers", "attention", mixer_pins("attention"))
    assert "mixer attention, heads=4: output.at[0] was " in wrong
    assert RAISE.format("Attention") in wrong
    wrong = complaint_about("models", "pattern", model_pins("pattern"))
    assert RAISE.format("ModelSpec or Pattern or Attention or Mamba or GRU") in wrong


def test_rounding_is_not_a_change(monkeypatch):
    scale_attention(monkeypatch, 1 + 1e-13)
    assert not complaint_about("mixers", "attention", mixer_pins("attention"))
    assert not complaint_about("models", "attention", model_pins("attention"))


def test_weights_that_start_otherwise_are_found(monkeypatch):
    def std(self: InitRule, linear: nn.Linear) -> float:
        return 0.021

    monkeypatch.setattr(InitRule, "std", std)
    wrong = complaint_about("mixers", "attention", mixer_pins("attention"))
    assert RAISE.format("Attention") in wrong


def test_a_site_that_stands_elsewhere_is_found(monkeypatch):
    plain = Attention._project

    def longer_keys(self: Attention, x: Tensor) -> tuple[Tensor, ...]:
        q, k, v = plain(self, x)
        return q, k * 2, v

    monkeypatch.setattr(Attention, "_project", longer_keys)
    found = mixer_pins("attention")
    # With the output as it was, only what stands at the site is left to tell.
    for case, before in recorded("mixers", "attention")["cases"].items():
        found.cases[case] = {**before, "sites": found.cases[case]["sites"]}
    assert "sites.k was " in complaint_about("mixers", "attention", found)


def test_a_task_with_other_documents_is_found(monkeypatch):
    plain = AR.sample

    def last_first(self: AR, n: int, *args: Any) -> Batch:
        return plain(self, n, *args)[torch.arange(n).flip(0)]

    monkeypatch.setattr(AR, "sample", last_first)
    wrong = complaint_about("tasks", "ar", task_pins("ar"))
    assert "task ar, preset noisy: train was " in wrong
    assert RAISE.format("AR") in wrong


def test_a_task_with_other_counterfactuals_or_another_solver_is_found(monkeypatch):
    plain = ATR.read_answers
    monkeypatch.setattr(ATR, "read_answers", lambda self, batch: plain(self, batch) + 1)
    assert "task atr, preset paper: train answers was " in complaint_about("tasks", "atr", task_pins("atr"))
    classes = AR.symbol_class
    monkeypatch.setattr(AR, "symbol_class", lambda self, slot, symbols: classes(self, slot, "slot-class"))
    wrong = complaint_about("tasks", "ar", task_pins("ar"))
    assert "task ar, preset paper: corrupt value query-class was " in wrong


def test_another_default_of_a_mixer_is_found(monkeypatch):
    monkeypatch.setitem(Attention.__init__.__kwdefaults__, "heads", 2)
    options_model.cache_clear()
    try:
        wrong = complaint_about("defaults", "mixer attention", default_pins("mixer", "attention"))
    finally:
        options_model.cache_clear()
    assert wrong == f"defaults of mixer attention, heads: was 1, is 2; {RAISE.format('Attention')}"


class OtherAR(AR):
    num_pairs: int = 8


class WiderAR(AR):
    brand_new: int = 0


class OtherBased(Based):
    kernel: int | str = 3.0


def test_another_default_of_a_task_or_a_layer_pattern_is_found():
    wrong = complaint_about("defaults", "task ar", defaults_of("task ar", AR, OtherAR))
    assert wrong == f"defaults of task ar, num_pairs: was 16, is 8; {RAISE.format('AR')}"
    # Equal in Python, but the JSON that ids hash is another.
    wrong = complaint_about("defaults", "architecture based", defaults_of("architecture based", Based, OtherBased))
    assert "kernel: was 3, is 3.0" in wrong


def test_another_default_of_a_spec_inside_a_field_is_found(monkeypatch):
    for spec, field, name, change in (
        (GrammarRecipe, "seed", "task atr", "grammar[GrammarRecipe].seed: was 0, is 7"),
        (LayerSpec, "short_conv", "architecture pattern", "layers[LayerSpec].short_conv: was 0, is 7"),
    ):
        monkeypatch.setattr(spec.model_fields[field], "default", 7)
        assert change in complaint_about("defaults", name, default_pins(*name.split()))


@pytest.mark.parametrize(
    ("spec", "field", "owners"),
    [
        (ModelSpec, "width", {"model": "ModelSpec"}),
        (TrainSpec, "steps", {"train": "TrainSpec"}),
        (Rules, "min_gap", {"stage judge": "Judge", "stage emergence": "Emergence"}),
        (Patch, "documents", {"stage patch": "Patch"}),
        (Emergence, "looks", {"stage emergence": "Emergence"}),
    ],
)
def test_another_default_of_a_run_or_a_stage_is_found(monkeypatch, spec, field, owners):
    monkeypatch.setattr(spec.model_fields[field], "default", 7)
    for name, make in MAKERS["defaults"].items():
        wrong = complaint_about("defaults", name, make())
        assert (RAISE.format(owners.get(name)) in wrong) == (name in owners), name


def test_a_trainer_that_does_something_slightly_else_is_found(monkeypatch):
    plain = stack.rate_factor
    monkeypatch.setattr(stack, "rate_factor", lambda train, step: plain(train, step) * (1 + 1e-6))
    wrong = complaint_about("training", "trainer", training_pins())
    assert "the trainer, cosine: weights.token_embedding.weight was " in wrong
    assert RAISE.format("TrainSpec") in wrong


def test_another_objective_under_the_usual_name_is_found(monkeypatch):
    plain = Answer.loss
    monkeypatch.setattr(Answer, "loss", lambda *inputs: plain(*inputs) * (1 + 1e-6))
    assert "curve[1][0] was " in complaint_about("training", "trainer", training_pins())


@pytest.mark.slow
def test_a_stage_that_measures_or_judges_otherwise_is_found(monkeypatch):
    monkeypatch.setattr(plan, "OFFSETS", (-1, 2, 3))
    assert "blurred induction: cells was " in complaint_about("stages", "patch", stage_pins("patch"))
    monkeypatch.undo()
    monkeypatch.setattr(quantiles, "LEVEL", 0.94)
    quantiles.t_quantile.cache_clear()
    try:
        for name, cls in (("patch", "Patch"), ("judge", "Judge"), ("emergence", "Emergence")):
            assert RAISE.format(cls) in complaint_about("stages", name, stage_pins(name))
    finally:
        quantiles.t_quantile.cache_clear()


def test_a_new_field_is_no_change_and_a_lost_one_is():
    entry = recorded("defaults", "task ar")
    assert complaints(entry, defaults_of("task ar", AR, WiderAR)) == []
    entry["cases"]["once"] = 1
    (wrong,) = complaints(entry, defaults_of("task ar", AR, WiderAR))
    assert wrong == f"defaults of task ar, once: is gone; {RAISE.format('AR')}"


def test_what_is_not_recorded_is_to_be_recorded():
    record_it = "record it with python -m tests.golden.record"
    found = mixer_pins("gru")
    assert complaints(None, found) == [f"mixer gru is not recorded; {record_it}"]
    entry = recorded("mixers", "gru")
    del entry["cases"]["reset_after=True"]
    assert complaints(entry, found) == [f"mixer gru, reset_after=True is not recorded; {record_it}"]


def test_the_recorder_takes_a_change_under_a_new_revision_only(monkeypatch, tmp_path):
    assert record.update(tmp_path, "mixers", {"attention": mixer_pins("attention")}) == []
    first = (tmp_path / "mixers.json").read_text()
    scale_attention(monkeypatch, 1 + 1e-13)
    assert record.update(tmp_path, "mixers", {"attention": mixer_pins("attention")}) == []
    assert (tmp_path / "mixers.json").read_text() == first, "rounding rewrote the record"

    scale_attention(monkeypatch, 2.0)
    refused = record.update(tmp_path, "mixers", {"attention": mixer_pins("attention")})
    assert RAISE.format("Attention") in refused[0]
    assert (tmp_path / "mixers.json").read_text() == first

    monkeypatch.setattr(Attention, "revision", 2)
    found = mixer_pins("attention")
    (stale,) = complaints(record.load(tmp_path, "mixers")["attention"], found)
    assert "has revision 2, its record 1; record it" in stale
    assert record.update(tmp_path, "mixers", {"attention": found}) == []
    assert complaints(record.load(tmp_path, "mixers")["attention"], found) == []

    monkeypatch.setattr(Attention, "revision", 1)
    (fell,) = record.update(tmp_path, "mixers", {"attention": mixer_pins("attention")})
    assert "`revision` fell from 2 to 1" in fell


def test_a_model_may_change_with_any_of_its_parts(monkeypatch):
    scale_attention(monkeypatch, 2.0)
    monkeypatch.setattr(Attention, "revision", 2)
    (stale,) = complaints(recorded("models", "pattern"), model_pins("pattern"))
    assert "'mixer attention': 2" in stale
    assert "record it" in stale
    assert complaints(recorded("models", "based"), model_pins("based")) == [], "it has no attention in it"


def test_the_recorder_keeps_new_fields_with_the_old():
    entry = record.merged(recorded("defaults", "task ar"), defaults_of("task ar", AR, WiderAR))
    assert entry["cases"] == {**recorded("defaults", "task ar")["cases"], "brand_new": 0}
