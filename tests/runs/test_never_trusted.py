"""A folder is what its content says: damage, copies and foreign files."""

import json
import shutil

import pytest

from mixerscope.artifacts import Curve, SelfTest, Status, Verdicts, Weights
from mixerscope.artifacts.effects import EffectTable
from mixerscope.errors import CorruptFile, UserError
from mixerscope.results import load_run, run_folder
from mixerscope.runs import run
from mixerscope.stages import patch as patch_stage
from mixerscope.store import find_runs
from tests.conftest import with_stage
from tests.runs.folders import contents, copied

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
    from mixerscope.listing import listed_runs

    assert len(listed_runs(tmp_path, [])) == 1


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


def test_a_dangling_link_in_the_way_is_left_alone(finished, tmp_path):
    folder = run_folder(finished.spec, tmp_path)
    folder.path.mkdir()
    (folder.path / "spec.json").symlink_to("nowhere")
    with pytest.raises(UserError, match="is in the way"):
        run(finished.spec, tmp_path, progress=False)
    assert (folder.path / "spec.json").is_symlink()
