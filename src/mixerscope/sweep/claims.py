"""Which cohorts are this process's to make: sweeps in one folder share the work by locks."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from mixerscope.errors import Held
from mixerscope.results import run_folder
from mixerscope.store import Locks
from mixerscope.sweep.cohorts import Cohort

ASKED_EVERY = 5.0
"""Seconds between two tries to take a cohort that another process is making."""


@dataclass(frozen=True)
class _Waited:
    """A cohort that cannot be had now."""

    again: float
    """When to ask again."""
    touched: float | None = None
    """When its holder had last touched the lock as we first saw it; None where nobody holds it."""
    alive: bool = False
    """Whether the holder has touched it since, so that it is at work and not only its lock left."""


class Claims:
    """The locks on cohorts that this process makes, and what is known of those that others make."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.locks: dict[str, Locks] = {}
        """By cohort in flight."""
        self.waited: dict[str, _Waited] = {}

    def take(self, cohort: Cohort, say: Callable[[str], object]) -> bool:
        """Whether the runs of a cohort are this process's to make now."""
        before = self.waited.get(cohort.id)
        if before is not None and time.monotonic() < before.again:
            return False
        locks = Locks(self.root, [run_folder(run, self.root).path.name for run in cohort.runs])
        try:
            locks.take()
        except Held as held:
            if before is None or before.touched is None:
                say(f"{cohort}: {held}")
                before = _Waited(0.0, held.touched)
            alive = before.touched is not None and held.touched > before.touched
            self.waited[cohort.id] = replace(before, again=time.monotonic() + ASKED_EVERY, alive=alive)
            return False
        self.locks[cohort.id] = locks
        return True

    def later(self, cohort: Cohort) -> None:
        """Notes that a cohort could not be taken for a reason that may pass."""
        self.waited[cohort.id] = _Waited(time.monotonic() + ASKED_EVERY)

    def others(self, cohort: Cohort) -> bool:
        """Whether somebody else is known to be making a cohort, alive while this process waited for it."""
        return cohort.id in self.waited and self.waited[cohort.id].alive

    def release(self, cohort: Cohort) -> None:
        self.locks.pop(cohort.id).release()

    def release_all(self) -> None:
        for locks in list(self.locks.values()):
            locks.release()
