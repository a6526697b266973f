"""Compiling cohorts before their turn, in processes of their own.

Compiling is work of one thread in Python. Beside cohorts that train in the same process it takes four times as long as
alone (12 s and 45 s, measured with three cohorts in flight), and one cohort can only be compiled after the other. So
other processes compile them and throw away all but what is in the compiler's cache on disk, from which the process
that trains takes it within seconds.
"""

import gc
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import NamedTuple

import torch

from mixerscope.machine import Machine
from mixerscope.registry import REGISTRIES, use
from mixerscope.spec import RunSpec, parse
from mixerscope.sweep.cohorts import Cohort
from mixerscope.sweep.idle import Idle, start

NICE = 10
"""Those that train come first."""


def compiles_ahead(machine: Machine) -> bool:
    """On a CPU there are no idle cores to do it."""
    return machine.compile and machine.device == "cuda"


class _Share(NamedTuple):
    """Of what a cohort needs compiled."""

    cohort: Cohort
    number: int
    of: int


class Ahead:
    """Processes that compile cohorts in their order; each cohort waits for its turn only.

    Many at once are slow, each of them; so there are few until the first cohorts, for which training waits, are ready.
    """

    def __init__(
        self,
        cohorts: Sequence[Cohort],
        machine: Machine,
        processes: int,
        at_first: int | None = None,
        idle: Idle | None = None,
        shares: Callable[[Cohort], int] = lambda cohort: 1,
    ) -> None:
        """`at_first` cohorts are compiled before there are as many processes as there may be; of each so many `shares`
        at the same time."""
        self.machine, self.idle = machine, idle
        self.failures: dict[str, str] = {}
        """By cohort: why it could not be compiled here. Training compiles it then, as it would without this."""
        self.ready = {cohort.id: threading.Event() for cohort in cohorts}
        self.left = {cohort.id: shares(cohort) for cohort in cohorts}
        """Shares that have not been compiled yet."""
        self.waiting: queue.SimpleQueue[_Share] = queue.SimpleQueue()
        for cohort in cohorts:
            for number in range(self.left[cohort.id]):
                self.waiting.put(_Share(cohort, number, self.left[cohort.id]))
        processes = min(processes, self.waiting.qsize())
        self.urgent = cohorts[:at_first]
        at_first = min(sum(self.left[cohort.id] for cohort in self.urgent), processes)
        self.later = processes - at_first
        self.processes: list[subprocess.Popen[str]] = []
        self.feeders: list[threading.Thread] = []
        self.at_work, self.lock, self.counting = 0, threading.Lock(), threading.Lock()
        with self.lock:
            self._hire(at_first)
            if at_first and not self.processes:
                self._give_up("no process could be started to compile it")

    def is_ready(self, cohort: Cohort, wait: float) -> bool:
        """Whether the cohort has had its turn, after so many seconds of waiting for it at most."""
        return self.ready[cohort.id].wait(wait)

    def close(self) -> None:
        """Ends the processes, whatever they are doing."""
        with self.lock:
            self.later = 0
        self._give_up("compiling ahead has ended")
        for process in self.processes:
            process.kill()
        for feeder in self.feeders:
            feeder.join()

    def _hire(self, count: int) -> None:
        """As many of these as the system lets start."""
        for _ in range(count):
            try:
                process = self._start()
            except OSError:
                return
            feeder = threading.Thread(target=self._feed, args=(process,), daemon=True)
            self.processes.append(process)
            self.feeders.append(feeder)
            self.at_work += 1
            feeder.start()

    def _hire_the_others(self) -> None:
        with self.lock:
            if self.later and all(self.ready[cohort.id].is_set() for cohort in self.urgent):
                count, self.later = min(self.later, self.waiting.qsize()), 0
                self._hire(count)

    def _start(self) -> "subprocess.Popen[str]":
        return start() if self.idle is None else self.idle.take()

    def _feed(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        while (share := self._next()) is not None:
            runs = [run.model_dump(mode="json") for run in share.cohort.runs]
            task = {"machine": asdict(self.machine), "runs": runs, "adopted": adopted()}
            task |= {"share": share.number, "of": share.of}
            try:
                process.stdin.write(json.dumps(task) + "\n")
                process.stdin.flush()
                answer = process.stdout.readline().strip()
            except OSError:
                answer = ""
            self._ended(share.cohort, None if answer == DONE else answer or ENDED)
            self._hire_the_others()
            if not answer:  # what is left is for the other processes
                break
        with suppress(OSError):  # a process ends when its input does, and gives back what it has of the GPU's memory
            process.stdin.close()
        process.wait()
        process.stdout.close()
        with self.lock:
            self.at_work -= 1
            if not self.at_work:
                self._give_up(ENDED)

    def _ended(self, cohort: Cohort, failure: str | None) -> None:
        """One more share was compiled, or will not be, for this reason."""
        if failure is not None:
            self.failures[cohort.id] = failure
        with self.counting:
            self.left[cohort.id] -= 1
            if not self.left[cohort.id]:
                self.ready[cohort.id].set()

    def _next(self) -> "_Share | None":
        with suppress(queue.Empty):
            return self.waiting.get_nowait()
        return None

    def _give_up(self, reason: str) -> None:
        """Keeps nobody waiting for what has not had its turn."""
        while (share := self._next()) is not None:
            self._ended(share.cohort, reason)


def import_compiler() -> None:
    """What the first use of it would import. If it cannot be, that use says why."""
    with suppress(Exception):
        from mixerscope.training.compiling import import_all

        import_all()


def _start_workers() -> None:
    """Of the compiler. Where they cannot be started now, it does without, or does it later."""
    with suppress(Exception):
        from mixerscope.training.compiling import start_workers

        start_workers()


def adopted() -> list[str]:
    """Classes outside that a person named in this process, as they were named: the other processes need them too."""
    entries = [entry for registry in REGISTRIES.values() for entry in registry.entries()]
    return [entry.target for entry in entries if entry.name == f"local/{entry.target.rpartition(':')[2]}"]


ENDED = "the process that compiled it has ended"
DONE = "done"


def main() -> None:
    """Compiles what each line of standard input describes, and answers with a line."""
    os.nice(NICE)
    # Whatever else is printed, by compilers or kernels, must not look like an answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    from mixerscope.training import compile_cohort

    import_compiler()  # before anybody says what to compile, which may take a while
    for number, line in enumerate(sys.stdin):
        if number == 0:  # whoever asks has the GPU by now
            _start_workers()
        task = json.loads(line)
        try:
            for reference in task["adopted"]:
                use(reference)
            runs = [parse(RunSpec, run) for run in task["runs"]]
            compile_cohort(runs, Machine(**task["machine"]), task["share"], task["of"])
            answer = DONE
        except Exception as error:  # noqa: BLE001 - reported, and the cohort is compiled where it is trained
            answer = " ".join(f"{type(error).__name__}: {error}".split())
        gc.collect()
        if task["machine"]["device"] == "cuda":
            torch.cuda.empty_cache()  # the GPU is for those that train
        try:
            answers.write(f"{answer}\n")
            answers.flush()
        except BrokenPipeError:  # whoever asked is gone
            return


if __name__ == "__main__":
    main()
