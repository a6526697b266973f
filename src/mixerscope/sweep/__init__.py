"""Sweeps: many runs from one description, stacked into cohorts, packed into jobs, executed and timed."""

from mixerscope.sweep.cohorts import Cohort, group
from mixerscope.sweep.execute import Listener, Outcome, execute
from mixerscope.sweep.expand import Sweep, expand
from mixerscope.sweep.flight import OutOfTime
from mixerscope.sweep.plan import Job, Plan, make_plan
from mixerscope.sweep.source import load_runs

__all__ = [
    "Cohort",
    "Job",
    "Listener",
    "OutOfTime",
    "Outcome",
    "Plan",
    "Sweep",
    "execute",
    "expand",
    "group",
    "load_runs",
    "make_plan",
]
