"""What a call packs, got ready while others train."""

import pytest

from mixerscope.machine import CPU
from mixerscope.packs import ahead as ahead_module
from mixerscope.packs import write_pack
from mixerscope.results import load_runs as made_below
from mixerscope.sweep.call import Call, carry_out
from mixerscope.sweep.execute import execute
from mixerscope.sweep.executors.local import Here
from mixerscope.sweep.listening import All, Listener, SweepOutcome
from mixerscope.sweep.packing import Packing
from mixerscope.sweep.plan import Imagined, make_plan
from mixerscope.sweep.source import load_runs


@pytest.mark.parametrize("most", [None, 0.001])
def test_runs_of_a_cohort_are_made_ready_when_it_ends(sweep_file, tmp_path, monkeypatch, most):
    heard = []

    class Noting(Listener):
        def cohort_ended(self, cohort, row):
            heard.append((row.ending, [len(packing.ahead.begun), len(cohort)]))

    root, file = tmp_path / "out", tmp_path / "runs.pack"
    packing = Packing(file, most, root, ahead=True)
    plan = make_plan(load_runs(str(sweep_file({"seed": [0, 1], "train.lr": [1e-3, 1e-2]}))), root, CPU)
    execute(plan, root, CPU, listener=All(packing, Noting()))
    assert heard == [("finished", [4, 4])], "asked for when the cohort ended, and not at the end of the call"
    found = made_below(root)
    with monkeypatch.context() as here:
        here.setattr(ahead_module, "part_of", None)  # nothing is left to be made in this process
        lines = packing.pack(found)
    packing.close()
    assert sum("1 finished runs are packed" in line for line in lines) == (4 if most else 0)
    if not most:
        size = write_pack(tmp_path / "again.pack", found)
        assert lines == [f"4 finished runs are packed in {file}, {size.packed / 2**20:.1f} MiB"]
        assert file.read_bytes() == (tmp_path / "again.pack").read_bytes()


def test_what_failed_is_not_made_ready(sweep_file, tmp_path, monkeypatch):
    def broken(*arguments, **settings):
        raise RuntimeError("out of order")

    monkeypatch.setattr("mixerscope.sweep.execute.runs.run_cohort", broken)
    root = tmp_path / "out"
    packing = Packing(tmp_path / "runs.pack", None, root, ahead=True)
    outcome = execute(make_plan(load_runs(str(sweep_file())), root, CPU), root, CPU, listener=packing)
    assert {row.ending for row in outcome.cohorts} == {"failed"}
    assert packing.ahead.begun == {}
    packing.close()


def test_without_idle_cores_no_process_is_asked(tmp_path):
    assert Packing(tmp_path / "runs.pack", None, tmp_path, ahead=False).ahead is None


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_call_has_idle_cores_for_it_where_a_gpu_trains(sweep_file, tmp_path, monkeypatch, device):
    asked = []

    class Noting(Packing):
        def __init__(self, *arguments, ahead):
            super().__init__(*arguments, ahead=False)
            asked.append(ahead)

    monkeypatch.setattr("mixerscope.machine.Machine", Imagined)  # there is no GPU here
    monkeypatch.setattr(Here, "execute", lambda *arguments: SweepOutcome())
    monkeypatch.setattr("mixerscope.sweep.packing.Packing", Noting)
    carry_out(str(sweep_file()), Call(device=device, out=tmp_path / "out", pack=tmp_path / "runs.pack"))
    assert asked == [device == "cuda"]


@pytest.mark.parametrize("event", ["sweep_started", "job_started", "cohort_started", "job_ended", "remark"])
def test_all_listeners_hear_all(event):
    heard = []

    class Noting(Listener):
        pass

    setattr(Noting, event, lambda self, what: heard.append((event, what)))
    getattr(All(Noting(), Listener(), Noting()), event)("this")
    assert heard == [(event, "this")] * 2
