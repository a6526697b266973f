"""Running a plan: one process, a thread and a CUDA stream per cohort in flight, the slowest cohorts first."""

import faulthandler
import os
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path

from mixerscope import runs
from mixerscope.checkpoints import is_begun
from mixerscope.errors import CannotWrite, Interrupted, UserError
from mixerscope.machine import Machine, torch_threads
from mixerscope.progress import Cancelled, Stop
from mixerscope.signals import refuse_signals
from mixerscope.store import make_folder
from mixerscope.sweep.ahead import Ahead, compiles_ahead, import_compiler
from mixerscope.sweep.claims import Claims
from mixerscope.sweep.cohorts import Cohort
from mixerscope.sweep.cost import Timed, shares_to_compile
from mixerscope.sweep.device import Streams, short_turns, with_its_share
from mixerscope.sweep.forecast import Forecast, OutOfTime, Running
from mixerscope.sweep.idle import Idle
from mixerscope.sweep.listening import Listener, SweepOutcome
from mixerscope.sweep.plan import Job, Plan
from mixerscope.sweep.rows import cohort_row, reason_of
from mixerscope.sweep.table import CohortRow, Conditions, Ending, JobRow, SweepTable

LOOKED_EVERY = 0.5
"""Seconds between two looks for a cohort to start, or a signal to end."""
MOST_COMPILING = 12
"""Processes that compile ahead: each takes gigabytes, and some of the GPU's memory, however many cores there are."""


def execute(
    plan: Plan,
    root: Path,
    machine: Machine,
    *,
    stop_after: float | None = None,
    keep_weights: bool = False,
    listener: Listener | None = None,
    call: str = "",
    leave: bool = False,
    idle: Idle | None = None,
) -> SweepOutcome:
    """Runs all jobs of a plan, as far as `stop_after` seconds allow. A cohort that fails does not stop the others.

    Processes that share a `call` try a cohort that failed in one of them no more. With `leave` this one ends when
    others are making all that is left. `idle` are processes to compile in that whoever calls has started, and closes.

    After an interrupt cohorts in flight are put down where they are, finished runs are kept, and the interrupt goes on.
    """
    if stop_after is not None and not stop_after > 0:
        raise UserError(f"stop_after = {stop_after:g} should be a positive number of seconds")
    _say_where_it_crashes(machine)
    deadline = None if stop_after is None else time.monotonic() + stop_after
    if plan.jobs:
        make_folder(root)
    listener = listener or Listener()
    listener.sweep_started(plan)
    executor = _Executor(plan, root, with_its_share(machine, plan.in_flight), deadline, keep_weights, listener, call)
    executor.leave = leave
    # Set here for all threads: cohorts that set it and set it back one by one would do so under each other's feet.
    with torch_threads(machine.threads), short_turns(machine), executor.compiling(idle):
        for _, jobs in groupby(plan.jobs, key=lambda job: job.precision):
            executor.run(list(jobs))
    return executor.outcome


def _say_where_it_crashes(machine: Machine) -> None:
    """A fault below Python ends a process without a word, and on a GPU lent for minutes nobody can try again."""
    if machine.device == "cuda" and not faulthandler.is_enabled():
        with suppress(ValueError, OSError):  # a stream that is no file, as in a notebook
            faulthandler.enable(sys.stderr)


