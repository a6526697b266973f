"""Getting runs ready for a pack as they finish, in processes of their own, while others train.

It is work of one thread in Python, a tenth of a second a run and more where files are slow: done at the end, or in
threads, it keeps a GPU waiting that is lent by the second.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress

from mixerscope.errors import MixerscopeError
from mixerscope.packs.parts import Part, part_of
from mixerscope.store import RunFolder

MOST = 8
"""Processes: each imports torch, without its GPU, and the last cohorts of a sweep have some hundred runs together."""
NICE = 10
"""Those that train come first."""
FAILED = ""
"""The answer of a process to a run of which it could make nothing; whoever packs then tries, and says why."""


class PartsAhead:
    """Makes parts of packs before they are asked for; what it could not make is made by who asks."""

    def __init__(self, processes: int | None = None) -> None:
        processes = min(MOST, max(1, (os.cpu_count() or 1) // 2)) if processes is None else processes
        self.threads = ThreadPoolExecutor(processes, thread_name_prefix="packing")
        """Each with a process, which is started when there is something to do."""
        self.own, self.lock = threading.local(), threading.Lock()
        self.processes: list[subprocess.Popen[str]] = []
        self.begun: dict[str, Future[tuple[str, Part | None]]] = {}
        """By folder: its seals, and what travels of what they seal."""
        self.closed = False

    def begin(self, runs: Iterable[RunFolder]) -> None:
        """Says which runs will be asked for, and returns at once."""
        with self.lock:
            for run in runs:
                if not self.closed and str(run.path) not in self.begun:
                    self.begun[str(run.path)] = self.threads.submit(self._made, run)

    def part(self, run: RunFolder) -> Part:
        """What travels of a run as it is now."""
        self.begin([run])
        with suppress(MixerscopeError, OSError, ValueError, KeyError, CancelledError):
            seals, part = self.begun[str(run.path)].result()
            if part is not None and seals == _seals(run):
                return part
        return part_of(run)

    def close(self) -> None:
        """Ends the processes, whatever they are doing."""
        with self.lock:
            self.closed = True
            for process in self.processes:
                process.kill()
        self.threads.shutdown(cancel_futures=True)
        for process in self.processes:
            process.communicate()

    def _made(self, run: RunFolder) -> tuple[str, Part | None]:
        seals, process = _seals(run), self._process()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{json.dumps(str(run.path))}\n")
        process.stdin.flush()
        answer = process.stdout.readline().strip()
        return seals, None if answer == FAILED else Part.from_line(answer)

    def _process(self) -> "subprocess.Popen[str]":
        """Of this thread."""
        found: subprocess.Popen[str] | None = getattr(self.own, "process", None)
        if found is None:
            with self.lock:
                if self.closed:
                    raise OSError("packing has ended")
                found = self.own.process = _start()
                self.processes.append(found)
        return found


def _start() -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "mixerscope.packs.ahead"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},  # the GPU is for those that train
        stdin=subprocess.PIPE,  # ends with the process that holds the other end, and this one with it
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # an interrupt is for the process that trains, which ends these
    )


def _seals(run: RunFolder) -> str:
    """What the run and its analyses were sealed as."""
    return " ".join(repr(folder.seal()) for folder in (run, *run.stages()))


def main() -> None:
    """Answers each line of standard input, which names the folder of a run, with a line."""
    os.nice(NICE)
    # Whatever else is printed must not look like an answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        answer = FAILED
        with suppress(MixerscopeError, OSError):  # said by who packs, if it is still so then
            answer = part_of(RunFolder(json.loads(line))).to_line()
        try:
            answers.write(f"{answer}\n")
            answers.flush()
        except BrokenPipeError:  # whoever asked is gone
            return


if __name__ == "__main__":
    main()
