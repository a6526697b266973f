"""Runs: spec to folder, found again, killed and made again, never trusted when a byte changed."""

import json
import math

import pytest
import torch

from mixerscope.analysis import BEST, SHARE, boundary_sites
from mixerscope.errors import CorruptFile, UserError
from mixerscope.interventions import METRICS, make_pairs
from mixerscope.machine import Machine
from mixerscope.randomness import stream
from mixerscope.runs import load_run, run, run_folder
from mixerscope.spec import RunSpec
from mixerscope.store import find_runs
from mixerscope.training import train_cohort
from tests.conftest import tiny_spec


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory):
    return run(tiny_spec("mamba"), tmp_path_factory.mktemp("runs"))


def contents(folder) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.path.iterdir() if p.name != "timing.json"}


def test_the_folder_holds_everything(finished):
    assert set(contents(finished.folder)) == {
        "spec.json",
        "provenance.json",
        "status.json",
        "curve.jsonl",
        "weights.safetensors",
        "predictions.safetensors",
        "evaluation.json",
        "cells.jsonl",
        "verdicts.json",
        "self_test.json",
        "files.json",
    }
    provenance = finished.json("provenance")
    assert provenance["packages"]["torch"] == torch.__version__
    assert len(provenance["data_sha256"]) == len(provenance["pairs_sha256"]) == 64


def test_load_run_gives_back_model_task_predictions_and_tables(finished):
    again = load_run(finished.folder.path)
    assert again.spec == finished.spec
    [member] = train_cohort([finished.spec])
    model = again.model()
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, member.weights[name])
    documents = again.task.sample(5, stream(9, "fresh"))
    assert model(documents.tokens).shape == (5, documents.tokens.shape[1], again.task.vocab_size)
    cells = again.cells()
    assert {row["metric"] for row in cells} == {*METRICS, SHARE, BEST}
    assert all(row["value"] is None or math.isfinite(row["value"]) for row in cells)
    assert again.curve()[-1]["step"] == finished.spec.train.steps
    estimate = again.json("evaluation")["estimates"]["original.likelihood"]
    assert again.predictions()["original.likelihood"].double().mean().item() == pytest.approx(estimate["value"])


def test_same_spec_same_bytes(finished, tmp_path):
    assert contents(run(finished.spec, tmp_path).folder) == contents(finished.folder)


