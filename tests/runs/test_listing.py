"""A listing is kept, and is read again wherever something was written since."""

import os
import shutil
import time
from pathlib import Path

import pytest

from mixerscope import listing
from mixerscope.artifacts import StageOutcome
from mixerscope.errors import UserError
from mixerscope.listing import listed_runs
from mixerscope.results import load_run


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


def unread(place: str) -> None:
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


@pytest.mark.parametrize("content", ["", "[]", '{"format": 1}', '{"format": 1, "runs": {"a": 3}}', "[" * 100_000])
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


def test_many_are_read_by_several_processes_and_give_the_same(root, monkeypatch):
    folder = next(root.iterdir())
    shutil.copytree(folder, root / "more" / folder.name)
    (root / "more" / "attention-0123456789ab").mkdir()
    (root / "more" / "attention-0123456789ab" / "seal.json").write_text("{}")
    alone, named = [], []
    first = listed_runs(root, alone)
    shutil.rmtree(root.parent / "cache")
    monkeypatch.setattr(listing, "MANY", 1)
    assert listed_runs(root, named, processes=2) == first
    assert alone == named != []


def test_what_is_read_of_a_run_with_every_stage_once_is_what_is_chosen_of_any(root, monkeypatch):
    first = listed_runs(root, [])
    shutil.rmtree(root.parent / "cache")
    monkeypatch.setattr(listing, "_only_verdicts", lambda folder, stages: None)
    assert listed_runs(root, []) == first
    assert [run.mechanism for run in first.values()] != [""]


def test_a_sweep_of_many_keeps_its_listing(root, kept, monkeypatch):
    listing.keep_listing(root, 0)
    assert not kept.exists()
    listing.keep_listing(root, 1)
    monkeypatch.setattr(listing, "_read", unread)
    assert len(listed_runs(root, [])) == 1
