"""Cohorts of runs: trained and patched together, each in the folder it would have alone."""

import json
import math

import pytest
import torch

import mixerscope.runs as runs
from mixerscope.errors import SelfTestFailed, UserError
from mixerscope.interventions import interchange, make_pairs
from mixerscope.results import RunResult, load_run, run_folder
from mixerscope.runs import is_finished, run_cohort
from mixerscope.spec import RunSpec
from mixerscope.stages import patch as patch_stage
from mixerscope.store import find_runs
from tests.conftest import tiny_spec, with_stage

SPEC = tiny_spec("attention", lr=1e-2)
SPECS = [SPEC.changed(seed=seed) for seed in range(3)]
DIVERGING = tiny_spec("attention", schedule="constant", warmup=0.0)
DIVERGING = [DIVERGING.changed(train=DIVERGING.train.changed(lr=lr)) for lr in (1e30, 1e-3)]


def files(result: RunResult) -> dict[str, bytes]:
    """By name; no two files of a run's stages that are looked at here share one."""
    paths = [path for path in sorted(result.folder.path.rglob("*"), reverse=True) if path.is_file()]
    return {path.name: path.read_bytes() for path in paths}


def run(spec: RunSpec, root, **options: object) -> RunResult:
    return runs.run(spec, root, progress=False, **options)


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
        for found, want in zip(result.effects.rows(), alone.effects.rows(), strict=True):
            facts = ("site", "slot", "role", "direction", "edit", "metric", "n", "status")
            assert [found[fact] for fact in facts] == [want[fact] for fact in facts]
            if found["metric"] in ("likelihood", "kl", "logit"):
                assert found["value"] == pytest.approx(want["value"], rel=1e-2, abs=1e-4)
        assert result.verdicts.by_slot.keys() == alone.verdicts.by_slot.keys()
        assert [test.site for test in result.self_test.sites] == [test.site for test in alone.self_test.sites]


def test_provenance_and_times_say_how_a_run_was_made(together):
    for result in together:
        made = result.provenance
        assert (made.stack, made.precision, made.kernels, made.compiled) == (3, "float32", "auto", False)
        assert made.repeatable is True
        patched = result.stages["patch"].folder
        assert patched.read(type(made)).stack == 3
        times = json.loads((result.folder.path / "timing.json").read_text())
        assert times["models"] == 3
        assert 0 < times["build_seconds"] < times["seconds"]
        assert times["steps_per_second"] == pytest.approx(6 / (times["seconds"] - times["build_seconds"]))
        assert json.loads((patched.path / "timing.json").read_text())["seconds"] > 0


def test_only_what_is_missing_is_made_and_repeated_specs_are_made_once(together, tmp_path, monkeypatch):
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
    assert lost.status.outcome == "diverged"
    assert "effects.safetensors" not in files(lost)
    assert kept.status.outcome == "finished"
    assert all(row["value"] is None or math.isfinite(row["value"]) for row in kept.effects.rows())


def test_a_cohort_of_which_nothing_is_left_is_written_too(tmp_path):
    both = run_cohort([DIVERGING[0], DIVERGING[0].changed(seed=1)], tmp_path)
    assert [result.status.outcome for result in both] == ["diverged"] * 2


