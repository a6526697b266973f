"""Runs: spec to folder, found again, killed and made again, never trusted when a byte changed."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch

from mixerscope.artifacts import Curve, SelfTest, Status, Verdicts, Weights
from mixerscope.artifacts.effects import BEST, METRICS, SHARE, EffectTable
from mixerscope.errors import CorruptFile, SelfTestFailed, UserError
from mixerscope.interventions import boundary_sites, make_pairs
from mixerscope.machine import Machine
from mixerscope.progress import Cancelled, Stop
from mixerscope.randomness import stream
from mixerscope.results import load_run, load_runs, run_folder
from mixerscope.runs import is_finished, redo, run, run_cohort
from mixerscope.spec import RunSpec
from mixerscope.stages import patch as patch_stage
from mixerscope.stages.judge import Judge
from mixerscope.store import RunFolder, find_runs
from mixerscope.training import train_cohort
from tests.conftest import tiny_spec, with_stage


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory):
    return run(tiny_spec("mamba"), tmp_path_factory.mktemp("runs"), progress=False)


def contents(folder) -> dict[str, bytes]:
    """Every file of a run by its path in the folder, but for the times."""
    files = (path for path in folder.path.rglob("*") if path.is_file() and path.name != "timing.json")
    return {str(path.relative_to(folder.path)): path.read_bytes() for path in files}


def copied(result, root: Path):
    shutil.copytree(result.folder.path, root / result.folder.path.name)
    return load_run(root / result.folder.path.name)


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("trained again")


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


def test_an_interrupted_training_is_made_anew(finished, tmp_path, monkeypatch):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("mixerscope.runs.train_cohort", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(finished.spec, tmp_path, progress=False)
    with pytest.raises(UserError, match="holds no finished run"):
        load_run(run_folder(finished.spec, tmp_path).path)
    assert contents(run(finished.spec, tmp_path, progress=False).folder) == contents(finished.folder)


def test_a_run_interrupted_between_stages_trains_nothing_again(finished, tmp_path, monkeypatch):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("mixerscope.stages.patch.grids_or_failures", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(finished.spec, tmp_path, progress=False)
    assert not is_finished(finished.spec, tmp_path)
    monkeypatch.setattr("mixerscope.runs.train_cohort", refuse)
    assert contents(run(finished.spec, tmp_path, progress=False).folder) == contents(finished.folder)


ARTIFACTS = {"weights.safetensors": Weights, "effects.safetensors": EffectTable, "verdicts.json": Verdicts}
ARTIFACTS |= {"curve.json": Curve, "status.json": Status, "self_test.json": SelfTest}


@pytest.mark.parametrize("name", ARTIFACTS)
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_damage_is_detected_and_never_loaded(finished, tmp_path, name: str, damage: str):
    result = copied(finished, tmp_path)
    [path] = result.folder.path.rglob(name)
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    if damage == "truncate":
        data = data[:-3]
    path.unlink()
    if damage != "remove":
        path.write_bytes(bytes(data))
    with pytest.raises(CorruptFile, match=name):
        result.folder.verify()
    kind = ARTIFACTS[name]
    with pytest.raises(CorruptFile, match=name):
        result.folder.read(kind) if path.parent == result.folder.path else result.read(kind)


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


# --- A folder is what its content says.


def test_a_folder_copied_to_the_name_of_another_run_is_refused_by_name(finished, tmp_path):
    other = finished.spec.changed(seed=7)
    shutil.copytree(finished.folder.path, run_folder(other, tmp_path).path)
    with pytest.raises(CorruptFile, match=f"{other.run_id} is misnamed: its seal says that it holds {finished.run_id}"):
        run(other, tmp_path, progress=False)
    with pytest.raises(CorruptFile, match="misnamed"):
        find_runs(tmp_path)


def test_a_stage_copied_to_the_name_of_another_is_refused(finished, tmp_path):
    result = copied(finished, tmp_path)
    other = with_stage(finished.spec, "judge", rules={"carries": 0.7})
    shutil.copytree(result.stages["judge"].folder.path, result.folder.stage("judge", other.stage_id("judge")).path)
    with pytest.raises(CorruptFile, match="misnamed"):
        run(other, tmp_path, progress=False)


def test_a_stage_of_another_training_is_refused_though_its_settings_are_the_same(finished, tmp_path):
    result = copied(finished, tmp_path)
    other = run(finished.spec.changed(seed=5), tmp_path, progress=False)
    assert other.stages["patch"].id == result.stages["patch"].id
    place = result.stages["patch"].folder.path
    shutil.rmtree(place)
    shutil.copytree(other.stages["patch"].folder.path, place)
    complaint = f"belongs to the run {other.run_id}, not to the one it lies in"
    with pytest.raises(CorruptFile, match=complaint):
        run(finished.spec, tmp_path, progress=False)
    with pytest.raises(CorruptFile, match=complaint):
        _ = load_run(result.folder.path).verdicts


def test_a_stage_folder_or_a_run_folder_under_another_name_is_refused(finished, tmp_path):
    result = copied(finished, tmp_path)
    patch = result.stages["patch"].folder
    shutil.copytree(patch.path, patch.path.with_name(f"backup-{patch.seal().id}"))
    with pytest.raises(CorruptFile, match="misnamed: it holds the stage 'patch'"):
        _ = load_run(result.folder.path).effects
    renamed = result.folder.path.with_name(f"attention-{finished.run_id}")
    result.folder.path.rename(renamed)
    with pytest.raises(CorruptFile, match="misnamed: it holds 'mamba'"):
        _ = load_run(renamed).training


def test_a_seal_that_leaves_out_what_every_run_has_is_refused(finished, tmp_path):
    result = copied(finished, tmp_path)
    seal = json.loads((result.folder.path / "seal.json").read_text())
    del seal["files"]["status.json"]
    (result.folder.path / "seal.json").write_text(json.dumps(seal))
    with pytest.raises(CorruptFile, match=r"status\.json is missing"):
        result.folder.verify()


def test_a_seal_that_names_another_training_than_the_folder_holds_is_refused(finished, tmp_path):
    result = copied(finished, tmp_path)
    seal = json.loads((result.folder.path / "seal.json").read_text())
    claimed = result.folder.path.with_name(f"mamba-{'0' * 12}")
    result.folder.path.rename(claimed)
    (claimed / "seal.json").write_text(json.dumps({**seal, "id": "0" * 12}))
    with pytest.raises(CorruptFile, match=f"is sealed as {'0' * 12}, but what it holds is {finished.run_id}"):
        load_run(claimed).folder.verify()


def test_a_copy_counts_once(finished, tmp_path):
    copied(finished, tmp_path)
    (tmp_path / "more").mkdir()
    copied(finished, tmp_path / "more")
    from mixerscope.store import find_all_runs

    assert len(find_all_runs(tmp_path, [])) == 1


def test_what_we_did_not_write_is_neither_sealed_nor_deleted_nor_overwritten(finished, tmp_path):
    result = copied(finished, tmp_path)
    notes = result.folder.path / "notes.txt"
    notes.write_text("mine")
    (result.folder.path / "thoughts").mkdir()
    result.folder.verify()
    run(finished.spec, tmp_path, fresh=True, progress=False)
    assert notes.read_text() == "mine"
    assert "notes.txt" not in result.folder.seal().files
    assert contents(result.folder) == {**contents(finished.folder), "notes.txt": b"mine"}


def test_a_file_in_the_way_is_refused_by_name(finished, tmp_path):
    folder = run_folder(finished.spec, tmp_path)
    folder.path.mkdir()
    (folder.path / "curve.json").write_text("somebody's")
    with pytest.raises(UserError, match=r"curve\.json is in the way and was not written by mixerscope"):
        run(finished.spec, tmp_path, progress=False)
    assert [path.name for path in folder.path.iterdir()] == ["curve.json"]


def test_a_folder_whose_seal_is_gone_is_made_anew_with_every_stage(finished, tmp_path, monkeypatch):
    result = copied(finished, tmp_path)
    (result.folder.path / "seal.json").unlink()
    measured: list[int] = []
    real = patch_stage.grids_or_failures
    monkeypatch.setattr(patch_stage, "grids_or_failures", lambda *a, **b: measured.append(1) or real(*a, **b))
    assert contents(run(finished.spec, tmp_path, progress=False).folder) == contents(finished.folder)
    assert measured, "what was measured on a model that is gone is measured again"


@pytest.mark.parametrize("content", ["nonsense", "3", '[".."]', '["a\\u0000b"]', "[" * 10_000, '["patch-x"]', None])
def test_a_journal_that_makes_no_sense_is_refused_or_ignored_without_harm(finished, tmp_path, content: str | None):
    folder = run_folder(finished.spec, tmp_path)
    (folder.path / "patch-x").mkdir(parents=True)
    journal = folder.path / ".writing.json"
    journal.mkdir() if content is None else journal.write_text(content)
    (folder.path / ".spec.json.mybackup").write_text("mine")
    try:
        run(finished.spec, tmp_path, progress=False)
    except CorruptFile as error:
        assert "is not a list of names; remove it" in str(error)  # noqa: PT017
    assert (folder.path / "patch-x").is_dir()
    assert (folder.path / ".spec.json.mybackup").read_text() == "mine"


def test_a_dangling_link_in_the_way_is_left_alone(finished, tmp_path):
    folder = run_folder(finished.spec, tmp_path)
    folder.path.mkdir()
    (folder.path / "spec.json").symlink_to("nowhere")
    with pytest.raises(UserError, match="is in the way"):
        run(finished.spec, tmp_path, progress=False)
    assert (folder.path / "spec.json").is_symlink()


def test_an_interrupted_write_leaves_nothing_behind_in_the_end(finished, tmp_path):
    folder = run_folder(finished.spec, tmp_path)
    folder.path.mkdir()
    (folder.path / ".writing.json").write_text('["curve.json", "seal.json"]')
    (folder.path / "curve.json").write_text("half of a")
    (folder.path / ".curve.json.mixerscope-abcd1234").write_text("hal")
    run(finished.spec, tmp_path, progress=False)
    assert contents(folder) == contents(finished.folder)


# --- Asking a trained model another question trains nothing.


def test_another_question_is_measured_on_the_weights_that_are_there(finished, tmp_path, monkeypatch):
    result = copied(finished, tmp_path)
    before = contents(result.folder)
    monkeypatch.setattr("mixerscope.runs.train_cohort", refuse)
    other = with_stage(finished.spec, "patch", slots=("value",))
    asked = run(other, tmp_path, progress=False)
    assert asked.folder.path == result.folder.path
    assert asked.effects.slots == ("value",)
    assert [verdict.slot for verdict in asked.verdicts] == ["value"]
    after = contents(result.folder)
    assert {name: after[name] for name in before} == before, "what was there is as it was"
    assert finished.effects.slots == ("key",)


def test_without_weights_another_question_is_refused_in_one_sentence(finished, tmp_path):
    result = copied(finished, tmp_path)
    result.folder.drop(Weights.file)
    with pytest.raises(UserError, match=r"without keeping its weights.*--fresh.*--keep-weights"):
        run(with_stage(finished.spec, "patch", slots=("value",)), tmp_path, progress=False)
    assert run(finished.spec, tmp_path, progress=False).verdicts == finished.verdicts
    again = run(with_stage(finished.spec, "judge", rules={"carries": 0.7}), tmp_path, progress=False)
    assert again.verdicts, "judging needs no model"


def test_weights_that_someone_kept_are_not_dropped_by_a_call_that_keeps_none(finished, tmp_path):
    copied(finished, tmp_path)
    other = with_stage(finished.spec, "patch", slots=("value",))
    [result] = run_cohort([other], tmp_path, keep_weights=False)
    assert result.model() is not None


def test_a_kill_before_passing_weights_are_dropped_is_made_good_by_the_next_call(finished, tmp_path, monkeypatch):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "drop", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_cohort([finished.spec], tmp_path, keep_weights=False)
    assert is_finished(finished.spec, tmp_path)
    [result] = run_cohort([finished.spec], tmp_path, keep_weights=False)
    assert not result.folder.holds(Weights)
    assert set(contents(finished.folder)) - set(contents(result.folder)) == {"weights.safetensors"}


def test_a_kill_between_the_seal_and_the_weights_leaves_nothing_behind(finished, tmp_path, monkeypatch):
    unlink = Path.unlink

    def interrupted(path: Path, missing_ok: bool = False) -> None:
        if path.name == "weights.safetensors":
            raise KeyboardInterrupt
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_cohort([finished.spec], tmp_path, keep_weights=False)
    [result] = run_cohort([finished.spec], tmp_path, keep_weights=False)
    assert "weights.safetensors" not in contents(result.folder)
    assert run(finished.spec, tmp_path, fresh=True, progress=False).model() is not None


def test_of_several_analyses_the_usual_one_is_taken_else_the_last(finished, tmp_path):
    result = copied(finished, tmp_path)
    for carries in (0.6, 0.7, 0.8):
        last = redo(result, "judge", Judge(rules={"carries": carries})).stages["judge"].id
    assert load_run(result.folder.path).stages["judge"].id == finished.stages["judge"].id
    result.stages["judge"].folder.discard()
    assert load_run(result.folder.path).stages["judge"].id == last
    chosen = load_run(result.folder.path, {"judge": last})
    assert chosen.effects.slots == ("key",), "what an analysis reads comes with it"


def test_emergence_outlives_a_kill_at_the_end_of_training(finished, tmp_path, monkeypatch):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    spec = with_stage(finished.spec, "emergence", looks=4, documents=8)
    with monkeypatch.context() as patch:
        patch.setattr("mixerscope.runs._Making._write_training", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(spec, tmp_path, progress=False)
    result = run(spec, tmp_path, progress=False)
    undisturbed = run(spec, tmp_path / "undisturbed", progress=False)
    assert contents(result.folder) == contents(undisturbed.folder)


def test_training_afresh_discards_every_analysis_of_the_old_model(finished, tmp_path):
    copied(finished, tmp_path)
    other = run(with_stage(finished.spec, "patch", slots=("value",)), tmp_path, progress=False)
    folder = other.stages["patch"].folder.path
    result = run(finished.spec, tmp_path, fresh=True, progress=False)
    assert not folder.exists()
    assert contents(result.folder) == contents(finished.folder)


def test_judging_again_is_byte_identical_and_builds_no_model(finished, tmp_path, monkeypatch):
    result = copied(finished, tmp_path)
    before = contents(result.folder)
    for name in ("build_model", "trained_models", "train_cohort"):
        monkeypatch.setattr(f"mixerscope.runs.{name}", refuse)
    assert redo(result, "judge", Judge(), fresh=True).verdicts == finished.verdicts
    assert contents(result.folder) == before
    other = redo(result, "judge", Judge(rules={"carries": 0.7}))
    assert other.stages["judge"].record.settings["rules"]["carries"] == 0.7
    assert load_run(result.folder.path).stages["judge"].id == finished.stages["judge"].id, "the usual one, unasked"


def test_a_stage_that_needs_the_model_is_not_worked_out_from_stored_results(finished):
    with pytest.raises(UserError, match="needs the model"):
        redo(finished, "patch", finished.spec.stages["patch"])


def test_emergence_asked_for_later_means_training_again(finished, tmp_path):
    copied(finished, tmp_path)
    spec = with_stage(finished.spec, "emergence", looks=4, documents=8)
    with pytest.raises(UserError, match=r"measured while training.*means training again, with --fresh"):
        run(spec, tmp_path, progress=False)
    assert run(spec, tmp_path, fresh=True, progress=False).emergence.points


# --- A model that cannot be patched is a result.


def unpatchable(monkeypatch) -> None:
    def failing(models, *_: object, **__: object):
        return [SelfTestFailed("site 'embed' cannot be trusted: it leaks") for _ in models]

    monkeypatch.setattr("mixerscope.stages.patch.grids_or_failures", failing)


def test_a_model_that_cannot_be_patched_keeps_its_training_and_says_why(finished, tmp_path, monkeypatch):
    unpatchable(monkeypatch)
    result = run(finished.spec, tmp_path, progress=False)
    assert result.reason == "the model cannot be patched: site 'embed' cannot be trusted: it leaks"
    assert result.status == finished.status
    assert result.curve == finished.curve
    assert result.scores.accuracy == finished.scores.accuracy, "accuracy needs no patching"
    with pytest.raises(UserError, match="cannot be patched"):
        _ = result.verdicts
    monkeypatch.setattr("mixerscope.runs.train_cohort", refuse)
    monkeypatch.setattr("mixerscope.stages.patch.grids_or_failures", refuse)
    assert run(finished.spec, tmp_path, progress=False).reason == result.reason, "it is not tried again"


# --- Emergence.


def with_emergence(spec, looks: int):
    return with_stage(spec, "emergence", looks=looks, documents=8)


def test_emergence_is_measured_at_log_spaced_steps_and_changes_nothing_else(finished, tmp_path):
    with pytest.raises(UserError, match="did not measure emergence"):
        _ = finished.emergence
    result = run(with_emergence(finished.spec, 4), tmp_path, progress=False)
    points = result.emergence.points
    assert sorted({point.step for point in points}) == [0, 1, 2, 6]
    pairs = make_pairs(finished.task, finished.spec.stages["patch"], finished.spec.data_seed)
    at_the_end = [point for point in points if point.step == 6]
    assert len(at_the_end) == len(boundary_sites(finished.model())) * len(pairs.original.roles)
    assert all((point.share is None) == bool(point.reason) for point in points)
    assert result.run_id == finished.run_id, "it changes no weight, so it is no other training"
    found, before = contents(result.folder), contents(finished.folder)
    assert {name: found[name] for name in before} == before


def test_the_emergence_of_a_learned_model_ends_in_the_shares_of_its_table(tmp_path):
    spec = tiny_spec("attention", steps=300, batch_size=32, documents=640, lr=1e-2, eval_every=300)
    spec = spec.changed(
        task=spec.task.changed(num_pairs=2, num_keys=3, num_values=3), model=spec.model.changed(init="small_model")
    )
    spec = with_stage(with_stage(spec, "patch", documents=64), "emergence", looks=1, documents=64)
    result = run(spec, tmp_path, progress=False)
    points = result.emergence.points
    table = {
        (r["slot"], r["site"], r["role"]): r
        for r in result.effects.rows()
        if r["metric"] == SHARE and r["direction"] == "restore"
    }
    assert points
    for point in points:
        assert point.step == 300
        assert point.share == pytest.approx(table[point.slot, point.site, point.role]["value"], abs=1e-6)
    assert max(point.share for point in points) > 0.9
    assert points[0].accuracy == pytest.approx(result.scores.accuracy.value)


def test_emergence_of_a_diverging_run_says_so(tmp_path):
    spec = tiny_spec("attention", lr=1e30, schedule="constant", warmup=0.0)
    points = run(with_emergence(spec, 3), tmp_path, progress=False).emergence.points
    assert [point.step for point in points if point.site is None] != []
    assert all(point.reason for point in points if point.share is None)


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


def test_edits_other_than_the_patch_can_be_asked_for(finished, tmp_path):
    copied(finished, tmp_path)
    result = run(with_stage(finished.spec, "patch", edits=("swap", "zero", "mean")), tmp_path, progress=False)
    assert {cell.edit for cell in result.effects.cells} == {"swap", "zero", "mean"}
    assert result.verdicts == finished.verdicts, "a verdict reads the patch"


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


def test_whoever_is_told_may_stop_the_work_and_the_next_call_goes_on(finished, tmp_path):
    def stop(stage: str, done: int, total: int, note: str) -> Stop | None:
        return Stop("enough") if stage == "patch" else None

    with pytest.raises(Cancelled, match="enough"):
        run(finished.spec, tmp_path, stop)
    assert run_folder(finished.spec, tmp_path).sealed, "training was done"
    assert contents(run(finished.spec, tmp_path, progress=False).folder) == contents(finished.folder)


def test_representations_are_one_line(finished):
    grid_like = (finished, finished.effects, finished.verdicts["key"], finished.folder)
    assert all(0 < len(repr(thing)) < 200 for thing in grid_like)
    assert [result.run_id for result in load_runs(finished.folder.path.parent)] == [finished.run_id]
