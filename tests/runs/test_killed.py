"""Runs that were killed or stopped: what is finished is kept, the rest is made again, byte for byte."""

import errno
import os
from pathlib import Path

import pytest

from mixerscope.artifacts import Weights
from mixerscope.errors import CannotWrite, CorruptFile, UserError
from mixerscope.progress import Cancelled, Stop
from mixerscope.results import load_run, run_folder
from mixerscope.runs import is_finished, run, run_cohort
from mixerscope.store import RunFolder
from mixerscope.store.upkeep import clear, leftovers
from tests.runs.folders import contents, refuse


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


def test_an_interrupted_write_leaves_nothing_behind_in_the_end(finished, tmp_path):
    folder = run_folder(finished.spec, tmp_path)
    folder.path.mkdir()
    (folder.path / ".writing.json").write_text('["curve.json", "seal.json"]')
    (folder.path / "curve.json").write_text("half of a")
    (folder.path / ".curve.json.mixerscope-abcd1234").write_text("hal")
    run(finished.spec, tmp_path, progress=False)
    assert contents(folder) == contents(finished.folder)


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


@pytest.mark.parametrize("done", [False, True], ids=["not done", "done, and the answer lost"])
def test_a_rename_that_fails_seals_nothing_wrongly_and_the_next_call_goes_on(finished, tmp_path, monkeypatch, done):
    """As on a network. The first call fails at its first rename, the second at its second, until one ends before."""
    rename, count, folder = os.replace, 0, run_folder(finished.spec, tmp_path)

    def failing(source: Path, target: Path) -> None:
        nonlocal count
        count += 1
        if count == attempt:
            if done:
                rename(source, target)
            raise OSError(errno.EIO, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "replace", failing)
    for attempt in range(1, 100):
        count = 0
        try:
            run(finished.spec, tmp_path, progress=False)
            break
        except CannotWrite:
            if folder.sealed:
                folder.verify()
    assert attempt > 5
    clear(tmp_path, leftovers(tmp_path))  # a journal may be left, where a seal was written and this was not known
    assert contents(folder) == contents(finished.folder)
    assert not (tmp_path / ".mixerscope").exists()


def test_whoever_is_told_may_stop_the_work_and_the_next_call_goes_on(finished, tmp_path):
    def stop(stage: str, done: int, total: int, note: str) -> Stop | None:
        return Stop("enough") if stage == "patch" else None

    with pytest.raises(Cancelled, match="enough"):
        run(finished.spec, tmp_path, stop)
    assert run_folder(finished.spec, tmp_path).sealed, "training was done"
    assert contents(run(finished.spec, tmp_path, progress=False).folder) == contents(finished.folder)
