"""Cohorts in flight: how far each is, when each will be done, and which has to give way to a deadline."""

import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field

from mixerscope.progress import Stop
from mixerscope.sweep.cohorts import Cohort
from mixerscope.sweep.plan import Estimator

MEASURED_AFTER = 3.0
"""Seconds of steps before a rate counts."""
WINDOW = 10.0
"""Seconds over which a rate is taken: it changes with what else is in flight."""

BUILD = "build"
"""The stage of a cohort before its first."""
SAMPLED_EVERY = 0.2
"""Seconds between two looks."""
MARGIN = 1.15
"""What is foreseen for a cohort may take that many times as long, or be done in that many times less: one starts only
if it would be done in time in the first case, and is given up only if it would be late in the second. Of those that had
to be given up in Figure 3's strict sweep (`benchmarks/results/figure3_float32.jsonl`) all would have needed 4 to 10%
more than they had been given. With less time left the same share of it is less, so one that stays as late as it was
foreseen to be is given up later."""


@dataclass(frozen=True)
class OutOfTime(Stop):
    """A cohort would not be done before the deadline; it is left for the next call."""


@dataclass
class Running:
    """A cohort in flight. Written by its own thread, read by all."""

    cohort: Cohort
    started: float
    stage: str = BUILD
    done: int = 0
    total: int = 1
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Spent so far, by what it was spent in: `build`, `train` and the names of stages."""
    work: float = 0.0
    """Seconds it would have taken so far with the machine to itself."""
    resumed: bool = False
    """Whether an earlier call did a part of it, which is then not in these times."""
    stage_began: float = 0.0
    samples: deque[tuple[float, int]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.stage_began = self.started

    def progressed(self, now: float, stage: str, done: int, total: int) -> bool:
        """Takes note, and says whether this is worth a look: steps are counted far more often than anybody looks."""
        if stage != self.stage:
            self.end_stage(now)
            self.stage, self.stage_began = stage, now
            self.samples.clear()
        self.done, self.total = done, total
        if self.samples and now - self.samples[-1][0] < SAMPLED_EVERY and done < total:
            return False
        self.samples.append((now, done))
        while now - self.samples[0][0] > WINDOW:
            self.samples.popleft()
        return True

    def end_stage(self, now: float) -> None:
        self.seconds[self.stage] += now - self.stage_began

    def rate(self) -> float | None:
        """Units of the present stage per second, once that has been measured."""
        if len(self.samples) < 2:
            return None
        (before, first), (now, last) = self.samples[0], self.samples[-1]
        return (last - first) / (now - before) if now - before >= MEASURED_AFTER and last > first else None

    def left(self, now: float, estimator: Estimator, in_flight: int) -> float:
        """Seconds until it is done if the others in flight stay."""
        slowdown = estimator.slowdown(self.cohort, in_flight)
        rate = self.rate()
        if rate is None:
            return max(0.0, estimator.alone(self.cohort) - self.work) * slowdown
        after = estimator.staging(self.cohort) * slowdown if self.stage == "train" else 0.0
        return (self.total - self.done) / rate + after


class Forecast:
    """When the cohorts in flight, each slowed by the others, will be done."""

    def __init__(self, estimator: Estimator, deadline: float | None) -> None:
        self.estimator, self.deadline = estimator, deadline
        self.running: list[Running] = []
        self.lock = threading.RLock()
        self._counted = self._changed = time.monotonic()

    def started(self, cohort: Cohort) -> Running:
        with self.lock:
            self._count_work()
            running = Running(cohort, time.monotonic())
            self.running.append(running)
            return running

    def ended(self, running: Running) -> None:
        with self.lock:
            self._count_work()
            self.running.remove(running)
            self._changed = time.monotonic()
            running.end_stage(self._changed)

    def fits(self, cohort: Cohort) -> bool:
        """Whether all in flight, with this one beside them, would be done in time, with some to spare."""
        if self.deadline is None:
            return True
        now = time.monotonic()
        with self.lock:
            self._count_work()
            count, more = len(self.running), len(self.running) + 1
            newcomer = self.estimator.alone(cohort) * self.estimator.slowdown(cohort, more)
            times = [(newcomer, cohort)]
            for running in self.running:
                slower = self.estimator.slowdown(running.cohort, more) / self.estimator.slowdown(running.cohort, count)
                times.append((running.left(now, self.estimator, count) * slower, running.cohort))
        return now + MARGIN * max(self._finishing_times(times)) <= self.deadline

    def check(self, running: Running) -> OutOfTime | None:
        """Asks a cohort to stop if it is the last to be done and would be done too late.

        Only the last: without it the others are quicker. Only in training: what comes after takes less time than
        training again. And late rather than early: all that it has done is lost, and what is gained is only what others
        can make of the time that is left.
        """
        now = time.monotonic()
        if self.deadline is None or running.stage != "train":
            return None
        with self.lock:
            if now < self.deadline and not (self._settled(now) and running.rate() is not None):
                return None
            self._count_work()
            count = len(self.running)
            times = [(other.left(now, self.estimator, count), other.cohort) for other in self.running]
            finishing = self._finishing_times(times)
            last = max(finishing)
            if now + last / MARGIN > self.deadline and finishing[self.running.index(running)] == last:
                return OutOfTime(f"would have ended {now + last - self.deadline:.0f} s too late")
        return None

    def _settled(self, now: float) -> bool:
        """Whether rates are those at which the cohorts in flight will go on.

        While one is built the others hardly train, since loading a kernel waits for all that a device has been given to
        do; and where one has started, ended, or come to another stage, the rates are still those of before.
        """
        changes = [self._changed, *(running.stage_began for running in self.running)]
        return now - max(changes) >= WINDOW and not any(running.stage == BUILD for running in self.running)

    def _finishing_times(self, times: list[tuple[float, Cohort]]) -> list[float]:
        """When each is done, given what each would take if nobody left: who stays gets what the others had."""
        count = len(times)
        finishing = [0.0] * count
        for index, (_, cohort) in enumerate(times):
            passed = clock = 0.0
            for gone, time_left in enumerate(sorted(t for t, _ in times if t <= times[index][0])):
                beside = max(1, count - gone)
                quicker = self.estimator.slowdown(cohort, count) / self.estimator.slowdown(cohort, beside)
                clock += (time_left - passed) / quicker
                passed = time_left
            finishing[index] = clock
        return finishing

    def _count_work(self) -> None:
        now = time.monotonic()
        for running in self.running:
            running.work += (now - self._counted) / self.estimator.slowdown(running.cohort, len(self.running))
        self._counted = now
