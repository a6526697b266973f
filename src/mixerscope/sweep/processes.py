"""A sweep in several processes of one machine, each with a GPU of its own where there are several.

They are given the same item and share its cohorts. One that dies is mourned in a line: the others take up what it was
making, from its last checkpoint.
"""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import torch

from mixerscope.errors import UserError, remark
from mixerscope.machine import Machine
from mixerscope.runs import is_finished
from mixerscope.signals import received
from mixerscope.sweep.items import Item
from mixerscope.sweep.listening import SweepOutcome
from mixerscope.sweep.plan import Plan
from mixerscope.sweep.table import CohortRow, JobRow, read_rows, row_of

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


def execute_in_processes(plan: Plan, item: Item, count: int) -> SweepOutcome:
    """Runs an item in so many processes, and gives what became of the plan."""
    root = Path(item.root)
    before = len(read_rows(root))
    path = item.write()
    started = [_start(path, number) for number in range(min(count, max(1, len(plan.cohorts))))]
    try:
        _wait(started)
    finally:
        for process in started:
            process.terminate()  # those that have ended do not mind
        for process in started:
            process.wait()
        with suppress(OSError):
            path.unlink()
            path.parent.rmdir()
            path.parents[1].rmdir()
    rows = [row_of(row) for row in read_rows(root)[before:]]
    cohorts = [row for row in rows if isinstance(row, CohortRow)]
    tried = {row.cohort for row in cohorts if row.ending == "failed"}
    left = [c for c in plan.cohorts if c.id not in tried and not all(is_finished(run, root) for run in c.runs)]
    return SweepOutcome(cohorts, [row for row in rows if isinstance(row, JobRow)], left=left)


def _start(path: Path, number: int) -> "subprocess.Popen[bytes]":
    environment = dict(os.environ)
    if torch.cuda.device_count() > 1:
        visible = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
        names = [name for name in visible if name] or [str(n) for n in range(torch.cuda.device_count())]
        environment["CUDA_VISIBLE_DEVICES"] = names[number % len(names)]
    # In a session of its own: a signal to all is for this process, which tells the others once.
    return subprocess.Popen(
        [sys.executable, "-m", "mixerscope.work", str(path)], env=environment, start_new_session=True
    )


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
