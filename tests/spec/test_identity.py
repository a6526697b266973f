"""Ids are for ever: they name the training alone, and a new field, option, stage or mixer moves none of them."""

import json
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import Field, create_model

from mixerscope.errors import UserError
from mixerscope.mixers.mamba import Mamba
from mixerscope.registry import MIXERS, STAGES, TASKS
from mixerscope.spec import RunSpec, id_of, parse
from mixerscope.spec import run as run_module
from mixerscope.spec.options import options_model
from mixerscope.stages import Stage
from mixerscope.tasks import AR

GOLDEN = Path(__file__).parent / "golden_ids.json"
CASES: list[dict] = json.loads(GOLDEN.read_text())
BASE = {"task": "ar", "model": {"architecture": "mamba"}}


def ids() -> list[tuple[str, dict[str, str]]]:
    specs = [parse(RunSpec, case["spec"]) for case in CASES]
    return [(spec.run_id, {name: spec.stage_id(name) for name in spec.stages}) for spec in specs]


def recorded() -> list[tuple[str, dict[str, str]]]:
    return [(case["run_id"], case["stages"]) for case in CASES]


def test_the_ids_of_many_specs_are_what_they_always_were():
    assert len(CASES) >= 30
    assert len({case["run_id"] for case in CASES}) == len(CASES), "no two of them are the same training"
    assert ids() == recorded()


def test_a_new_field_of_a_spec_changes_no_id(monkeypatch):
    grown = create_model("TrainSpec", __base__=run_module.TrainSpec, dummy=(int, 7))
    model = create_model("ModelSpec", __base__=run_module.ModelSpec, dummy=(str, "as before"))
    whole = create_model(
        "RunSpec", __base__=RunSpec, train=(grown, grown()), model=(model, ...), dummy=(list[int], Field([1, 2]))
    )
    for case in CASES:
        spec = parse(whole, case["spec"])
        assert (spec.train.dummy, spec.model.dummy) == (7, "as before")
        assert spec.run_id == case["run_id"]
    assert parse(whole, BASE | {"train": {"dummy": 8}}).run_id != parse(RunSpec, BASE).run_id


def test_a_new_field_of_a_task_or_a_stage_changes_no_id(monkeypatch):
    task = create_model("AR", __base__=AR, dummy=(float, 0.5))
    monkeypatch.setitem(TASKS._loaded, "ar", task)
    for name in ("patch", "judge", "emergence"):
        grown = create_model(name, __base__=STAGES.load(name), dummy=(bool, False))
        monkeypatch.setitem(STAGES._loaded, name, grown)
    assert ids() == recorded()
    assert parse(RunSpec, BASE | {"task": {"name": "ar", "dummy": 0.25}}).run_id != parse(RunSpec, BASE).run_id


def test_a_new_option_of_a_mixer_changes_no_id(monkeypatch):
    class Grown(Mamba):
        def __init__(
            self,
            width: int,
            *,
            d_state: int = 16,
            d_conv: int = 4,
            expand: int = 2,
            signed: bool = False,
            dummy: int = 3,
        ) -> None:
            super().__init__(width, d_state=d_state, d_conv=d_conv, expand=expand, signed=signed)

    known = set(options_model(Mamba).model_fields)
    assert known <= set(options_model(Grown).model_fields) != known
    monkeypatch.setitem(MIXERS._loaded, "mamba", Grown)
    monkeypatch.setattr(Grown, "__module__", "mixerscope.mixers.mamba")
    assert ids() == recorded()
    other = {"model": {"architecture": "mamba", "options": {"dummy": 4}}}
    assert parse(RunSpec, BASE | other).run_id != parse(RunSpec, BASE).run_id


def test_a_new_revision_of_mamba_moves_the_ids_with_mamba_and_no_others(monkeypatch):
    monkeypatch.setattr(Mamba, "revision", Mamba.revision + 1)
    for case, (found, _) in zip(CASES, ids(), strict=True):
        has_mamba = "mamba" in parse(RunSpec, case["spec"]).identity["model"]["mixers"]
        assert (found != case["run_id"]) == has_mamba, case["spec"]
    assert any("mamba" in case["spec"]["model"]["architecture"] for case in CASES)


def test_the_id_names_the_training_alone():
    spec = parse(RunSpec, BASE)
    for stages in ({}, {"patch": {}}, {"patch": {"documents": 7}, "judge": {"rules": {"carries": 0.7}}}):
        assert parse(RunSpec, BASE | {"stages": stages}).run_id == spec.run_id


def test_an_analysis_has_the_id_of_its_own_settings_and_of_what_it_reads():
    def stage_id(name: str, **stages: dict) -> str:
        return parse(RunSpec, BASE | {"stages": {"patch": {}, "judge": {}, **stages}}).stage_id(name)

    assert stage_id("patch", judge={"rules": {"carries": 0.7}}) == stage_id("patch")
    assert stage_id("judge", judge={"rules": {"carries": 0.7}}) != stage_id("judge")
    assert stage_id("judge", judge={"rules": {"carries": 0.5}}) == stage_id("judge")
    assert stage_id("judge", patch={"documents": 7}) != stage_id("judge"), "it judges other numbers"
    assert stage_id("patch", patch={"slots": ["key"]}) == stage_id("patch"), "the first slot is the default"
    assert stage_id("patch", patch={"slots": ["value"]}) != stage_id("patch")
    other = parse(RunSpec, {**BASE, "seed": 3}).stage_id("patch")
    assert other == stage_id("patch"), "the same for every run with these settings"


