"""Cohorts of runs: trained and taken apart together, each in the folder it would have alone."""

import json
import math

import pytest
import torch

from mixerscope import runs
from mixerscope.errors import SelfTestFailed, UserError
from mixerscope.interventions import interchange
from mixerscope.report import write_report
from mixerscope.runs import RunResult, load_run, run, run_cohort, run_folder
from mixerscope.spec import RunSpec
from mixerscope.store import find_runs
from tests.conftest import tiny_spec

SPEC = tiny_spec("attention", lr=1e-2)
SPECS = [SPEC.changed(seed=seed) for seed in range(3)]
DIVERGING = tiny_spec("attention", schedule="constant", warmup=0.0)
DIVERGING = [DIVERGING.changed(train=DIVERGING.train.changed(lr=lr)) for lr in (1e30, 1e-3)]


def files(result: RunResult) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in result.folder.path.iterdir()}


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> list[RunResult]:
    return run_cohort(SPECS, tmp_path_factory.mktemp("cohort"))


def test_a_cohort_leaves_the_folders_of_its_runs_one_by_one(together, tmp_path):
    assert [result.spec for result in together] == SPECS
    for result in together:
        alone = run(result.spec, tmp_path)
        assert set(files(result)) == set(files(alone))
        for name in ("spec.json", "status.json"):
            assert files(result)[name] == files(alone)[name]
        for name, weight in alone.model().state_dict().items():
            torch.testing.assert_close(result.model().state_dict()[name], weight, rtol=1e-3, atol=1e-5)
        assert len(result.cells()) == len(alone.cells())
        for found, want in zip(result.cells(), alone.cells(), strict=True):
            facts = ("site", "slot", "role", "direction", "edit", "metric", "n", "status")
            assert [found[fact] for fact in facts] == [want[fact] for fact in facts]
            if found["metric"] in ("likelihood", "kl", "logit"):
                assert found["value"] == pytest.approx(want["value"], rel=1e-2, abs=1e-4)
        assert result.json("verdicts").keys() == alone.json("verdicts").keys()
        assert result.json("self_test")["sites"][0].keys() == alone.json("self_test")["sites"][0].keys()


def test_provenance_and_times_say_how_a_run_was_made(together):
    for result in together:
        made = result.json("provenance")
        assert (made["stack"], made["precision"], made["kernels"], made["compiled"]) == (3, "float32", "auto", False)
        assert made["interventions_precision"] == "float32"
        assert made["repeatable"] is True
        times = json.loads((result.folder.path / "timing.json").read_text())
        assert times["models"] == 3
        assert 0 < times["build_seconds"] < times["train_seconds"]
        assert 0 < times["train_seconds"] + times["intervene_seconds"] < times["total_seconds"]
        assert times["steps_per_second"] == pytest.approx(6 / (times["train_seconds"] - times["build_seconds"]))


def test_only_what_is_missing_is_made_and_repeated_specs_are_made_once(together, tmp_path, monkeypatch):
    import mixerscope.runs as runs

    made: list[list[int]] = []
    train = runs.train_cohort

    def counting(specs: list[RunSpec], *rest: object):
        made.append([spec.seed for spec in specs])
        return train(specs, *rest)

    monkeypatch.setattr(runs, "train_cohort", counting)
    first = run(SPECS[1], tmp_path)
    before = files(first)
    found = run_cohort([*SPECS, SPECS[0]], tmp_path)
    assert made == [[1], [0, 2]]
    assert [result.spec.seed for result in found] == [0, 1, 2, 0]
    assert files(first) == before
    assert run_cohort(SPECS, tmp_path)[2].spec == SPECS[2]
    assert len(made) == 2


