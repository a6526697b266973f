"""Two processes in one folder: each run is made by one of them, and what the dead leave behind is taken up."""

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from mixerscope.errors import CannotWrite, Held, MixerscopeError, UserError
from mixerscope.machine import CPU
from mixerscope.results import run_folder
from mixerscope.runs import is_finished, run, run_cohort
from mixerscope.store import Locks, append_jsonl, holders, locks, read_jsonl
from mixerscope.store.locks import LAPSED_AFTER, Holder
from mixerscope.sweep.execute import execute
from mixerscope.sweep.listening import Listener
from mixerscope.sweep.plan import make_plan
from mixerscope.sweep.table import read_rows
from tests.conftest import tiny_spec


def held_by(root: Path, holder: Holder | str, age: float = 0.0) -> Path:
    """A lock on the run `x` that somebody holds, touched so many seconds ago."""
    path = root / ".mixerscope/locks/x.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(holder if isinstance(holder, str) else json.dumps(asdict(holder)))
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def taken(root: Path, *names: str) -> Locks:
    found = Locks(root, names or ["x"])
    found.take()
    return found


@pytest.fixture(scope="module")
def gone() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_is_held_is_not_taken_and_says_by_whom(tmp_path):
    first = taken(tmp_path)
    with pytest.raises(Held, match=rf"^x is being made by process {os.getpid()}, since \d\d:\d\d:\d\d$"):
        Locks(tmp_path, ["x"]).take()
    assert holders(tmp_path) == {"x": first.holder}
    first.release()
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"
    taken(tmp_path).release()


def test_several_are_taken_all_or_none(tmp_path):
    first = taken(tmp_path, "b")
    with pytest.raises(Held):
        Locks(tmp_path, ["c", "b", "a"]).take()
    assert set(holders(tmp_path)) == {"b"}
    first.release()


def test_the_lock_of_a_process_that_has_ended_is_recovered(tmp_path, gone):
    held_by(tmp_path, replace(Holder.here(), pid=gone))
    taken(tmp_path).release()


def test_a_number_that_another_process_has_now_is_no_holder(tmp_path):
    held_by(tmp_path, replace(Holder.here(), began="1"))
    assert holders(tmp_path) == {}
    taken(tmp_path).release()


@pytest.mark.parametrize("elsewhere", [{"host": "node7"}, {"space": "another container"}])
def test_elsewhere_a_holder_counts_until_it_has_not_been_heard_of_for_minutes(tmp_path, gone, elsewhere):
    holder = replace(Holder.here(), pid=gone, **elsewhere)
    held_by(tmp_path, holder, age=LAPSED_AFTER - 20)
    with pytest.raises(Held, match="on node7" if "host" in elsewhere else "process"):
        Locks(tmp_path, ["x"]).take()
    held_by(tmp_path, holder, age=LAPSED_AFTER + 20)
    taken(tmp_path).release()


def test_a_process_that_is_there_keeps_its_lock_whatever_the_clock_says(tmp_path):
    """As after a sleep of the machine, or when its clock is set: no process has touched anything for hours then."""
    first = taken(tmp_path)
    os.utime(tmp_path / ".mixerscope/locks/x.lock", (1, 1))
    with pytest.raises(Held):
        Locks(tmp_path, ["x"]).take()
    assert set(holders(tmp_path)) == {"x"}
    first.check()
    first.release()


def test_a_touch_from_the_future_counts_as_one_of_now(tmp_path, gone, monkeypatch):
    """As when a clock was set back: a lock is held while somebody touches it, and not until its date has come."""
    path = held_by(tmp_path, replace(Holder.here(), pid=gone, host="node7"), age=-1e8)
    with pytest.raises(Held, match="on node7"):
        Locks(tmp_path, ["x"]).take()
    assert abs(path.stat().st_mtime - time.time()) < 100
    monkeypatch.setattr(locks, "LAPSED_AFTER", 0.0)
    time.sleep(0.01)
    taken(tmp_path).release()


def test_a_process_that_has_ended_and_whose_parent_never_asked_is_gone(tmp_path):
    """As the children of a container's first process, which is often no init."""
    program = "import sys, time; sys.stdout.write('x'); sys.stdout.flush(); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read(1)
    holder = replace(Holder.here(), pid=process.pid, began=locks._began(process.pid))
    held_by(tmp_path, holder)
    assert holder.is_there()
    process.kill()
    until = time.monotonic() + 30
    while not holder.is_gone() and time.monotonic() < until:
        time.sleep(0.01)
    assert set(holders(tmp_path)) == set()
    taken(tmp_path).release()
    process.communicate()


