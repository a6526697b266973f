"""Plans, progress and tables of seconds as plain lines, for people and for logs."""

import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from mixerscope.errors import printable
from mixerscope.progress import duration
from mixerscope.sweep.cohorts import Cohort, in_words
from mixerscope.sweep.listening import Listener, SweepOutcome
from mixerscope.sweep.plan import Job, Plan
from mixerscope.sweep.table import CohortRow

COLUMNS = ("job", "cohort", "K", "steps", "build s", "train s", "stages s", "wall s", "steps/s", "ended")
QUIET_SECONDS = 20.0
"""Between two lines about one cohort."""


class Lines(Listener):
    """A line on stderr when something starts or ends, and one now and then in between."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.said: dict[str, float] = {}

    def sweep_started(self, plan: Plan) -> None:
        self.remark(summary(plan))

    def job_started(self, job: Job) -> None:
        self.remark(f"job {job.number}: {len(job.cohorts)} cohorts, about {duration(job.seconds)}")

    def cohort_started(self, cohort: Cohort) -> None:
        self.said[cohort.id] = time.monotonic()
        self.remark(f"{cohort}: started")

    def progress(self, cohort: Cohort, stage: str, done: int, total: int, note: str) -> None:
        now = time.monotonic()
        if now - self.said[cohort.id] >= QUIET_SECONDS:
            self.said[cohort.id] = now
            self.remark(f"{cohort}: {stage} {done}/{total} {note}")

    def cohort_ended(self, cohort: Cohort, row: CohortRow) -> None:
        self.remark(ended_line(row))

    def remark(self, text: str) -> None:
        sys.stderr.write(f"{time.monotonic() - self.began:7.1f} s  {printable(text)}\n")
        sys.stderr.flush()


def plan_lines(plan: Plan) -> list[str]:
    """What would be done: the jobs, their cohorts, and the sums."""
    lines = aligned(
        [
            ("job", "precision", "cohort", "K", "steps", "est. s"),
            *(
                (
                    str(job.number),
                    job.precision,
                    cohort.label,
                    str(len(cohort)),
                    str(0 if cohort.trained else cohort.first.train.steps),
                    f"{plan.estimator.alone(cohort):.0f}",
                )
                for job in plan.jobs
                for cohort in job.cohorts
            ),
        ]
    )
    for job in plan.jobs:
        models = sum(len(cohort) for cohort in job.cohorts)
        long = f", longer than {plan.job_seconds:.0f} s" if job.seconds > plan.job_seconds else ""
        beside = f"{plan.in_flight} in flight, " if plan.in_flight > 1 else ""
        lines.append(
            f"job {job.number}: {len(job.cohorts)} cohorts, {models} models, {beside}about {duration(job.seconds)}"
            f"{long}"
        )
    return [*(lines if plan.jobs else []), summary(plan)]


def summary(plan: Plan) -> str:
    """One line: the size of the sweep and what is left of it."""
    seconds = sum(job.seconds for job in plan.jobs)
    damaged = f", {len(plan.damaged)} damaged" if plan.damaged else ""
    return (
        f"{len(plan.runs)} runs, {len(plan.finished)} of them finished{damaged}; to do: {len(plan.cohorts)} cohorts "
        f"in {len(plan.jobs)} jobs, about {duration(seconds)}"
    )


def outcome_lines(outcome: SweepOutcome, kept: Sequence[dict[str, Any]]) -> list[str]:
    """The table of seconds of a call, the reasons of what failed, and the sums over all calls kept below the folder."""
    lines: list[str] = []
    if outcome.cohorts:
        lines += aligned([COLUMNS, *(_cells(row) for row in outcome.cohorts)])
    for row in outcome.failed:
        lines.append(f"{_name(row)} failed: {' '.join(row.reason.split())}")
    lines += [
        f"job {job.job}: {job.cohorts} cohorts, {job.precision}, {job.wall_s:.1f} s (estimated {job.expected_s:.0f} s)"
        for job in outcome.jobs
    ]
    jobs = [row for row in kept if row["kind"] == "job"]
    if len(jobs) > 1:
        lines.append(f"sum of all {len(jobs)} jobs so far: {sum(row['wall_s'] for row in jobs):.1f} s")
    if outcome.left:
        lines.append(f"{len(outcome.left)} cohorts are left for the next call")
    return lines


def ended_line(row: CohortRow) -> str:
    rate = f", {row.steps_per_s:.0f} steps/s" if row.steps_per_s is not None else ""
    reason = f" ({' '.join(row.reason.split())})" if row.reason else ""
    return f"{_name(row)}: {row.ending}{reason} after {row.wall_s:.1f} s{rate}{_exceptions(row)}"


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Columns under each other, numbers to the right."""
    rows = list(rows)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    words = [any(row[i][:1].isalpha() for row in rows[1:]) for i in range(len(rows[0]))]

    def line(row: Sequence[str]) -> str:
        parts = [
            text.ljust(width) if word else text.rjust(width)
            for text, width, word in zip(row, widths, words, strict=True)
        ]
        return "  ".join(parts).rstrip()

    return [line(row) for row in rows]


def _cells(row: CohortRow) -> tuple[str, ...]:
    seconds = [f"{value:.1f}" for value in (row.build_s, row.train_s, row.stages_s, row.wall_s)]
    rate = "" if row.steps_per_s is None else f"{row.steps_per_s:.0f}"
    ended = f"{row.ending}{_exceptions(row)}"
    return (str(row.job), row.label, str(row.members), str(row.steps), *seconds, rate, ended)


def _name(row: CohortRow) -> str:
    return in_words(row.label, row.members, trained=not row.steps)


def _exceptions(row: CohortRow) -> str:
    """Members that are not like the others."""
    counts = ((row.diverged, "diverged"), (row.unpatched, "unpatched"))
    return "".join(f", {count} {what}" for count, what in counts if count)
