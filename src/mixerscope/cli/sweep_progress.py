"""Progress of a sweep on stderr: a bar per cohort in flight and one for all on a terminal, lines elsewhere."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import Progress, TaskID

from mixerscope.cli.console import remarks
from mixerscope.cli.progress import bars_on
from mixerscope.sweep.cohorts import Cohort
from mixerscope.sweep.listening import Listener
from mixerscope.sweep.plan import Plan
from mixerscope.sweep.table import CohortRow
from mixerscope.sweep.text import Lines, ended_line, summary

DOING = {"build": "preparing", "train": "training"}
"""What a bar says; a stage is called by its name."""


class SweepBars(Listener):
    """Bars of cohorts come and go; what has ended leaves a line above them."""

    def __init__(self, progress: Progress, models: int) -> None:
        self.progress_bars = progress
        self.all = progress.add_task("models", total=models, note="")
        self.bars: dict[str, tuple[str, TaskID]] = {}
        self.lock = threading.Lock()

    def sweep_started(self, plan: Plan) -> None:
        self.progress_bars.console.print(summary(plan), markup=False)

    def cohort_started(self, cohort: Cohort) -> None:
        self._bar(cohort, "build", 1)

    def progress(self, cohort: Cohort, stage: str, done: int, total: int, note: str) -> None:
        self.progress_bars.update(self._bar(cohort, stage, total), completed=done, note=note)

    def cohort_ended(self, cohort: Cohort, row: CohortRow) -> None:
        with self.lock:
            _, bar = self.bars.pop(cohort.id)
        self.progress_bars.remove_task(bar)
        self.progress_bars.console.print(ended_line(row), markup=False)
        if row.ending == "finished":
            self.progress_bars.advance(self.all, row.members)

    def remark(self, text: str) -> None:
        self.progress_bars.console.print(text, markup=False)

    def _bar(self, cohort: Cohort, stage: str, total: int) -> TaskID:
        """The bar of a cohort's present stage; a new stage gets a new one, so that rates are its own."""
        with self.lock:
            known, bar = self.bars.get(cohort.id, ("", None))
            if bar is None or known != stage:
                if bar is not None:
                    self.progress_bars.remove_task(bar)
                bar = self.progress_bars.add_task(f"{cohort}: {DOING.get(stage, stage)}", total=total, note="")
                self.bars[cohort.id] = (stage, bar)
            return bar


@contextmanager
def following_sweep(plan: Plan) -> Iterator[Listener]:
    """What an executor should be given as `listener`, for as long as the block lasts."""
    console = remarks()
    if not console.is_terminal:
        yield Lines()
        return
    with bars_on(console) as progress:
        yield SweepBars(progress, sum(len(cohort) for cohort in plan.cohorts))
