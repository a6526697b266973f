"""Compiling cohorts before their turn, in processes of their own.

Compiling is work of one thread in Python. Beside cohorts that train in the same process it takes four times as long as
alone (12 s and 45 s, measured with three cohorts in flight), and one cohort can only be compiled after the other. So
other processes compile them and throw away all but what is in the compiler's cache on disk, from which the process
that trains takes it within seconds.
"""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict

from mixerscope.machine import Machine
from mixerscope.spec import RunSpec, parse
from mixerscope.sweep.cohorts import Cohort

THREADS = "2"
"""Of the compiler in each process; there is a process for nearly every core."""


class Ahead:
    """Processes that compile cohorts in their order; each cohort waits for its turn only."""

    def __init__(self, cohorts: Sequence[Cohort], machine: Machine, processes: int) -> None:
        self.machine = machine
        self.failures: dict[str, str] = {}
        """By cohort: why it could not be compiled here. Training compiles it then, as it would without this."""
        self.ready = {cohort.id: threading.Event() for cohort in cohorts}
        self.waiting: queue.SimpleQueue[Cohort] = queue.SimpleQueue()
        for cohort in cohorts:
            self.waiting.put(cohort)
        self.processes = [self._start() for _ in range(min(processes, len(cohorts)))]
        for process in self.processes:
            threading.Thread(target=self._feed, args=(process,), daemon=True).start()

    def is_ready(self, cohort: Cohort, wait: float) -> bool:
        """Whether the cohort has had its turn, after so many seconds of waiting for it at most."""
        return self.ready[cohort.id].wait(wait)

    def close(self) -> None:
        """Ends the processes, whatever they are doing."""
        while not self.waiting.empty():
            self.ready[self.waiting.get().id].set()
        for process in self.processes:
            process.kill()
            process.wait()

    @staticmethod
    def _start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "mixerscope.sweep.ahead"],
            env={**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": THREADS, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # an interrupt is for the process that trains, which ends these
        )

    def _feed(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        while not self.waiting.empty():
            try:
                cohort = self.waiting.get_nowait()
            except queue.Empty:
                break
            task = {"machine": asdict(self.machine), "runs": [run.model_dump(mode="json") for run in cohort.runs]}
            try:
                process.stdin.write(json.dumps(task) + "\n")
                process.stdin.flush()
                answer = process.stdout.readline().strip() or "the process that compiled it has ended"
            except OSError as error:
                answer = str(error)
            if answer != DONE:
                self.failures[cohort.id] = answer
            self.ready[cohort.id].set()


DONE = "done"


def main() -> None:
    """Compiles what each line of standard input describes, and answers with a line."""
    from mixerscope.training import compile_cohort

    # Whatever else is printed, by compilers or kernels, must not look like an answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        task = json.loads(line)
        try:
            compile_cohort([parse(RunSpec, run) for run in task["runs"]], Machine(**task["machine"]))
            answer = DONE
        except Exception as error:  # noqa: BLE001 - reported, and the cohort is compiled where it is trained
            answer = " ".join(f"{type(error).__name__}: {error}".split())
        answers.write(f"{answer}\n")
        answers.flush()


if __name__ == "__main__":
    main()
