"""Who is told of a sweep while it is made, and what became of it in the end."""

from dataclasses import dataclass, field
from typing import Any

from mixerscope.sweep.cohorts import Cohort
from mixerscope.sweep.plan import Job, Plan
from mixerscope.sweep.table import CohortRow, JobRow


class Listener:
    """Told what happens, from the threads in which it happens; does nothing unless a subclass says otherwise."""

    def sweep_started(self, plan: Plan) -> None: ...

    def job_started(self, job: Job) -> None: ...

    def cohort_started(self, cohort: Cohort) -> None: ...

    def progress(self, cohort: Cohort, stage: str, done: int, total: int, note: str) -> None: ...

    def cohort_ended(self, cohort: Cohort, row: CohortRow) -> None: ...

    def job_ended(self, row: JobRow) -> None: ...

    def remark(self, text: str) -> None: ...


class All(Listener):
    """Tells several listeners, one after the other."""

    def __init__(self, *listeners: Listener) -> None:
        self.listeners = listeners

    def sweep_started(self, plan: Plan) -> None:
        self._tell("sweep_started", plan)

    def job_started(self, job: Job) -> None:
        self._tell("job_started", job)

    def cohort_started(self, cohort: Cohort) -> None:
        self._tell("cohort_started", cohort)

    def progress(self, cohort: Cohort, stage: str, done: int, total: int, note: str) -> None:
        self._tell("progress", cohort, stage, done, total, note)

    def cohort_ended(self, cohort: Cohort, row: CohortRow) -> None:
        self._tell("cohort_ended", cohort, row)

    def job_ended(self, row: JobRow) -> None:
        self._tell("job_ended", row)

    def remark(self, text: str) -> None:
        self._tell("remark", text)

    def _tell(self, what: str, *told: Any) -> None:
        for listener in self.listeners:
            getattr(listener, what)(*told)


@dataclass
class SweepOutcome:
    """What became of a plan."""

    cohorts: list[CohortRow] = field(default_factory=list)
    jobs: list[JobRow] = field(default_factory=list)
    elsewhere: list[Cohort] = field(default_factory=list)
    """Made by other processes in the meantime."""
    left: list[Cohort] = field(default_factory=list)
    """For the next call: there was no time."""

    @property
    def failed(self) -> list[CohortRow]:
        return [row for row in self.cohorts if row.ending == "failed"]
