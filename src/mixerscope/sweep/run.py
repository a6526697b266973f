"""A sweep from Python: what `mixerscope sweep` does, as one function."""

from collections.abc import Sequence
from pathlib import Path

from mixerscope.errors import CorruptFile, MixerscopeError
from mixerscope.machine import CPU, Machine
from mixerscope.results import Runs
from mixerscope.spec import RunSpec
from mixerscope.sweep.best import finished_runs
from mixerscope.sweep.execute import execute
from mixerscope.sweep.expand import Sweep
from mixerscope.sweep.plan import make_plan
from mixerscope.sweep.text import Lines


def run_sweep(
    sweep: Sweep | Sequence[RunSpec],
    root: str | Path,
    progress: bool = True,
    machine: Machine = CPU,
    keep_weights: bool = False,
    stop_after: float | None = None,
) -> Runs:
    """The finished runs of a sweep below `root`, in order: what is there is loaded, what is missing is made.

    Runs that differ in seed, learning rate or weight decay alone are trained as one stack. How far it is, is told on
    stderr unless `progress` is False. With `stop_after`, what cannot be done in so many seconds is left for the next
    call, and not among the results. A cohort that fails does not stop the others; that it failed is raised at the end.
    """
    plan = make_plan(sweep.runs() if isinstance(sweep, Sweep) else sweep, Path(root), machine)
    listener = Lines() if progress else None
    outcome = execute(plan, Path(root), machine, stop_after=stop_after, keep_weights=keep_weights, listener=listener)
    if plan.damaged:
        raise CorruptFile("; ".join(plan.damaged.values()))
    if outcome.failed:
        reasons = "; ".join(f"{row.label} failed: {row.reason}" for row in outcome.failed)
        raise MixerscopeError(f"{reasons}; what was finished is in {root}")
    return finished_runs(plan.runs, Path(root))
