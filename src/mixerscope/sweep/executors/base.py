"""What every way of making a sweep has in common: the item that is given out, and what became of it."""

import shutil
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path

from mixerscope.runs import seems_finished
from mixerscope.signals import GRACE, refuse_signals
from mixerscope.store import holders
from mixerscope.store.checkpoints import WORKSHOP
from mixerscope.sweep.cohorts import Cohort
from mixerscope.sweep.items import Item
from mixerscope.sweep.listening import Listener, SweepOutcome
from mixerscope.sweep.plan import Plan
from mixerscope.sweep.table import CohortRow, JobRow, read_rows, row_of
from mixerscope.sweep.text import ended_line

SHOWN_WITHIN = 60.0
"""Seconds after which a shared file system shows what another machine wrote."""


class Executor(ABC):
    """Has a sweep made, here or elsewhere, and waits for it."""

    own_lines = False
    """Whether its processes say on stderr how far they are, so that nothing is drawn over them."""

    @abstractmethod
    def execute(self, plan: Plan, item: Item, listener: Listener) -> SweepOutcome:
        """Makes what a plan has left. An interrupt goes on to the caller."""


class Following:
    """Tells a listener what processes elsewhere are doing, as far as it shows below the root."""

    def __init__(self, plan: Plan, root: Path, call: str, listener: Listener) -> None:
        self.plan, self.root, self.call, self.listener = plan, root, call, listener
        self.of_run = {run.run_id: cohort for cohort in plan.cohorts for run in cohort.runs}
        self.unmade = plan.cohorts
        self.told = len(read_rows(root))
        self.making: dict[str, str] = {}
        """By cohort: who was last seen making it."""

    def look(self) -> None:
        for name, holder in holders(self.root).items():
            cohort = self.of_run.get(name.rpartition("-")[2])
            if cohort is not None and self.making.get(cohort.id) != holder.token:
                self.making[cohort.id] = holder.token
                self.listener.remark(f"{cohort}: made by process {holder.pid} on {holder.host}")
        rows = read_rows(self.root)
        for row in rows[self.told :]:
            if row.get("call") == self.call and isinstance(found := row_of(row), CohortRow):
                self.listener.remark(ended_line(found))
        self.told = len(rows)

    def left(self) -> list[Cohort]:
        """Cohorts that are neither made nor known to fail."""
        rows = rows_of(self.root, self.call)
        failed = {row.cohort for row in rows if isinstance(row, CohortRow) and row.ending == "failed"}
        # What is finished stays so, and is not looked at again.
        self.unmade = [c for c in self.unmade if not all(seems_finished(run, self.root) for run in c.runs)]
        return [cohort for cohort in self.unmade if cohort.id not in failed]

    def wait_for_others(self) -> None:
        """Until those who make cohorts of this sweep have put them down, as after a signal."""
        until = time.monotonic() + GRACE - 2.0  # this process may have been sent one too
        while time.monotonic() < until and self._made_now():
            time.sleep(0.2)
        self.look()

    def _made_now(self) -> bool:
        return any(name.rpartition("-")[2] in self.of_run for name in holders(self.root))

    def wait_for_files(self) -> None:
        """Until what all processes have ended to write can be seen here."""
        until = time.monotonic() + SHOWN_WITHIN
        while self.left() and time.monotonic() < until:
            pause(1.0)
        self.look()

    def outcome(self) -> SweepOutcome:
        rows = rows_of(self.root, self.call)
        cohorts = [row for row in rows if isinstance(row, CohortRow)]
        return SweepOutcome(cohorts, [row for row in rows if isinstance(row, JobRow)], left=self.left())


def pause(seconds: float) -> None:
    """Waits, and raises if this process is asked to end."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        refuse_signals()
        time.sleep(min(0.1, seconds))
    refuse_signals()


def rows_of(root: Path, call: str) -> list[CohortRow | JobRow]:
    """What processes of one call added to the table."""
    return [row_of(row) for row in read_rows(root) if row.get("call") == call]


def remove_item(path: Path) -> None:
    """Away with an item that nobody will make any more, and with our folders if nothing else is in them."""
    with suppress(OSError):
        path.unlink()
        path.parent.rmdir()
        path.parents[1].rmdir()


def logs_of(root: str, call: str) -> Path:
    return Path(root) / WORKSHOP / "logs" / call


def remove_logs(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()
        folder.parents[1].rmdir()
