"""`mixerscope demo`: from nothing to a verdict."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from mixerscope.cli.console import results


def demo(*, fresh: Annotated[bool, Parameter(negative=())] = False, out: Path = Path("runs/demo")) -> int:
    """Train three architectures on a small recall task, patch them, write a report.

    Parameters
    ----------
    fresh
        Train again even if the finished runs are there.
    out
        Folder of the runs and the report.
    """
    from mixerscope.cli.run import finished_run
    from mixerscope.cli.verdicts import accuracy, diverged, verdict_table
    from mixerscope.experiments import demo as experiment
    from mixerscope.report import write_report

    runs = [finished_run(spec, out, fresh=fresh) for spec in experiment.demo_specs()]
    console = results()
    console.print(verdict_table(runs))
    missed = False
    for run in runs:
        reached = accuracy(run)
        if diverged(run) or reached is None or reached < experiment.ACCURACY:
            missed = True
            said = "diverged" if diverged(run) or reached is None else f"reached {reached:.1%} accuracy"
            console.print(
                f"{run.training['model']['architecture']} {said}, short of the demo's {experiment.ACCURACY:.0%}"
            )
    page = write_report(out, runs=runs)
    console.print(f"report: {page}", markup=False, soft_wrap=True)
    return 1 if missed else 0
