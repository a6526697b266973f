"""Processes that compile, started before it is known what there is to compile: they import while a sweep is planned.

Nothing here imports torch. Where nothing is cached and files are slow, that and the compiler take ten seconds and more,
which pass at the same time in the process that plans and in these.
"""

import os
import subprocess
import sys
from contextlib import suppress

IN_FLIGHT = 4
"""Cohorts at once on a GPU, unless somebody asks otherwise."""
THREADS = "2"
"""Of the compiler in each process; there is a process for nearly every core."""


class Idle:
    """Such processes, until each is given something to do."""

    def __init__(self, count: int) -> None:
        self.processes: list[subprocess.Popen[str]] = []
        with suppress(OSError):  # as many as the system lets start
            for _ in range(count):
                self.processes.append(start())

    def take(self) -> "subprocess.Popen[str]":
        """One of them, or a new one where there are no more."""
        while self.processes:
            process = self.processes.pop(0)
            if process.poll() is None:
                return process
            process.communicate()
        return start()

    def close(self) -> None:
        """Ends those that were not taken."""
        for process in self.processes:
            process.kill()
            process.communicate()
        self.processes = []


def start() -> "subprocess.Popen[str]":
    """A process that reads what to compile from its standard input."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "mixerscope.sweep.ahead"],
        env={**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": THREADS, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # an interrupt is for the process that trains, which ends these
    )