def test_a_finished_run_is_not_trained_again(finished, monkeypatch):
    def refuse(*_: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr("mixerscope.runs.train_cohort", refuse)
    again = run(finished.spec, finished.folder.path.parent)
    assert again.folder.path == finished.folder.path


def test_an_interrupted_run_is_made_anew(finished, tmp_path, monkeypatch):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("mixerscope.runs.grids_or_failures", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(finished.spec, tmp_path)
    with pytest.raises(UserError, match="holds no finished run"):
        load_run(run_folder(finished.spec, tmp_path).path)
    assert contents(run(finished.spec, tmp_path).folder) == contents(finished.folder)


@pytest.mark.parametrize("name", ["weights.safetensors", "cells.jsonl", "predictions.safetensors", "verdicts.json"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_damage_is_detected_and_never_loaded(finished, tmp_path, name: str, damage: str):
    result = run(tiny_spec("mamba"), tmp_path)
    path = result.folder.path / name
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    if damage == "truncate":
        data = data[:-3]
    path.unlink()
    if damage != "remove":
        path.write_bytes(bytes(data))
    readers = {
        "weights.safetensors": result.model,
        "cells.jsonl": result.cells,
        "predictions.safetensors": result.predictions,
        "verdicts.json": lambda: result.json("verdicts"),
    }
    with pytest.raises(CorruptFile, match=name):
        readers[name]()


def test_a_diverged_run_says_so_and_has_no_table(tmp_path):
    spec = tiny_spec("attention", lr=1e30, schedule="constant", warmup=0.0)
    result = run(spec, tmp_path)
    assert result.json("status")["outcome"] == "diverged"
    with pytest.raises(CorruptFile, match=r"cells\.jsonl is missing"):
        result.cells()


def test_wrong_specs_write_nothing(tmp_path):
    spec = tiny_spec("attention")
    with pytest.raises(UserError, match="no slot 'kex'"):
        run(spec.changed(interventions=spec.interventions.changed(slots=("kex",))), tmp_path / "out")
    with pytest.raises(UserError, match="do not fit"):
        run(spec.changed(model=spec.model.changed(max_length=4)), tmp_path / "out")
    with pytest.raises(UserError, match="not divisible by heads"):
        run(spec.changed(model=spec.model.changed(options={"heads": 3})), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_unusable_folder_is_the_users_to_fix(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot write to"):
        run(tiny_spec("attention"), tmp_path / "file")


def test_find_runs(finished, tmp_path):
    assert [f.path for f in find_runs(finished.folder.path.parent)] == [finished.folder.path]
    with pytest.raises(UserError, match="holds no finished runs"):
        find_runs(tmp_path)
    with pytest.raises(UserError, match="is not a folder"):
        find_runs(tmp_path / "absent")


def with_emergence(spec, count: int):
    return spec.changed(interventions=spec.interventions.changed(emergence=count))


def test_emergence_is_measured_at_log_spaced_steps_and_changes_nothing_else(finished, tmp_path):
    with pytest.raises(UserError, match="did not measure emergence"):
        finished.emergence()
    result = run(with_emergence(finished.spec, 4), tmp_path)
    rows = result.emergence()
    assert sorted({row["step"] for row in rows}) == [0, 1, 2, 6]
    model = finished.model()
    pairs = make_pairs(finished.task, finished.spec.interventions, finished.spec.data_seed)
    assert len([row for row in rows if row["step"] == 6]) == len(boundary_sites(model)) * len(pairs.original.roles)
    assert all((row["share"] is None) == bool(row["reason"]) for row in rows)
    for name in ("weights.safetensors", "cells.jsonl", "curve.jsonl", "verdicts.json"):
        assert contents(result.folder)[name] == contents(finished.folder)[name]


def test_the_emergence_of_a_learned_model_ends_in_the_shares_of_its_table(tmp_path):
    spec = tiny_spec("attention", steps=300, batch_size=32, documents=640, lr=1e-2, eval_every=300)
    spec = spec.changed(
        task=spec.task.changed(num_pairs=2, num_keys=3, num_values=3),
        model=spec.model.changed(init="small_model"),
        interventions=spec.interventions.changed(emergence=1, documents=64),
    )
    result = run(spec, tmp_path)
    rows = result.emergence()
    table = {
        (r["slot"], r["site"], r["role"]): r
        for r in result.cells()
        if r["metric"] == SHARE and r["direction"] == "restore"
    }
    assert rows
    for row in rows:
        assert row["step"] == 300
        want = table[row["slot"], row["site"], row["role"]]
        assert row["share"] == pytest.approx(want["value"], abs=1e-6)
    assert max(row["share"] for row in rows) > 0.9
    accuracy = result.json("evaluation")["estimates"]["original.accuracy"]["value"]
    assert rows[0]["accuracy"] == pytest.approx(accuracy)


def test_emergence_of_a_diverging_run_says_so(tmp_path):
    spec = tiny_spec("attention", lr=1e30, schedule="constant", warmup=0.0)
    rows = run(with_emergence(spec, 3), tmp_path).emergence()
    assert [row["step"] for row in rows if row["site"] is None] != []
    assert all(row["reason"] for row in rows if row["share"] is None)


def test_files_are_data(finished):
    for name, data in contents(finished.folder).items():
        assert name.endswith((".json", ".jsonl", ".safetensors"))
        if name.endswith(".json"):
            json.loads(data)


def test_what_the_pairs_cannot_be_made_of_is_refused_before_anything_is_written(tmp_path):
    spec = tiny_spec("attention")
    full = spec.changed(
        task=spec.task.changed(num_pairs=6, num_keys=6, num_values=6),
        model=spec.model.changed(max_length=32),
        interventions=spec.interventions.changed(avoid_present=True),
    )
    with pytest.raises(ValueError, match="already hold all 6 symbols"):
        run(full, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("task", ["selective_copy", "mqar", "ngram", "atr:paper", "atr:all-relations"])
def test_every_task_runs_with_its_own_slots(tmp_path, task: str):
    spec = RunSpec.model_validate(
        {
            "task": task,
            "model": {"architecture": "base_conv", "width": 8},
            "train": {"steps": 1, "batch_size": 2, "documents": 4, "eval_documents": 4},
            "interventions": {"documents": 4},
        }
    )
    assert spec.interventions.slots == spec.task.slots[:1]
    result = run(spec, tmp_path)
    assert set(result.json("verdicts")) == set(spec.task.slots[:1])


def test_a_device_that_is_not_there_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="no CUDA device"):
        run(tiny_spec("attention"), tmp_path / "out", machine=Machine("cuda"))
    assert not (tmp_path / "out").exists()
