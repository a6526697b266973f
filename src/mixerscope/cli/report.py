"""`mixerscope report`: one page over finished runs."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from mixerscope.cli.console import results
from mixerscope.errors import UserError


def report(folder: Path, /, *, out: Path | None = None, best: Annotated[bool, Parameter(negative=())] = False) -> int:
    """One HTML page over the finished runs in a folder.

    Parameters
    ----------
    folder
        A run's folder, or one that holds run folders.
    out
        The page; left out: report.html in the folder.
    best
        Of runs that differ in their learning rate alone, only the one with the highest accuracy on dev documents.
    """
    from mixerscope.store import find_runs

    runs = find_runs(folder)
    for run in runs:
        run.verify()
    if out is not None and (out.is_dir() or not out.parent.is_dir()):
        raise UserError(f"cannot write the page to {out}: it should be a file in a folder that exists")
    from mixerscope.report import write_report

    if best:
        from mixerscope.runs import load_run
        from mixerscope.sweep.best import best_runs

        runs = [result.folder for result in best_runs(load_run(run.path) for run in runs)]
        if not runs:
            raise UserError(f"all runs in {folder} diverged, so none is the best; leave out --best")
    page = write_report(folder, out, runs)
    results().print(f"{len(runs)} run{'s' if len(runs) > 1 else ''}: {page}", markup=False, soft_wrap=True)
    return 0
