"""A sweep on this machine: in this process, or in several, each with a GPU of its own where there are several.

Of several, one that dies is mourned in a line: the others take up what it was making, from its last checkpoint.
"""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from mixerscope.errors import UserError, remark
from mixerscope.machine import Machine
from mixerscope.signals import received
from mixerscope.sweep.execute import execute
from mixerscope.sweep.executors.base import Executor, Following, remove_item
from mixerscope.sweep.idle import Idle
from mixerscope.sweep.items import Item
from mixerscope.sweep.listening import Listener, SweepOutcome
from mixerscope.sweep.plan import Plan

LOCAL = "local"
LOOKED_EVERY = 0.2
"""Seconds between two looks at the processes."""
MOST = 64


def processes_of(on: str, machine: Machine) -> int:
    """How many processes `--on` asks for: `local` is one for each GPU, `local:3` is three."""
    name, colon, number = on.partition(":")
    if name != LOCAL or (colon and not number.isdecimal()) or not 1 <= int(number or 1) <= MOST:
        raise UserError(f"--on is {LOCAL!r}, or {LOCAL}:N with a number of processes from 1 to {MOST}, got {on!r}")
    if colon:
        return int(number)
    return max(1, torch.cuda.device_count()) if machine.device == "cuda" else 1


@dataclass(frozen=True)
class Here(Executor):
    """In this process."""

    machine: Machine
    idle: Idle | None = None
    """Processes that were started early to compile."""

    def execute(self, plan: Plan, item: Item, listener: Listener) -> SweepOutcome:
        return execute(
            plan,
            Path(item.root),
            self.machine,
            stop_after=item.stop_after,
            keep_weights=item.keep_weights,
            listener=listener,
            idle=self.idle,
        )


@dataclass(frozen=True)
class Processes(Executor):
    """In so many processes of this machine."""

    count: int
    own_lines = True

    def execute(self, plan: Plan, item: Item, listener: Listener) -> SweepOutcome:
        following = Following(plan, Path(item.root), item.call, listener)
        path = item.write()
        started = [_start(path, number) for number in range(min(self.count, max(1, len(plan.cohorts))))]
        try:
            _wait(started)
        finally:
            for process in started:
                process.terminate()  # those that have ended do not mind
            for process in started:
                process.wait()
            remove_item(path)
        return following.outcome()


def _start(path: Path, number: int) -> "subprocess.Popen[bytes]":
    # In a session of its own: a signal to all is for this process, which tells the others once.
    words = [sys.executable, "-m", "mixerscope.work", str(path), "--with-parent"]
    return subprocess.Popen(words, env={**os.environ, **gpu_of(number)}, start_new_session=True)


def gpu_of(number: int) -> dict[str, str]:
    """What shows a process one GPU of several, which is its `cuda:0`; nothing where there are not several."""
    count = torch.cuda.device_count()
    if count < 2:
        return {}
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    names = visible[:count] or [str(n) for n in range(count)]  # what follows a name that is none is not seen
    return {"CUDA_VISIBLE_DEVICES": names[number % len(names)].strip()}


def _wait(started: "list[subprocess.Popen[bytes]]") -> None:
    mourned: set[int] = set()
    while any(process.poll() is None for process in started):
        if (interrupted := received()) is not None:
            for process in started:
                process.terminate()
            for process in started:
                process.wait()
            raise interrupted
        for process in started:
            code = process.poll()
            if code is not None and code < 0 and process.pid not in mourned:
                mourned.add(process.pid)
                remark(f"process {process.pid} was killed by signal {-code}; what it was making is taken up again")
        time.sleep(LOOKED_EVERY)
