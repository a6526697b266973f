"""One run: spec to folder, found again, told of, and refused before anything is written."""

import json
import math

import pytest
import torch

from mixerscope.artifacts.effects import BEST, METRICS, SHARE
from mixerscope.errors import UserError
from mixerscope.interventions import make_pairs
from mixerscope.machine import Machine
from mixerscope.randomness import stream
from mixerscope.results import load_run, load_runs
from mixerscope.runs import is_finished, run
from mixerscope.spec import RunSpec
from mixerscope.store import find_runs
from mixerscope.training import train_cohort
from tests.conftest import tiny_spec, with_stage
from tests.runs.folders import contents, refuse


def test_the_folder_holds_everything(finished):
    patch, judge = (f"{name}-{finished.spec.stage_id(name)}" for name in ("patch", "judge"))
    stage = ("stage.json", "outcome.json", "seal.json")
    assert set(contents(finished.folder)) == {
        *("spec.json", "provenance.json", "status.json", "curve.json", "weights.safetensors", "seal.json"),
        *(f"{patch}/{name}" for name in (*stage, "provenance.json", "effects.safetensors", "evaluation.json")),
        f"{patch}/self_test.json",
        *(f"{judge}/{name}" for name in (*stage, "verdicts.json")),
    }
    made = finished.provenance
    assert made.packages["torch"] == torch.__version__
    patched = finished.stages["patch"].folder.read(type(made))
    assert len(made.data_sha256) == len(patched.data_sha256) == 64
    assert patched.data_sha256 == make_pairs(finished.task, finished.spec.stages["patch"], 0).sha256()


def test_load_run_gives_back_model_task_and_tables(finished):
    again = load_run(finished.folder.path)
    assert again.spec == finished.spec
    [member] = train_cohort([finished.spec])
    model = again.model()
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, member.weights[name])
    documents = again.task.sample(5, stream(9, "fresh"))
    assert model(documents.tokens).shape == (5, documents.tokens.shape[1], again.task.vocab_size)
    cells = list(again.effects.rows())
    assert {row["metric"] for row in cells} == {*METRICS, SHARE, BEST}
    assert all(row["value"] is None or math.isfinite(row["value"]) for row in cells)
    assert again.curve.points[-1].step == finished.spec.train.steps
    likelihood = again.effects.likelihood("original")
    assert likelihood.mean().item() == pytest.approx(again.scores.likelihood.value, abs=1e-3)


@pytest.mark.parametrize("table", ["curve", "scores", "effects", "verdicts"])
def test_tables_come_out_as_frames(finished, table: str):
    found = getattr(finished, table)
    rows = list(found.rows())
    assert rows
    assert found.to_polars().to_dicts() == rows
    assert found.to_pandas().shape == (len(rows), len(rows[0]))


def test_same_spec_same_bytes(finished, tmp_path):
    assert contents(run(finished.spec, tmp_path, progress=False).folder) == contents(finished.folder)


def test_a_finished_run_is_not_trained_again(finished, monkeypatch):
    monkeypatch.setattr("mixerscope.runs.train_cohort", refuse)
    again = run(finished.spec, finished.folder.path.parent, progress=False)
    assert again.folder.path == finished.folder.path


def test_a_diverged_run_says_so_and_has_no_table(tmp_path):
    spec = tiny_spec("attention", lr=1e30, schedule="constant", warmup=0.0)
    result = run(spec, tmp_path, progress=False)
    assert result.status.outcome == "diverged"
    assert result.reason == f"training diverged by step {result.status.steps}"
    for name in ("effects", "verdicts", "scores"):
        with pytest.raises(UserError, match="training diverged"):
            getattr(result, name)
    assert is_finished(spec, tmp_path)


def test_wrong_specs_write_nothing(tmp_path):
    spec = tiny_spec("attention")
    with pytest.raises(UserError, match="do not fit"):
        run(spec.changed(model=spec.model.changed(max_length=4)), tmp_path / "out")
    with pytest.raises(UserError, match="not divisible by heads"):
        run(spec.changed(model=spec.model.changed(options={"heads": 3})), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_unusable_folder_is_the_users_to_fix(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot write to"):
        run(tiny_spec("attention"), tmp_path / "file", progress=False)


def test_find_runs(finished, tmp_path):
    assert [f.path for f in find_runs(finished.folder.path.parent)] == [finished.folder.path]
    assert [f.path for f in find_runs(finished.folder.path)] == [finished.folder.path]
    with pytest.raises(UserError, match="holds no finished runs"):
        find_runs(tmp_path)
    with pytest.raises(UserError, match="is not a folder"):
        find_runs(tmp_path / "absent")


def test_files_are_data(finished):
    for name, data in contents(finished.folder).items():
        assert name.endswith((".json", ".safetensors"))
        if name.endswith(".json"):
            json.loads(data)


def test_what_the_pairs_cannot_be_made_of_is_refused_before_anything_is_written(tmp_path):
    spec = tiny_spec("attention")
    full = spec.changed(
        task=spec.task.changed(num_pairs=6, num_keys=6, num_values=6), model=spec.model.changed(max_length=32)
    )
    with pytest.raises(ValueError, match="already hold all 6 symbols"):
        run(with_stage(full, "patch", avoid_present=True), tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("task", ["selective_copy", "mqar", "ngram", "atr:paper", "atr:all-relations"])
def test_every_task_runs_with_its_own_slots(tmp_path, task: str):
    spec = RunSpec.model_validate(
        {
            "task": task,
            "model": {"architecture": "base_conv", "width": 8},
            "train": {"steps": 1, "batch_size": 2, "documents": 4, "eval_documents": 4},
            "stages": {"patch": {"documents": 4}, "judge": {}},
        }
    )
    result = run(spec, tmp_path, progress=False)
    assert [verdict.slot for verdict in result.verdicts] == list(spec.task.slots[:1])


def test_a_device_that_is_not_there_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="no CUDA device"):
        run(tiny_spec("attention"), tmp_path / "out", machine=Machine("cuda"))
    assert not (tmp_path / "out").exists()


def test_a_dict_is_as_good_as_a_spec(finished, tmp_path):
    data = finished.spec.model_dump(mode="json")
    assert run(data, tmp_path, progress=False).run_id == finished.run_id
    with pytest.raises(UserError, match="did you mean 'mamba'"):
        run({"task": "ar", "model": {"architecture": "mambo"}}, tmp_path)


def test_progress_is_told_on_stderr_unless_one_says_otherwise(finished, tmp_path, capsys):
    run(finished.spec, tmp_path / "loud")
    said = capsys.readouterr()
    assert (said.out, [line.split()[1] for line in said.err.splitlines()]) == ("", ["train", "patch", "judge"])
    run(finished.spec, tmp_path / "quiet", progress=False)
    assert capsys.readouterr() == ("", "")


def test_representations_are_one_line(finished):
    grid_like = (finished, finished.effects, finished.verdicts["key"], finished.folder)
    assert all(0 < len(repr(thing)) < 200 for thing in grid_like)
    assert [result.run_id for result in load_runs(finished.folder.path.parent)] == [finished.run_id]
