"""`mixerscope report`: one page over finished runs."""

from pathlib import Path

from mixerscope.cli.console import results
from mixerscope.errors import UserError


def report(folder: Path, /, *, out: Path | None = None) -> int:
    """One HTML page over the finished runs in a folder.

    Parameters
    ----------
    folder
        A run's folder, or one that holds run folders.
    out
        The page; left out: report.html in the folder.
    """
    from mixerscope.store import find_runs

    runs = find_runs(folder)
    for run in runs:
        run.verify()
    if out is not None and (out.is_dir() or not out.parent.is_dir()):
        raise UserError(f"cannot write the page to {out}: it should be a file in a folder that exists")
    from mixerscope.report import write_report

    page = write_report(folder, out)
    results().print(f"{len(runs)} run{'s' if len(runs) > 1 else ''}: {page}", markup=False, soft_wrap=True)
    return 0