def test_a_default_of_a_pattern_written_out_or_left_out_gives_one_id():
    def pattern(**layer: object) -> str:
        options = {"layers": [{"mixer": "mamba", **layer}, {"mixer": "attention"}]}
        return parse(RunSpec, {"task": "ar", "model": {"architecture": "pattern", "options": options}}).run_id

    assert pattern() == pattern(options={"d_conv": 4}) == pattern(mlp=False, norm="rms", short_conv=0)
    assert len({pattern(), pattern(options={"d_conv": 2}), pattern(mlp=True), pattern(short_conv=3)}) == 4


def test_positions_that_an_architecture_has_anyway_are_not_in_the_id():
    def attention(**fields: object) -> str:
        return parse(RunSpec, {"task": "ar", "model": {"architecture": "attention", **fields}}).run_id

    assert attention() == attention(positions="learned")
    assert attention() != attention(positions="none")


@pytest.mark.parametrize("layers", [3.0, "3"])
def test_a_number_of_layers_in_another_spelling_is_the_same_model(layers: object):
    def attention(layers: object) -> RunSpec:
        return parse(RunSpec, {"task": "ar", "model": {"architecture": "attention", "layers": layers}})

    assert attention(layers) == attention(3)
    assert attention(layers).run_id == attention(3).run_id
    assert attention(layers).model.positions == "learned"


def test_a_zero_has_no_sign():
    minus, plus = ({"train": {"warmup": zero}} for zero in (-0.0, 0))
    assert parse(RunSpec, BASE | minus).run_id == parse(RunSpec, BASE | plus).run_id != parse(RunSpec, BASE).run_id


def test_a_field_of_a_task_counts_whatever_it_is_called(monkeypatch):
    task = create_model("AR", __base__=AR, objective=(str, "a"), stages=(int, 3), task=(int, 1))
    monkeypatch.setitem(TASKS._loaded, "ar", task)
    fields = ({}, {"objective": "b"}, {"stages": 4}, {"task": 2})
    assert len({parse(RunSpec, BASE | {"task": {"name": "ar", **field}}).run_id for field in fields}) == 4


def test_a_part_of_a_spec_is_not_set_back_to_its_defaults_by_accident():
    spec = parse(RunSpec, BASE | {"train": {"steps": 7}})
    with pytest.raises(UserError, match=r"spec\.changed\(train=spec\.train\.changed"):
        spec.changed(train={"lr": 0.1})
    assert spec.changed(train=spec.train.changed(lr=0.1)).train.steps == 7


def test_stages_come_in_the_order_in_which_they_need_each_other():
    spec = parse(RunSpec, BASE | {"stages": {"judge": {}, "patch": {}}})
    assert list(spec.stages) == ["patch", "judge"]
    with pytest.raises(ValueError, match="'judge' needs the stage 'patch'"):
        parse(RunSpec, BASE | {"stages": ["judge"]})


def test_stages_register_like_mixers_do(monkeypatch):
    class Mine(Stage):
        needs: ClassVar[tuple[str, ...]] = ("patch",)
        strength: float = 1.0

    STAGES.register("mine")(Mine)
    try:
        spec = parse(RunSpec, BASE | {"stages": {"patch": {}, "mine": {"strength": 2.0}}})
        assert spec.stages["mine"] == Mine(strength=2.0)
        identity = spec.stage_identity("mine")
        assert identity["settings"] == {"strength": 2.0}
        assert "sha256" in identity["code"], "code from outside is part of the identity"
        assert spec.stage_id("mine") == id_of(identity)
        again = RunSpec.model_validate_json(spec.model_dump_json())
        assert again.stage_id("mine") == spec.stage_id("mine")
    finally:
        del STAGES._entries["mine"], STAGES._loaded["mine"]


def test_an_edit_written_in_another_way_is_the_same_analysis():
    def patched(*edits: str) -> str:
        return parse(RunSpec, BASE | {"stages": {"patch": {"edits": ["swap", *edits]}}}).stage_id("patch")

    assert patched("noise:scale=0.50") == patched("noise:seed=0,scale=.5") != patched("noise")
    assert patched("noise:scale=1") == patched("noise")


@pytest.mark.parametrize(
    ("stages", "complaint"),
    [
        ({"pach": {}}, "stages: no stage named 'pach'; did you mean 'patch'"),
        ({"patch": {"document": 3}}, "Patch has no field 'document'; did you mean 'documents'"),
        ({"patch": 3}, "patch: a stage's settings are an object, got 3"),
        (7, "stages are names, or an object"),
        ([["a"]], "stages are names, or an object"),
        ({"patch": {"slots": ["kex"]}}, "no slot 'kex'"),
        ({"patch": {"edits": ["zero"]}}, "'swap' is among the edits"),
        ({"patch": {"edits": ["swap", "zeros"]}}, "no edit named 'zeros'; did you mean 'zero'"),
        ({"patch": {"edits": ["swap", "noise:scal=2"]}}, "noise has no setting 'scal'"),
    ],
)
def test_wrong_stages_are_one_sentence(stages: object, complaint: str):
    with pytest.raises(ValueError, match=r"stages|Patch|patch|slot") as caught:
        parse(RunSpec, BASE | {"stages": stages})
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)
