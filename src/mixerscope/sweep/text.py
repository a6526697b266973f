"""Plans and tables of seconds as plain lines, for people and for logs."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from mixerscope.sweep.execute import Outcome
from mixerscope.sweep.plan import JOB_SECONDS, Plan
from mixerscope.sweep.table import CohortRow

COLUMNS = ("job", "architecture", "d", "K", "steps", "build s", "train s", "interv. s", "wall s", "steps/s", "ended")


def plan_lines(plan: Plan) -> list[str]:
    """What would be done: the jobs, their cohorts, and the sums."""
    lines = aligned(
        [
            ("job", "precision", "architecture", "d", "K", "steps", "est. s"),
            *(
                (
                    str(job.number),
                    job.precision,
                    cohort.first.model.architecture,
                    str(cohort.first.model.width),
                    str(len(cohort)),
                    str(cohort.first.train.steps),
                    f"{plan.estimator.alone(cohort):.0f}",
                )
                for job in plan.jobs
                for cohort in job.cohorts
            ),
        ]
    )
    for job in plan.jobs:
        models = sum(len(cohort) for cohort in job.cohorts)
        long = f", longer than {JOB_SECONDS:.0f} s" if job.seconds > JOB_SECONDS else ""
        beside = f"{plan.in_flight} in flight, " if plan.in_flight > 1 else ""
        lines.append(
            f"job {job.number}: {len(job.cohorts)} cohorts, {models} models, {beside}about {job.seconds:.0f} s{long}"
        )
    return [*(lines if plan.jobs else []), summary(plan)]


def summary(plan: Plan) -> str:
    """One line: the size of the sweep and what is left of it."""
    seconds = sum(job.seconds for job in plan.jobs)
    return (
        f"{len(plan.runs)} runs, {len(plan.finished)} of them finished; to do: {len(plan.cohorts)} cohorts "
        f"in {len(plan.jobs)} jobs, about {seconds:.0f} s"
    )


def outcome_lines(outcome: Outcome, kept: Sequence[dict[str, Any]]) -> list[str]:
    """The table of seconds of a call, the reasons of what failed, and the sums over all calls kept below the folder."""
    lines: list[str] = []
    if outcome.cohorts:
        lines += aligned([COLUMNS, *(_cells(row) for row in outcome.cohorts)])
    for row in outcome.failed:
        lines.append(f"{row.architecture} d={row.width} x{row.members} failed: {' '.join(row.reason.split())}")
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
    diverged = f", {row.diverged} diverged" if row.diverged else ""
    name = f"{row.architecture} d={row.width} x{row.members}"
    return f"{name}: {row.ending}{reason} after {row.wall_s:.1f} s{rate}{diverged}"


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
    values = asdict(row)
    seconds = [f"{values[name]:.1f}" for name in ("build_s", "train_s", "intervene_s", "wall_s")]
    rate = "" if row.steps_per_s is None else f"{row.steps_per_s:.0f}"
    ended = row.ending + (f", {row.diverged} diverged" if row.diverged else "")
    return (str(row.job), row.architecture, str(row.width), str(row.members), str(row.steps), *seconds, rate, ended)
