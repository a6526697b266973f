"""`status`, `verify` and `gc`: what is going on in a folder, whether it is whole, and what may be cleared away."""

import json
import os
from dataclasses import asdict, replace

import pytest

from mixerscope.cli.settings import make_spec, read_spec_file
from mixerscope.progress import Cancelled, Stop
from mixerscope.results import run_folder
from mixerscope.runs import run
from mixerscope.store import Locks
from mixerscope.store.locks import Holder


@pytest.fixture
def begun(spec_file, tmp_path):
    """A run that was stopped after one of two steps."""
    spec = make_spec(read_spec_file(spec_file()), ["seed=7"])
    with pytest.raises(Cancelled):
        run(spec, tmp_path / "runs", lambda *told: Stop("enough"))
    return run_folder(spec, tmp_path / "runs").path.name


def test_status_says_what_is_finished_in_the_making_interrupted_and_failed(cli, finished, begun, tmp_path):
    code, out, err = cli("status", "runs")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "1 runs finished, 0 in the making, 1 interrupted"
    assert begun in out
    assert "1/2" in out
    assert "nobody: the next call goes on" in out
    locks = Locks(tmp_path / "runs", [begun])
    locks.take()
    row = {
        "kind": "cohort",
        "cohort": "c",
        "label": "mamba d=8",
        "ending": "failed",
        "reason": "its own",
        "runs": ["x"],
    }
    (tmp_path / "runs/sweep.jsonl").write_text(json.dumps(row) + "\n" + '{"kind": "coh')
    _, out, _ = cli("status", "runs")
    locks.release()
    assert out.splitlines()[0] == "1 runs finished, 1 in the making, 1 cohorts failed"
    assert f"process {os.getpid()}, since" in out
    assert "mamba d=8 failed: its own" in out


@pytest.mark.parametrize(("at", "known"), [(1e12, True), (1.0, False)])
def test_a_stage_that_failed_is_said_until_something_was_made_since(cli, finished, tmp_path, at: float, known: bool):
    """Of runs whose training is there: the seal of a training alone says nothing of what failed after it."""
    [path] = (tmp_path / "runs").glob("*/seal.json")
    about = {"kind": "cohort", "label": "mamba d=8", "runs": [path.parent.name.rpartition("-")[2]], "at": at}
    row = {**about, "ending": "failed", "reason": "its own"}
    (tmp_path / "runs/sweep.jsonl").write_text(json.dumps(row) + "\n")
    assert ("mamba d=8 failed: its own" in cli("status", "runs")[1]) == known
    (tmp_path / "runs/sweep.jsonl").open("a").write(json.dumps({**about, "ending": "finished"}) + "\n")
    assert "failed" not in cli("status", "runs")[1]


def test_status_of_no_folder_is_refused(refused):
    assert "nowhere is not a folder" in refused("status", "nowhere")
    assert "nowhere is not a folder" in refused("gc", "nowhere")
    assert "nowhere is not a folder" in refused("verify", "nowhere")


def test_verify_names_what_is_damaged(cli, finished):
    assert cli("verify", "runs")[:2] == (0, "1 run whole\n")
    assert cli("verify", finished)[0] == 0
    (finished / "curve.json").write_text("{}")
    code, out, err = cli("verify", "runs")
    assert (code, out) == (1, "0 runs whole, 1 damaged\n")
    assert "curve.json has changed" in err


def test_gc_removes_what_the_dead_left_and_nothing_else(cli, finished, begun, tmp_path):
    runs = tmp_path / "runs"
    lock = runs / ".mixerscope/locks/x.lock"
    lock.parent.mkdir()
    lock.write_text(json.dumps(asdict(replace(Holder.here(), began="1"))))
    half = finished / ".curve.json.mixerscope-abc"
    half.write_text("ha")
    os.utime(half, (1, 1))
    young = finished / ".curve.json.mixerscope-young"
    young.write_text("somebody is writing it")
    (finished / "notes.txt").write_text("mine")
    before = {path for path in runs.rglob("*") if path.is_file()}
    code, out, _ = cli("gc", "runs", "--dry-run")
    assert code == 0
    assert out.endswith("2 files, 0.0 MiB, would be removed\n")
    assert {path for path in runs.rglob("*") if path.is_file()} == before
    code, out, _ = cli("gc", "runs")
    assert out.endswith("2 files, 0.0 MiB, removed\n")
    assert before - {path for path in runs.rglob("*") if path.is_file()} == {lock, half}
    assert "1 interrupted" in cli("status", "runs")[1], "its checkpoint is kept"


def test_runs_are_packed_and_unpacked(cli, spec_file, tmp_path, refused):
    for seed in (0, 1):
        for rate in (1e-3, 3e-3):
            cli("run", spec_file(), "--set", f"seed={seed}", "--set", f"train.lr={rate}", "--out", "runs")
    code, out, _ = cli("pack", "runs", "all.pack")
    assert (code, "4 of 4 finished runs" in out) == (0, True)
    code, out, _ = cli("pack", "runs", "best.pack", "--best")
    assert (code, "2 of 4 finished runs" in out) == (0, True)
    assert "2 runs unpacked" in cli("unpack", "best.pack", "--out", "home")[1]
    assert "is not a folder" in refused("pack", tmp_path / "nothing", "none.pack")
    (tmp_path / "empty").mkdir()
    assert "no finished run" in refused("pack", "empty", "none.pack")
