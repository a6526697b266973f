"""Processes that wait for something to compile."""

import subprocess
import sys

import pytest

from mixerscope.errors import UserError
from mixerscope.machine import CPU
from mixerscope.sweep import call as call_module
from mixerscope.sweep import idle as idle_module
from mixerscope.sweep.call import Call, carry_out
from mixerscope.sweep.executors import executor_of
from mixerscope.sweep.idle import IN_FLIGHT, Idle


def test_those_that_were_not_taken_are_ended():
    idle = Idle(2)
    waiting = idle.processes
    taken = idle.take()
    idle.close()
    assert [process.poll() is None for process in (taken, waiting[0])] == [True, False]
    taken.communicate()  # at the end of its input it ends by itself
    assert taken.returncode == 0


def test_as_many_are_started_as_can_be(monkeypatch):
    def none_left():
        raise BlockingIOError("too many processes")

    monkeypatch.setattr(idle_module, "start", none_left)
    idle = Idle(2)
    assert idle.processes == []
    with pytest.raises(BlockingIOError):
        idle.take()


def test_they_are_started_before_torch_is_imported():
    code = "import sys, mixerscope.sweep.call, mixerscope.sweep.idle; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({"device": "cuda", "compile": True}, IN_FLIGHT),
        ({"device": "cuda", "compile": True, "in_flight": 2, "on": "local:1"}, 2),
        ({"device": "cuda", "compile": True, "in_flight": 15}, 1),
        ({"device": "cuda", "compile": True, "in_flight": -1}, 1),
        ({"device": "cuda"}, 0),
        ({"device": "cpu", "compile": True}, 0),
        ({"device": "cuda", "compile": True, "dry_run": True}, 0),
        ({"device": "cuda", "compile": True, "on": "local:2"}, 0),
        ({"device": "cuda", "compile": True, "on": "slurm"}, 0),
    ],
)
def test_a_call_starts_as_many_as_compile_at_first(monkeypatch, asked, count):
    """And ends them, here because it is wrong in other ways."""
    started = []

    class Counted(Idle):
        def __init__(self, count):
            super().__init__(0)
            started.append(count)

        def close(self):
            started.append("closed")

    monkeypatch.setattr(call_module, "Idle", Counted)
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    with pytest.raises(UserError):
        carry_out("nowhere.json", Call(**{"stop_after": -1.0, **asked}))
    assert started == [count, "closed"]


def test_several_processes_have_those_that_compile_of_their_own():
    idle = Idle(1)
    assert executor_of("local:1", CPU, idle=idle).idle is idle
    assert len(idle.processes) == 1
    executor_of("local:2", CPU, idle=idle)
    assert idle.processes == []