def test_what_cannot_be_stacked_is_refused_and_nothing_is_written(tmp_path):
    other = SPEC.changed(model=SPEC.model.changed(width=8))
    with pytest.raises(UserError, match="cohort may differ"):
        run_cohort([SPEC, other], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_member_that_diverges_is_written_as_diverged_and_the_others_as_ever(tmp_path):
    lost, kept = run_cohort(DIVERGING, tmp_path)
    assert lost.json("status")["outcome"] == "diverged"
    assert "cells.jsonl" not in files(lost)
    assert kept.json("status")["outcome"] == "finished"
    assert all(row["value"] is None or math.isfinite(row["value"]) for row in kept.cells())


def test_a_cohort_of_which_nothing_is_left_is_written_too(tmp_path):
    both = run_cohort([DIVERGING[0], DIVERGING[0].changed(seed=1)], tmp_path)
    assert [result.json("status")["outcome"] for result in both] == ["diverged"] * 2


def test_a_kill_leaves_sealed_folders_or_none(tmp_path, monkeypatch):
    import mixerscope.runs as runs

    write, written = runs.write_json, []

    def interrupted(path, value) -> None:
        written.append(path)
        if path.name == "timing.json" and path.parent == run_folder(SPECS[1], tmp_path).path:
            raise KeyboardInterrupt
        write(path, value)

    with monkeypatch.context() as patch:
        patch.setattr(runs, "write_json", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_cohort(SPECS, tmp_path)
    assert [folder.path for folder in find_runs(tmp_path)] == [run_folder(SPECS[0], tmp_path).path]
    before = files(load_run(run_folder(SPECS[0], tmp_path).path))
    assert len(run_cohort(SPECS, tmp_path)) == len(find_runs(tmp_path)) == 3
    assert files(load_run(run_folder(SPECS[0], tmp_path).path)) == before


def test_making_a_run_afresh_breaks_its_seal_before_anything_else(together, tmp_path, monkeypatch):
    result = run(SPEC, tmp_path)
    removed: list[str] = []
    unlink = type(result.folder.path).unlink

    def interrupted(path, missing_ok: bool = False) -> None:
        removed.append(path.name)
        if len(removed) == 2:
            raise KeyboardInterrupt
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(type(result.folder.path), "unlink", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(SPEC, tmp_path, fresh=True)
    assert removed[0] == "files.json"
    assert not result.folder.finished


def test_a_member_that_fails_the_self_test_stops_no_other(tmp_path, monkeypatch):
    import mixerscope.runs as runs

    measure = runs.grids_or_failures

    def failing(models, *rest: object, **options: object):
        found = measure(models, *rest, **options)
        return [found[0], SelfTestFailed("site 'embed' cannot be trusted"), found[2]]

    monkeypatch.setattr(runs, "grids_or_failures", failing)
    with pytest.raises(SelfTestFailed, match=rf"{SPECS[1].run_id}: site 'embed'"):
        run_cohort(SPECS, tmp_path)
    assert {folder.path for folder in find_runs(tmp_path)} == {run_folder(SPECS[i], tmp_path).path for i in (0, 2)}


def test_without_weights_every_table_is_there_and_the_report_too(together, tmp_path):
    bare = run_cohort(SPECS, tmp_path / "bare", keep_weights=False)
    for result, full in zip(bare, together, strict=True):
        assert set(files(full)) - set(files(result)) == {"weights.safetensors"}
        for name in ("cells.jsonl", "verdicts.json", "predictions.safetensors", "curve.jsonl"):
            assert files(result)[name] == files(full)[name]
        with pytest.raises(UserError, match="without keeping the weights"):
            result.model()
        result.folder.verify()
    assert write_report(tmp_path / "bare", tmp_path / "report.html").is_file()


def test_emergence_is_measured_for_all_members(together, tmp_path):
    specs = [spec.changed(interventions=spec.interventions.changed(emergence=3)) for spec in SPECS]
    for result, plain in zip(run_cohort(specs, tmp_path / "all"), together, strict=True):
        alone = run(result.spec, tmp_path / "alone")
        rows, want = result.emergence(), alone.emergence()
        assert [(r["step"], r["site"], r["role"], r["slot"]) for r in rows] == [
            (r["step"], r["site"], r["role"], r["slot"]) for r in want
        ]
        assert [r["gap"] for r in rows] == pytest.approx([r["gap"] for r in want], abs=1e-5)
        assert {row["step"] for row in rows} == {0, 1, 6}
        assert files(result)["cells.jsonl"] == files(plain)["cells.jsonl"]


def test_emergence_of_a_member_that_diverges_says_so_and_ends_where_training_does(tmp_path):
    specs = [spec.changed(interventions=spec.interventions.changed(emergence=4)) for spec in DIVERGING]
    lost, kept = run_cohort(specs, tmp_path)
    assert lost.emergence()[-1]["step"] == lost.json("status")["steps"] < kept.json("status")["steps"]
    assert "not finite" in lost.emergence()[-1]["reason"]
    assert {row["step"] for row in kept.emergence()} == {0, 1, 2, 6}
    assert all(row["site"] is not None for row in kept.emergence())


def test_progress_speaks_of_the_best_member(tmp_path):
    seen: list[tuple[str, int, int, str]] = []
    run_cohort(SPECS, tmp_path, lambda *told: seen.append(told))
    train = [told for told in seen if told[0] == "train"]
    assert (train[-1][1], train[-1][2]) == (6, 6)
    assert train[-1][3].startswith("best accuracy ")
    assert [told[0] for told in seen[len(train) :]] == ["intervene"] * (len(seen) - len(train)) != []


def test_weights_of_another_precision_are_taken_apart_in_single_precision(together):
    model = together[0].model()
    half = {name: weight.to(torch.bfloat16) for name, weight in model.state_dict().items()}
    model.load_state_dict(half)
    assert {weight.dtype for weight in model.state_dict().values()} == {torch.float32}
    from mixerscope.interventions import make_pairs

    grid = interchange(model, make_pairs(SPEC.task, SPEC.interventions, 0))
    assert {measured.status for measured in grid.cells.values()} <= {"measured", "no path", "same"}


def test_further_places_are_in_the_table_and_change_no_other_cell(together, tmp_path):
    also = SPEC.changed(interventions=SPEC.interventions.changed(also_at=("value+2", "key", "key&value")))
    result = run_cohort([also, also.changed(seed=1)], tmp_path)[0]
    rows = {(r["site"], r["direction"], r["role"], r["metric"]): r for r in result.cells()}
    assert {role for _, _, role, _ in rows} == {r["role"] for r in together[0].cells()} | {"value+2", "key&value"}
    for row in together[0].cells():
        if row["metric"] == "likelihood":
            found = rows[row["site"], row["direction"], row["role"], row["metric"]]
            assert found["value"] == pytest.approx(row["value"], rel=1e-3)
    assert write_report(tmp_path, tmp_path / "report.html").is_file()


@pytest.mark.parametrize(("place", "complaint"), [("valu+2", "no role named 'valu'"), ("pos:99", "outside")])
def test_places_that_do_not_exist_are_refused_before_anything_is_written(tmp_path, place: str, complaint: str):
    wrong = SPEC.changed(interventions=SPEC.interventions.changed(also_at=(place,)))
    with pytest.raises(UserError, match=complaint):
        run(wrong, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_models_are_taken_apart_in_the_precision_they_were_trained_in(tmp_path, monkeypatch):
    found = []
    real = runs.grids_or_failures

    def watched(*arguments, **options):
        found.append(torch.get_float32_matmul_precision())
        return real(*arguments, **options)

    monkeypatch.setattr(runs, "grids_or_failures", watched)
    for precision in ("tf32", "float32"):
        runs.run_cohort([tiny_spec("attention", precision=precision)], tmp_path)
    assert found == ["high", "highest"]
    assert torch.get_float32_matmul_precision() == "highest"
