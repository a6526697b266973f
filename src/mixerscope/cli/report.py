"""`mixerscope report`: one page over finished runs."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from mixerscope.cli.console import results
from mixerscope.errors import FAILED, FINE, UserError


def report(
    folder: Path,
    /,
    *,
    out: Path | None = None,
    best: Annotated[bool, Parameter(negative=())] = False,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
    use: Annotated[list[str] | None, Parameter(negative=())] = None,
    strict: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """One HTML page over the finished runs in a folder.

    Parameters
    ----------
    folder
        A run's folder, one that holds run folders, or a pack of runs, or a folder with packs below it.
    out
        The page; left out: report.html in the folder.
    best
        Of runs that differ in their learning rate alone, only the one with the highest accuracy on dev documents.
    set_
        path=value, such as rules.carries=0.7: the page shows verdicts by these rules; may be given several times.
    use
        `file.py:Class` or `pkg.module:Class`, a component of yours that runs name as local/Class; may be given several
        times. The page does without, but for the example of a document.
    strict
        Refuse a folder in which a run is damaged; else it is named and left out, and the exit code is 1.
    """
    from mixerscope.cli.damage import sound_runs
    from mixerscope.cli.judge import judge_of
    from mixerscope.cli.packed import unpacked
    from mixerscope.spec.reading import use_all

    if out is not None and (out.is_dir() or not out.parent.is_dir()):
        raise UserError(f"cannot write the page to {out}: it should be a file in a folder that exists")
    use_all(use)
    rules = judge_of(set_) if set_ else None
    with unpacked(folder) as place:
        runs, left_out = sound_runs(place, strict)
        if rules is not None:
            from mixerscope.runs import redo

            runs = [redo(run, "judge", rules) if "patch" in run.stages else run for run in runs]
        from mixerscope.report import write_report

        if best:
            from mixerscope.sweep.best import best_runs

            runs = best_runs(runs)
            if not runs:
                raise UserError(f"all runs in {folder} diverged, so none is the best; leave out --best")
        page = write_report(folder.parent if folder.is_file() else folder, out, runs)
    results().print(f"{len(runs)} run{'s' if len(runs) > 1 else ''}: {page}", markup=False, soft_wrap=True)
    return FAILED if left_out else FINE
