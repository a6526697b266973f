"""Who is told of a sweep while it is made, and what became of it in the end."""

from dataclasses import dataclass, field

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
