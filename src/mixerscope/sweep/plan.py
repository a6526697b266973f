"""What is left to do of a sweep, and in which jobs."""

import heapq
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from mixerscope.errors import CorruptFile, UserError
from mixerscope.machine import Machine, torch_threads
from mixerscope.results import run_folder
from mixerscope.runnable import check_runnable
from mixerscope.runs import is_finished
from mixerscope.spec import RunSpec
from mixerscope.store import RunFolder
from mixerscope.sweep.cohorts import LARGEST, Cohort, group
from mixerscope.sweep.cost import Calibration, Seconds, before_the_first, estimate, gain
from mixerscope.sweep.idle import IN_FLIGHT
from mixerscope.sweep.table import Conditions, read_rows, timed_rows

JOB_SECONDS = 480.0
"""Unless asked otherwise: where GPUs are lent for minutes, a job is what fits into eight of them."""


@dataclass(frozen=True)
class Imagined(Machine):
    """A machine to plan for; a GPU need not be here for that."""

    def __post_init__(self) -> None:
        if self.device == "cpu" or torch.cuda.is_available():
            super().__post_init__()


class Estimator:
    """Seconds of cohorts on one machine, corrected by what has been timed there."""

    def __init__(self, machine: Machine, calibration: Calibration) -> None:
        self.machine, self.calibration = machine, calibration
        self._uncorrected: dict[str, Seconds] = {}

    def uncorrected(self, cohort: Cohort) -> Seconds:
        if cohort.id not in self._uncorrected:
            self._uncorrected[cohort.id] = estimate(cohort, self.machine)
        return self._uncorrected[cohort.id]

    def alone(self, cohort: Cohort) -> float:
        """With the machine to itself."""
        return self.uncorrected(cohort).total * self._factor(cohort)

    def staging(self, cohort: Cohort) -> float:
        """The part of `alone` that comes after training."""
        return self.uncorrected(cohort).stages * self._factor(cohort)

    def slowdown(self, cohort: Cohort, in_flight: int) -> float:
        """How many times longer it takes when so many are in flight, itself included."""
        return in_flight / gain(cohort, self.machine, in_flight)

    def share(self, cohort: Cohort, in_flight: int) -> float:
        """What a cohort adds to the time of its job. Building is the host's work, beside that of the device."""
        seconds = self.uncorrected(cohort)
        computing = (seconds.train + seconds.stages) / gain(cohort, self.machine, in_flight)
        return (seconds.build / in_flight + computing) * self._factor(cohort)

    def _factor(self, cohort: Cohort) -> float:
        return self.calibration.factor(cohort.first.model.architecture)


@dataclass(frozen=True)
class Job:
    """Cohorts of one precision, slowest first. TF32 is a switch of the whole process, so precisions do not mix."""

    number: int
    cohorts: tuple[Cohort, ...]
    seconds: float

    @property
    def precision(self) -> str:
        return self.cohorts[0].precision


@dataclass(frozen=True)
class Plan:
    """A sweep below a folder: what is done, what is damaged, and the jobs that are left."""

    runs: tuple[RunSpec, ...]
    finished: tuple[RunSpec, ...]
    """Below the folder, or elsewhere."""
    damaged: Mapping[str, str]
    """By run id, a sentence per run whose files are not what they were; they are neither used nor made anew."""
    jobs: tuple[Job, ...]
    in_flight: int
    estimator: Estimator
    job_seconds: float = JOB_SECONDS

    @property
    def cohorts(self) -> list[Cohort]:
        return [cohort for job in self.jobs for cohort in job.cohorts]

    @property
    def sound(self) -> list[RunSpec]:
        """The runs, whether made yet or not, without the damaged ones."""
        return [run for run in self.runs if run.run_id not in self.damaged]


