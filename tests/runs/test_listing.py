"""A listing is kept, and is read again wherever something was written since."""

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mixerscope import listing
from mixerscope.artifacts import Record, StageOutcome
from mixerscope.errors import UserError
from mixerscope.listing import listed_runs
from mixerscope.results import load_run
from mixerscope.store import RunFolder, sha256_of


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    """Where listings are kept, of however few runs, that are as old as can be."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(listing, "WORTH_KEEPING", 1)
    return tmp_path / "cache/mixerscope/listings"


@pytest.fixture
def root(finished, tmp_path):
    """A folder with one run, which nobody has written to for long."""
    folder = Path(shutil.copytree(finished.folder.path, tmp_path / "runs" / finished.folder.path.name))
    for path in [folder, *folder.iterdir()]:
        os.utime(path, (1e9, 1e9))
    return folder.parent


def unread(place: str, *_: object) -> None:
    raise AssertionError(f"{place} was read again")


def test_what_has_not_changed_is_not_read_again(root, monkeypatch):
    first = listed_runs(root, [])
    monkeypatch.setattr(listing, "_read", unread)
    monkeypatch.chdir(root.parent)
    assert listed_runs(root, []) == first
    assert list(listed_runs(Path("runs"), []).values()) == list(first.values()), "however the folder is called"


def test_a_stage_that_was_made_again_is_read_again(root):
    [(path, before)] = listed_runs(root, []).items()
    [judge] = [stage for stage in load_run(path).folder.stages() if stage.name == "judge"]
    identity, files = judge.read(judge.record).identity, [name for name in judge.seal().files if "verdicts" not in name]
    judge.begin([])
    shutil.copytree(path, root.parent / "whole")
    judge.write(judge.record(identity, {}), StageOutcome("impossible", "it fell off the table"))
    judge.close(identity, files)
    [after] = listed_runs(root, []).values()
    assert (before.mechanism != after.mechanism, after.mechanism) == (True, "it fell off the table")


def test_what_was_written_a_moment_ago_is_not_kept(root, kept):
    os.utime(next(root.iterdir()), (time.time(), time.time()))
    listed_runs(root, [])
    assert not kept.exists()


@pytest.mark.parametrize("content", ["", "[]", '{"format": 3}', '{"format": 3, "parts": [], "runs": {"a": 3}}', "[" * 100_000])
def test_a_listing_that_makes_no_sense_is_made_again(root, kept, content):
    first = listed_runs(root, [])
    [file] = kept.iterdir()
    file.write_text(content)
    assert listed_runs(root, []) == first


def test_where_nothing_can_be_kept_runs_are_listed_all_the_same(root, tmp_path):
    (tmp_path / "cache").write_text("a file")
    assert len(listed_runs(root, [])) == 1


def test_runs_that_are_gone_are_forgotten(root):
    listed_runs(root, [])
    [run] = root.iterdir()
    run.rename(root.parent / run.name)
    with pytest.raises(UserError, match="holds no finished runs"):
        listed_runs(root, [])


def test_a_stage_that_was_being_made_at_the_last_look_is_read_when_it_is_done(root, monkeypatch):
    [run] = root.iterdir()
    [judge] = run.glob("judge-*")
    seal = judge / "seal.json"
    sealed = seal.read_bytes()
    seal.unlink()
    for path in (judge, run):
        os.utime(path, (1e9, 1e9))
    [before] = listed_runs(root, []).values()
    seal.write_bytes(sealed)  # changes the stage's folder, and not the run's
    [after] = listed_runs(root, []).values()
    assert before.mechanism == "" != after.mechanism


def test_runs_share_what_is_the_same_and_no_more(root, kept, monkeypatch):
    """A second run of the same settings but the seed: what both say alike is there once, and read again so."""
    [first] = root.iterdir()
    record = load_run(first).record
    spec = {**record.spec, "seed": 12, "train": {**record.spec["train"]}}
    folder = RunFolder(root / "mamba-0123456789ab")
    shutil.copytree(first, folder.path)
    folder.write(Record(record.identity, spec))
    seal = load_run(first).folder.seal()
    files = {**seal.files, "spec.json": sha256_of((folder.path / "spec.json").read_bytes())}
    (folder.path / "seal.json").write_bytes(replace(seal, id="0123456789ab", files=files).to_bytes())
    for stage in folder.path.glob("*/seal.json"):
        stage.write_text(stage.read_text().replace(seal.id, "0123456789ab"))
    for path in [folder.path, *folder.path.iterdir()]:
        os.utime(path, (1e9, 1e9))
    found = listed_runs(root, [])
    ours, other = found[str(folder.path)], found[str(first)]
    assert ours.training == spec and other.training == record.spec
    assert all(ours.training[part] is other.training[part] for part in ("task", "model", "train"))
    monkeypatch.setattr(listing, "_read", unread)
    assert listed_runs(root, []) == found


@pytest.mark.parametrize("name", ["seal.json", "spec.json", "verdicts.json"])
def test_a_damaged_run_is_named_and_the_others_are_listed(root, name):
    [first] = root.iterdir()
    other = Path(shutil.copytree(first, root / "more" / first.name))
    for path in other.rglob(name):
        path.write_text("{}")
    damaged: list[str] = []
    assert [*listed_runs(root, damaged)] == [str(first)]
    assert len(damaged) == 1 and str(other) in damaged[0]


def test_what_is_read_of_a_run_with_every_stage_once_is_what_is_chosen_of_any(root, monkeypatch):
    first = listed_runs(root, [])
    shutil.rmtree(root.parent / "cache")
    monkeypatch.setattr(listing, "_only_verdicts", lambda *_: None)
    assert listed_runs(root, []) == first
    assert [run.mechanism for run in first.values()] != [""]


def test_a_sweep_of_many_keeps_its_listing(root, kept, monkeypatch):
    listing.keep_listing(root, 0)
    assert not kept.exists()
    listing.keep_listing(root, 1)
    monkeypatch.setattr(listing, "_read", unread)
    assert len(listed_runs(root, [])) == 1