def test_a_kill_leaves_whole_trainings_or_none_and_the_next_call_makes_the_rest(tmp_path, monkeypatch, together):
    from mixerscope.store import folder as folder_module

    write = folder_module.write_bytes

    def interrupted(path, data) -> None:
        if path.name == "seal.json" and path.parent == run_folder(SPECS[1], tmp_path).path:
            raise KeyboardInterrupt
        write(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(folder_module, "write_bytes", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_cohort(SPECS, tmp_path)
    assert [folder.path for folder in find_runs(tmp_path)] == [run_folder(SPECS[0], tmp_path).path]
    assert not any(is_finished(spec, tmp_path) for spec in SPECS)
    before = run_folder(SPECS[0], tmp_path).seal()
    assert len(run_cohort(SPECS, tmp_path)) == len(find_runs(tmp_path)) == 3
    assert all(is_finished(spec, tmp_path) for spec in SPECS)
    assert run_folder(SPECS[0], tmp_path).seal() == before


def test_making_a_run_afresh_breaks_its_seals_before_anything_else(tmp_path, monkeypatch):
    result = run(SPEC, tmp_path)
    removed: list[str] = []
    unlink = type(result.folder.path).unlink

    def interrupted(path, missing_ok: bool = False) -> None:
        if path.parent.parent.name != ".mixerscope":  # not a lock, which is given back whatever happens
            removed.append(path.name)
            if len(removed) == 2:
                raise KeyboardInterrupt
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(type(result.folder.path), "unlink", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(SPEC, tmp_path, fresh=True)
    assert removed[0] == "seal.json"
    assert not is_finished(SPEC, tmp_path)
    assert run(SPEC, tmp_path).verdicts == result.verdicts, "and the next call makes it whole"


def failing_second(monkeypatch) -> None:
    measure = patch_stage.grids_or_failures

    def failing(models, *rest: object, **options: object):
        found = measure(models, *rest, **options)
        return [found[0], SelfTestFailed("site 'embed' cannot be trusted"), found[2]]

    monkeypatch.setattr(patch_stage, "grids_or_failures", failing)


def test_a_member_that_fails_the_self_test_is_a_result_and_stops_no_other(tmp_path, monkeypatch, together):
    failing_second(monkeypatch)
    found = run_cohort(SPECS, tmp_path)
    assert [bool(result.reason) for result in found] == [False, True, False]
    assert found[1].reason == "the model cannot be patched: site 'embed' cannot be trusted"
    assert found[1].scores.accuracy == together[1].scores.accuracy
    assert all(is_finished(spec, tmp_path) for spec in SPECS)
    for index in (0, 2):
        assert found[index].verdicts == together[index].verdicts


def test_on_a_gpu_the_second_try_is_on_the_cpu_in_strict_arithmetic(tmp_path, monkeypatch):
    """The device is made up; that the second try gets a copy on the CPU, and what it finds, is not."""
    failing_second(monkeypatch)
    monkeypatch.setattr(patch_stage, "_is_on_cpu", lambda model: False)
    found = run_cohort(SPECS, tmp_path)
    assert not found[1].reason
    [note] = found[1].stages["patch"].outcome.notes
    assert note == "patched on the CPU in strict float32; on the GPU: site 'embed' cannot be trusted"
    assert found[0].stages["patch"].outcome.notes == ()
    assert found[1].effects.slots == ("key",)


def test_without_weights_every_table_is_there_and_the_report_too(together, tmp_path):
    from mixerscope.report import write_report

    bare = run_cohort(SPECS, tmp_path / "bare", keep_weights=False)
    for result, full in zip(bare, together, strict=True):
        assert set(files(full)) - set(files(result)) == {"weights.safetensors"}
        for name in ("effects.safetensors", "verdicts.json", "evaluation.json", "curve.json"):
            assert files(result)[name] == files(full)[name]
        with pytest.raises(UserError, match="without keeping the weights"):
            result.model()
        result.folder.verify()
    assert write_report(tmp_path / "bare", tmp_path / "report.html").is_file()


def test_weights_outlive_a_kill_between_training_and_the_last_stage(together, tmp_path, monkeypatch):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(patch_stage, "grids_or_failures", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_cohort(SPECS, tmp_path, keep_weights=False)
    monkeypatch.setattr(runs, "train_cohort", interrupt)
    found = run_cohort(SPECS, tmp_path, keep_weights=False)
    assert [result.verdicts for result in found] == [result.verdicts for result in together]
    assert not any("weights.safetensors" in files(result) for result in found)


def test_emergence_is_measured_for_all_members(together, tmp_path):
    specs = [with_stage(spec, "emergence", looks=3, documents=8) for spec in SPECS]
    for result, plain in zip(run_cohort(specs, tmp_path / "all"), together, strict=True):
        alone = run(result.spec, tmp_path / "alone")
        found, want = result.emergence.points, alone.emergence.points
        assert [(p.step, p.site, p.role, p.slot) for p in found] == [(p.step, p.site, p.role, p.slot) for p in want]
        assert [p.gap for p in found] == pytest.approx([p.gap for p in want], abs=1e-5)
        assert {point.step for point in found} == {0, 1, 6}
        assert files(result)["effects.safetensors"] == files(plain)["effects.safetensors"]


def test_emergence_of_a_member_that_diverges_says_so_and_ends_where_training_does(tmp_path):
    specs = [with_stage(spec, "emergence", looks=4, documents=8) for spec in DIVERGING]
    lost, kept = run_cohort(specs, tmp_path)
    assert lost.emergence.points[-1].step == lost.status.steps < kept.status.steps
    assert "not finite" in lost.emergence.points[-1].reason
    assert {point.step for point in kept.emergence.points} == {0, 1, 2, 6}
    assert all(point.site is not None for point in kept.emergence.points)


def test_progress_speaks_of_the_best_member(tmp_path):
    seen: list[tuple[str, int, int, str]] = []
    run_cohort(SPECS, tmp_path, lambda *told: seen.append(told))
    train = [told for told in seen if told[0] == "train"]
    assert (train[-1][1], train[-1][2]) == (6, 6)
    assert train[-1][3].startswith("best accuracy ")
    assert list(dict.fromkeys(told[0] for told in seen)) == ["train", "patch", "judge"]


def test_weights_of_another_precision_are_patched_in_single_precision(together):
    model = together[0].model()
    half = {name: weight.to(torch.bfloat16) for name, weight in model.state_dict().items()}
    model.load_state_dict(half)
    assert {weight.dtype for weight in model.state_dict().values()} == {torch.float32}
    grid = interchange(model, make_pairs(SPEC.task, SPEC.stages["patch"], 0))
    assert {measured.status for measured in grid.cells.values()} <= {"measured", "no path", "same"}


def test_further_places_are_in_the_table_and_change_no_other_cell(together, tmp_path):
    from mixerscope.report import write_report

    also = with_stage(SPEC, "patch", also_at=("value+2", "key", "key&value"))
    result = run_cohort([also, also.changed(seed=1)], tmp_path)[0]
    rows = {(r["slot"], r["site"], r["direction"], r["role"], r["metric"]): r for r in result.effects.rows()}
    assert {role for _, _, _, role, _ in rows} >= {"value+2", "key&value"}
    assert ("key", "blocks.0.mixer_in", "break", "key&value", "likelihood") in rows
    for row in together[0].effects.rows():
        if row["metric"] == "likelihood":
            found = rows[row["slot"], row["site"], row["direction"], row["role"], row["metric"]]
            assert found["value"] == pytest.approx(row["value"], rel=1e-3)
    assert write_report(tmp_path, tmp_path / "report.html").is_file()


@pytest.mark.parametrize(("place", "complaint"), [("valu+2", "no role named 'valu'"), ("pos:99", "outside")])
def test_places_that_do_not_exist_are_refused_before_anything_is_written(tmp_path, place: str, complaint: str):
    with pytest.raises(UserError, match=complaint):
        run(with_stage(SPEC, "patch", also_at=(place,)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_models_are_patched_in_the_precision_they_were_trained_in(tmp_path, monkeypatch):
    found = []
    real = patch_stage.grids_or_failures

    def watched(*arguments, **options):
        found.append(torch.get_float32_matmul_precision())
        return real(*arguments, **options)

    monkeypatch.setattr(patch_stage, "grids_or_failures", watched)
    for precision in ("tf32", "float32"):
        run_cohort([tiny_spec("attention", precision=precision)], tmp_path)
    assert found == ["high", "highest"]
    assert torch.get_float32_matmul_precision() == "highest"


def test_provenance_does_not_depend_on_what_else_ran_in_the_process(tmp_path):
    first = run(SPEC, tmp_path / "first")
    run(tiny_spec("mamba"), tmp_path / "other")
    assert load_run(run(SPEC, tmp_path / "again").folder.path).provenance == first.provenance