def test_a_folder_that_is_gone_for_good_is_not_waited_for(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here").rmdir()
    with pytest.raises(CannotWrite, match="cannot write runs: No such file"):
        Locks(Path("runs"), ["x"]).take()


@pytest.mark.parametrize("content", ["", "[", "{}", "[" * 5000, '{"pid": "x"}'])
def test_a_lock_that_makes_no_sense_counts_until_it_lapses(tmp_path, content: str):
    held_by(tmp_path, content)
    with pytest.raises(Held, match="another process"):
        Locks(tmp_path, ["x"]).take()
    held_by(tmp_path, content, age=LAPSED_AFTER + 20)
    taken(tmp_path).release()


def test_of_many_that_find_a_stale_lock_exactly_one_takes_it(tmp_path, gone):
    for _ in range(5):
        held_by(tmp_path, replace(Holder.here(), pid=gone))
        won: list[Locks] = []
        together = threading.Barrier(8)

        def try_to(together=together, won=won) -> None:
            own = Locks(tmp_path, ["x"])
            together.wait()
            try:
                own.take()
            except Held:
                return
            won.append(own)

        threads = [threading.Thread(target=try_to) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        won[0].check()
        won[0].release()


def test_a_recovery_that_was_killed_stops_nobody_for_ever(tmp_path, gone):
    path = held_by(tmp_path, replace(Holder.here(), pid=gone))
    left = path.with_suffix(".recovering")
    left.touch()
    os.utime(left, (1, 1))
    taken(tmp_path).release()


def test_where_there_are_no_hard_links_locks_hold_all_the_same(tmp_path, monkeypatch):
    def unsupported(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", unsupported)
    first = taken(tmp_path)
    with pytest.raises(Held):
        Locks(tmp_path, ["x"]).take()
    first.check()
    first.release()
    taken(tmp_path).release()


def test_locks_are_touched_while_they_are_held(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "TOUCHED_EVERY", 0.01)
    own = taken(tmp_path)
    path = tmp_path / ".mixerscope/locks/x.lock"
    os.utime(path, (1, 1))
    until = time.monotonic() + 30
    while path.stat().st_mtime < 10 and time.monotonic() < until:
        time.sleep(0.01)
    assert path.stat().st_mtime > 10
    own.release()


def test_whoever_lost_its_lock_writes_nothing(tmp_path):
    """As a process that slept for an hour, while another one took over."""
    spec = tiny_spec()
    name = run_folder(spec, tmp_path).path.name

    def lose(stage: str, done: int, total: int, note: str) -> None:
        path = tmp_path / f".mixerscope/locks/{name}.lock"
        path.write_text(json.dumps(asdict(replace(Holder.here(), host="node7"))))

    with pytest.raises(MixerscopeError, match="was taken over by another process"):
        run(spec, tmp_path, lose)
    assert not run_folder(spec, tmp_path).sealed
    assert set(holders(tmp_path)) == {name}, "and the other one's lock is left alone"


def test_a_run_that_another_process_makes_is_waited_for(tmp_path, capsys):
    spec = tiny_spec()
    other = taken(tmp_path, run_folder(spec, tmp_path).path.name)
    with pytest.raises(Held):
        run(spec, tmp_path, progress=False, wait=False)
    found: list = []
    thread = threading.Thread(target=lambda: found.append(run(spec, tmp_path, progress=False)))
    thread.start()
    [made] = run_cohort([spec], tmp_path, locks=other)
    other.release()
    thread.join()
    assert found[0].provenance == made.provenance
    assert capsys.readouterr().err.count("is being made by process") <= 1


def test_a_folder_that_cannot_be_written_to_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match=r"^cannot write to .*file: "):
        taken(tmp_path / "file")


class Ending(Listener):
    """Does something when the first cohort has ended, and hears what is said."""

    def __init__(self, then) -> None:
        self.then, self.said = then, []

    def cohort_ended(self, cohort, row) -> None:
        self.then()

    def remark(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.parametrize("other", ["makes it", "dies"])
def test_sweeps_share_the_work_cohort_by_cohort(tmp_path, monkeypatch, other: str):
    monkeypatch.setattr("mixerscope.sweep.claims.ASKED_EVERY", 0.01)
    specs = [tiny_spec(architecture) for architecture in ("attention", "based")]
    plan = make_plan(specs, tmp_path, CPU)
    first = plan.cohorts[0].runs
    theirs = taken(tmp_path, run_folder(first[0], tmp_path).path.name)

    def then() -> None:
        if other == "makes it" and not is_finished(first[0], tmp_path):
            run_cohort(first, tmp_path, locks=theirs)
        theirs.release()

    listener = Ending(then)
    outcome = execute(plan, tmp_path, CPU, listener=listener)
    assert all(is_finished(spec, tmp_path) for spec in specs)
    made = [row.label for row in outcome.cohorts]
    assert len(made) == (1 if other == "makes it" else 2)
    assert [list(cohort.runs) for cohort in outcome.elsewhere] == ([list(first)] if other == "makes it" else [])
    assert len([row for row in read_rows(tmp_path) if row["kind"] == "cohort"]) == len(made)
    assert sum("is being made by process" in text for text in listener.said) == 1, "said once"
    assert not (tmp_path / ".mixerscope").exists()


def test_a_row_is_added_behind_what_is_there_and_half_a_row_is_none(tmp_path):
    table = tmp_path / "table.jsonl"
    append_jsonl(table, {"a": 1})
    inode = table.stat().st_ino
    append_jsonl(table, {"a": 2})
    assert table.stat().st_ino == inode, "it is not written anew"
    with table.open("a") as file:
        file.write('{"a": 3')
    assert read_jsonl(table) == [{"a": 1}, {"a": 2}]
    append_jsonl(table, {"a": 4})
    assert read_jsonl(table) == [{"a": 1}, {"a": 2}, {"a": 4}]
