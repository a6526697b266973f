"""Specs: typos are refused with the nearest name, JSON goes both ways, the id is that of the resolved spec."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mixerscope.errors import UserError
from mixerscope.spec import RunSpec, labels, parse
from mixerscope.spec.presets import preset

BASE = {"task": "ar", "model": {"architecture": "mamba"}}


def test_json_both_ways():
    spec = parse(RunSpec, BASE)
    assert RunSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(
    "written_out",
    [
        {"task": {"name": "ar"}},
        {"task": {"name": "ar", "num_pairs": 16}},
        {"model": {"architecture": "mamba", "options": {"d_conv": 4}}},
        {"model": {"architecture": "mamba", "positions": "none", "layers": 2}},
        {"train": {"lr": 0.001}},
        {"seed": 0},
    ],
)
def test_a_default_written_out_gives_the_same_id(written_out: dict):
    assert parse(RunSpec, BASE | written_out).run_id == parse(RunSpec, BASE).run_id


@pytest.mark.parametrize(
    "changed",
    [
        {"task": {"name": "ar", "num_pairs": 8}},
        {"model": {"architecture": "mamba", "options": {"d_conv": 2}}},
        {"model": {"architecture": "attention"}},
        {"train": {"lr": 0.002}},
        {"seed": 1},
        {"data_seed": 1},
    ],
)
def test_any_change_gives_another_id(changed: dict):
    assert parse(RunSpec, BASE | changed).run_id != parse(RunSpec, BASE).run_id


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"model": {"architecture": "mambo"}}, "model: no architecture named 'mambo'; did you mean 'mamba'"),
        ({"task": "arr"}, "task: no task named 'arr'; did you mean 'ar' or 'atr'?"),
        ({"trian": {}}, "RunSpec has no field 'trian'; did you mean 'train'?"),
        ({"train": {"stepz": 3}}, "train: TrainSpec has no field 'stepz'; did you mean 'steps'?"),
        ({"task": {"name": "ar", "num_pair": 3}}, "task: "),
        ({"train": {"steps": "many"}}, "train.steps: input should be a valid integer"),
        (
            {"model": {"architecture": "mamba", "options": {"dconv": 3}}},
            "model: Mamba takes no option 'dconv'; did you",
        ),
        (
            {"model": {"architecture": "mamba", "options": {"d_conv": "x"}}},
            "model: Mamba option d_conv: input should be",
        ),
        (
            {"task": {"name": "ar", "num_pairs": 9, "num_keys": 8}},
            "task: num_pairs = 9 needs 9 distinct symbols, but num_keys = 8",
        ),
    ],
)
def test_wrong_input_is_one_sentence(data: dict, sentence: str):
    with pytest.raises(UserError) as caught:
        parse(RunSpec, BASE | data)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_specs_are_frozen():
    with pytest.raises(ValidationError):
        parse(RunSpec, BASE).seed = 3


@given(st.sampled_from(["attention", "based", "mamba", "base_conv"]), st.integers(1, 4), st.integers(1, 64))
def test_round_trip_keeps_the_id(architecture: str, layers: int, steps: int):
    spec = parse(
        RunSpec, {"task": "ar", "model": {"architecture": architecture, "layers": layers}, "train": {"steps": steps}}
    )
    again = RunSpec.model_validate_json(spec.model_dump_json())
    assert again.run_id == spec.run_id
    assert len(again.model.layer_specs()) == layers


def test_attention_gets_positions_and_state_space_models_do_not():
    assert parse(RunSpec, BASE | {"model": {"architecture": "attention"}}).model.positions == "learned"
    assert parse(RunSpec, BASE).model.positions == "none"


def test_a_training_older_than_an_option_is_at_its_default():
    def training(**options) -> dict:
        settings = {"architecture": "deltanet", "width": 16, "options": options}
        return RunSpec.model_validate({"task": {"name": "ar"}, "model": settings}).training()

    old = training()
    del old["model"]["options"]["negative_eigenvalues"]
    assert labels([old, training()]) == ["deltanet", "deltanet"]
    assert labels([old, training(negative_eigenvalues=True)]) == [
        "deltanet negative_eigenvalues=false",
        "deltanet negative_eigenvalues=true",
    ]


def test_the_small_preset_asks_what_there_is_to_ask_of_a_task():
    assert {"patch", "prove", "judge"} <= set(preset("small", "ar", "gru")["stages"])
    assert {"interchange", "track"} <= set(preset("small", "parity", "gru")["stages"])
    assert "judge" not in preset("small", "parity", "gru")["stages"]