class _Executor:
    def __init__(
        self,
        plan: Plan,
        root: Path,
        machine: Machine,
        deadline: float | None,
        keep_weights: bool,
        listener: Listener,
        call: str,
    ) -> None:
        self.plan, self.root, self.machine, self.keep_weights = plan, root, machine, keep_weights
        self.listener, self.call = listener, call
        self.outcome = SweepOutcome()
        self.forecast = Forecast(plan.estimator, deadline)
        self.table = SweepTable(root, Conditions.of(machine, plan.in_flight))
        self.ended: queue.Queue[tuple[Job, Running, Ending, str]] = queue.Queue()
        self.waiting: list[tuple[Job, Cohort]] = []
        self.threads: dict[str, tuple[Job, threading.Thread]] = {}
        self.claims = Claims(root)
        self.begun: Counter[int] = Counter()
        """Of jobs that have not ended: how many cohorts were started."""
        self.leave = False
        self.since = time.monotonic()
        self.stopping = threading.Event()
        self.ahead: Ahead | None = None
        self.streams = Streams(machine, plan.in_flight)

    @contextmanager
    def compiling(self, idle: Idle | None = None) -> Iterator[None]:
        """Compiles cohorts before their turn, with the cores that training leaves idle."""
        untrained = [cohort for cohort in self.plan.cohorts if not cohort.trained]
        if not compiles_ahead(self.machine) or not untrained:
            yield
            return
        processes = min(MOST_COMPILING, max(1, (os.cpu_count() or 1) - self.plan.in_flight))
        self.ahead = Ahead(untrained, self.machine, processes, self.plan.in_flight, idle, shares_to_compile)
        import_compiler()  # here too: the first cohort to be ready would wait for it, and there is nothing else to do
        try:
            yield
        finally:
            self.ahead.close()

    def run(self, jobs: Sequence[Job]) -> None:
        """Runs jobs of one precision. Cohorts of the next job do not wait for the last of the one before."""
        self.waiting = [(job, cohort) for job in jobs for cohort in job.cohorts]
        self.since = time.monotonic()
        try:
            while True:
                while len(self.threads) < self.plan.in_flight and (pick := self._next()) is not None:
                    self._start(*pick)
                refuse_signals()
                if not self.threads and not any(self._is_to_do(cohort) for _, cohort in self.waiting):
                    break
                with suppress(queue.Empty):  # what has no room now may have some soon: compiled, or others faster
                    self._record(*self.ended.get(timeout=LOOKED_EVERY))
        except BaseException:
            self._give_up()
            raise
        finally:
            self.claims.release_all()
            self.outcome.left += [cohort for _, cohort in self.waiting]
            for job in jobs:
                if self.begun[job.number]:
                    self._close(job)

    def _close(self, job: Job) -> None:
        """A job's time is what passed since the one before it ended: times of jobs add up to that of the call."""
        now = time.monotonic()
        row = JobRow(job.number, job.precision, self.begun.pop(job.number), job.seconds, now - self.since)
        self.since = now
        self.outcome.jobs.append(row)
        self._note(row)
        self.listener.job_ended(row)

    def _note(self, row: CohortRow | JobRow) -> None:
        """Into the table; a sweep does not end because there is no room for a row."""
        try:
            self.table.add(row, self.call)
        except CannotWrite as error:
            self.listener.remark(str(error))

    def _give_up(self) -> None:
        self.stopping.set()
        for _, thread in self.threads.values():
            if thread.ident is not None:
                thread.join()
        while not self.ended.empty():
            self._record(*self.ended.get())

    def _next(self) -> tuple[Job, Cohort] | None:
        """Takes the slowest cohort that is compiled, can still be finished, and is nobody else's, out of `waiting`."""
        for pick in list(self.waiting):
            if self._is_compiled(pick[1]) and self.forecast.fits(pick[1]) and self._claim(pick[1]):
                self.waiting.remove(pick)
                if self.table.has_failed(pick[1].id, self.call):
                    self.claims.release(pick[1])
                    continue
                if any(not runs.seems_finished(run, self.root) for run in pick[1].runs):
                    return pick
                self.claims.release(pick[1])
                self.outcome.elsewhere.append(pick[1])
                self.listener.remark(f"{pick[1]}: made by another process")
        return None

    def _is_to_do(self, cohort: Cohort) -> bool:
        """Whether to wait for a cohort that cannot be started now."""
        return self.forecast.fits(cohort) and not (self.leave and self.claims.others(cohort))

    def _claim(self, cohort: Cohort) -> bool:
        try:
            return self.claims.take(cohort, self.listener.remark)
        except CannotWrite:
            if not self.threads:
                raise
            self.claims.later(cohort)  # those in flight may make room
            return False

    def _is_compiled(self, cohort: Cohort) -> bool:
        return self.ahead is None or cohort.trained or self.ahead.is_ready(cohort, wait=0)

    def _start(self, job: Job, cohort: Cohort) -> None:
        if not self.begun[job.number]:
            self.listener.job_started(job)
        self.begun[job.number] += 1
        self.listener.cohort_started(cohort)
        if self.ahead is not None and cohort.id in self.ahead.failures:
            self.listener.remark(f"{cohort} is compiled where it is trained: {self.ahead.failures[cohort.id]}")
        running = self.forecast.started(cohort)
        running.resumed = not cohort.trained and is_begun(cohort.runs, self.root)
        thread = threading.Thread(target=self._work, args=(job, running), name=str(cohort), daemon=True)
        self.threads[cohort.id] = (job, thread)
        thread.start()

    def _record(self, job: Job, running: Running, ending: Ending, reason: str) -> None:
        cohort = running.cohort
        del self.threads[cohort.id]
        row = cohort_row(job, running, ending, reason, self.plan.estimator, self.root)
        self.outcome.cohorts.append(row)
        if row.ending == "out of time" and not running.resumed:
            self.outcome.left.append(cohort)
        if row.alone_s is not None:
            self.plan.estimator.calibration.add(Timed(row.architecture, row.expected_s, row.alone_s))
        self._note(row)
        self.listener.cohort_ended(cohort, row)
        if not any(other is job for other, _ in (*self.waiting, *self.threads.values())):
            self._close(job)

    def _work(self, job: Job, running: Running) -> None:
        cohort = running.cohort

        def progress(stage: str, done: int, total: int, note: str) -> Stop | None:
            if self.stopping.is_set():
                return Stop("interrupted")
            if running.progressed(time.monotonic(), stage, done, total):
                self.listener.progress(cohort, stage, done, total, note)
                return self.forecast.check(running)
            return None

        ending: Ending = "failed"
        reason = ""
        try:
            with self.streams.own():
                locks = self.claims.locks[cohort.id]
                runs.run_cohort(cohort.runs, self.root, progress, self.machine, self.keep_weights, False, False, locks)
            ending = "finished"
        except Cancelled as cancelled:
            ending = "out of time" if isinstance(cancelled.stop, OutOfTime) else "interrupted"
            reason = cancelled.stop.reason
        except Interrupted as error:
            ending, reason = "interrupted", error.number.name
        except BaseException as error:  # noqa: BLE001 - recorded and reported; the other cohorts go on
            reason = reason_of(error)
        self.forecast.ended(running)
        self.claims.release(cohort)
        self.ended.put((job, running, ending, reason))