def make_plan(
    runs: Sequence[RunSpec],
    root: Path,
    machine: Machine,
    *,
    in_flight: int | None = None,
    largest: int | None = None,
    job_seconds: float | None = None,
    skip: Mapping[str, Collection[str] | None] | None = None,
    shard: tuple[int, int] | None = None,
) -> Plan:
    """The plan of a sweep; writes nothing. Runs that could only fail after training are refused.

    `skip` are runs that are finished elsewhere, by id: the folders of their analyses there, or None where all is done.
    Those that have what is asked for here count as finished and are not made. `shard` (2, 5) is the second of five
    parts of the cohorts, for processes that share no folder.
    """
    in_flight = default_in_flight(machine) if in_flight is None else in_flight
    job_seconds = JOB_SECONDS if job_seconds is None else job_seconds
    if in_flight < 1:
        raise UserError(f"at least 1 cohort is in flight, got {in_flight}")
    if not job_seconds > 0:
        raise UserError(f"a job takes a positive number of seconds, got {job_seconds:g}")
    calibration = Calibration(timed_rows(read_rows(root), Conditions.of(machine, in_flight)))
    estimator = Estimator(machine, calibration)
    finished: list[RunSpec] = []
    damaged: dict[str, str] = {}
    left: list[Cohort] = []
    cohorts = _shard(group(runs, LARGEST if largest is None else largest), shard)
    runs = [run for cohort in cohorts for run in cohort.runs] if shard else runs
    for cohort in cohorts:
        # Members differ in nothing that could be wrong. Models are built and documents drawn for it, which several
        # processes at once, each with a thread a core, would do many times slower.
        with torch_threads(machine.threads):
            check_runnable(cohort.first)
        untrained: list[RunSpec] = []
        unstaged: list[RunSpec] = []
        for run in cohort.runs:
            if _is_elsewhere(run, skip or {}):
                finished.append(run)
            elif not run_folder(run, root).sealed:
                untrained.append(run)
            elif complaint := _complaint(run, root):
                damaged[run.run_id] = complaint
            else:
                (finished if is_finished(run, root) else unstaged).append(run)
        if untrained:
            left.append(replace(cohort, runs=tuple(untrained)))
        if unstaged:  # a cohort of their own: what trains nothing takes a fraction of the time
            left.append(replace(cohort, runs=tuple(unstaged), trained=True))
    jobs = tuple(_jobs(left, estimator, in_flight, job_seconds))
    return Plan(tuple(runs), tuple(finished), damaged, jobs, in_flight, estimator, job_seconds)


def _shard(cohorts: list[Cohort], shard: tuple[int, int] | None) -> list[Cohort]:
    if shard is None:
        return cohorts
    number, count = shard
    if not 1 <= number <= count:
        raise UserError(f"a shard is i/n with i from 1 to n, got {number}/{count}")
    return cohorts[number - 1 :: count]


def _is_elsewhere(run: RunSpec, skip: Mapping[str, Collection[str] | None]) -> bool:
    if run.run_id not in skip:
        return False
    have = skip[run.run_id]
    wanted = {RunFolder(Path()).stage(name, run.stage_id(name)).path.name for name in run.stages}
    return have is None or wanted <= set(have)


def default_in_flight(machine: Machine) -> int:
    return IN_FLIGHT if machine.device == "cuda" else 1


def _complaint(run: RunSpec, root: Path) -> str:
    try:
        run_folder(run, root).verify()
    except CorruptFile as error:
        return str(error)
    return ""


def _jobs(cohorts: list[Cohort], estimator: Estimator, in_flight: int, limit: float) -> list[Job]:
    """As few jobs as hold all cohorts in `limit` seconds each; longer ones have jobs of their own."""
    jobs: list[Job] = []
    before = before_the_first(estimator.machine)
    limit = max(1.0, limit - before)
    for precision in sorted({cohort.precision for cohort in cohorts}):
        same = [cohort for cohort in cohorts if cohort.precision == precision]
        slowest_first = sorted(same, key=estimator.alone, reverse=True)
        shares = [estimator.share(cohort, in_flight) for cohort in slowest_first]
        too_long = sum(estimator.alone(cohort) > limit for cohort in slowest_first)
        groups = _packed(shares[:too_long], estimator.alone(slowest_first[0]))
        groups += [[too_long + index for index in job] for job in _packed(shares[too_long:], limit)]
        for members in groups:
            longest = estimator.alone(slowest_first[members[0]])
            seconds = before + max(longest, sum(shares[index] for index in members))
            jobs.append(Job(len(jobs) + 1, tuple(slowest_first[index] for index in members), seconds))
    return jobs


def _packed(seconds: list[float], limit: float) -> list[list[int]]:
    """Indices of times, each at most `limit`, in groups whose sums are: in order, each into the emptiest group."""
    limit = max([limit, *seconds])  # one that exceeds it by a rounding would never find a group
    count = max(1, math.ceil(sum(seconds) / limit))
    while True:
        groups: list[list[int]] = [[] for _ in range(count)]
        loads = [(0.0, number) for number in range(count)]
        for index, time in enumerate(seconds):
            load, number = heapq.heappop(loads)
            groups[number].append(index)
            heapq.heappush(loads, (load + time, number))
        if max(loads)[0] <= limit:
            return [group for group in groups if group]
        count += 1
