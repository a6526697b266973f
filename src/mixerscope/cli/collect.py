"""`mixerscope collect`: one frame for everything."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from mixerscope.cli.console import results
from mixerscope.errors import FAILED, FINE


def collect(
    root: Annotated[Path, Parameter(name="DIR")],
    /,
    *,
    out: Path | None = None,
    table: Annotated[list[str] | None, Parameter(negative=())] = None,
    every: Annotated[bool, Parameter(negative=())] = False,
    use: Annotated[list[str] | None, Parameter(negative=())] = None,
    strict: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """One Parquet file of every table of every run in a folder: a row is a cell, a point of a curve, a verdict, a test.

    Parameters
    ----------
    root
        A run's folder, one that holds run folders, or a pack.
    out
        The file; left out: collected.parquet in the folder. One that is there and is no such file is left alone.
    table
        Only this table, such as verdicts; may be given several times.
    every
        All analyses, where a run has several by one stage; else the one with default settings, or the latest.
    use
        `file.py:Class` or `pkg.module:Class`, a stage of yours whose tables are to be in it; may be given several
        times.
    strict
        Refuse a folder in which a run is damaged, or a stage unknown; else that is named and left out, and the exit
        code is 1.
    """
    from mixerscope.cli.progress import following
    from mixerscope.export import write_collected
    from mixerscope.showing import counted
    from mixerscope.spec.reading import use_all

    use_all(use)
    with following(str(root)) as follow:
        found = write_collected(
            root,
            out,
            table,
            every=every,
            strict=strict,
            progress=lambda done, total: follow("collect", done, total, ""),
        )
    size = found.path.stat().st_size / 2**20
    rows = sum(found.rows.values())
    what = f"{counted(rows, 'row')} in {counted(len(found.rows), 'table')} of {counted(found.runs, 'run')}"
    results().print(f"{what}: {found.path}, {size:.1f} MiB", markup=False, soft_wrap=True)
    return FAILED if found.left_out else FINE
