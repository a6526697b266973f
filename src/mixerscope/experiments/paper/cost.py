"""What figures cost before anything is run: runs, cohorts and minutes, those they share counted once."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from mixerscope.experiments.paper.sweeps import Choice, Figure, share_of_each, sweeps_of, without
from mixerscope.machine import Machine
from mixerscope.spec import RunSpec
from mixerscope.sweep.expand import expand
from mixerscope.sweep.plan import make_plan


@dataclass(frozen=True)
class Cost:
    """Of one figure, or of all together."""

    name: str
    runs: int
    shared: int
    """Of these, how many a figure before it has too."""
    finished: int
    """Of the others, how many are there already."""
    cohorts: int
    minutes: float
    """Of what is left, as far as can be foreseen."""


def costs(
    figures: Sequence[Figure],
    choice: Choice,
    root: Path,
    machine: Machine,
    largest: int | None = None,
    kept: Collection[str] = (),
) -> list[Cost]:
    """One row a figure, in order; the last is their sum. Runs that a figure shares with one before it cost nothing, and
    cohorts that are wholly `kept` are left out."""
    rows: list[Cost] = []
    seen: set[str] = set()
    for figure, own in share_of_each(figures, choice):
        runs = expand(without(sweeps_of(figure, own), kept))
        new = [run for run in runs if run.run_id not in seen]
        seen |= {run.run_id for run in new}
        rows.append(_cost(figure.name, runs, new, root, machine, largest))
    if len(rows) > 1:
        parts = [[getattr(row, name) for row in rows] for name in ("finished", "cohorts", "minutes")]
        finished, cohorts, minutes = map(sum, parts)
        rows.append(Cost("all", len(seen), 0, int(finished), int(cohorts), minutes))
    return rows


def _cost(
    name: str, runs: list[RunSpec], new: list[RunSpec], root: Path, machine: Machine, largest: int | None
) -> Cost:
    plan = make_plan(new, root, machine, largest=largest)
    seconds = sum(job.seconds for job in plan.jobs)
    return Cost(name, len(runs), len(runs) - len(new), len(plan.finished), len(plan.cohorts), seconds / 60)
