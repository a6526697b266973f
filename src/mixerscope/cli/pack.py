"""`mixerscope pack`: finished runs of a folder in one file."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from mixerscope.cli.console import results
from mixerscope.errors import UserError


def pack(
    root: Annotated[Path, Parameter(name="DIR")],
    file: Annotated[Path, Parameter(name="FILE")],
    /,
    *,
    best: bool = False,
) -> int:
    """Put all finished runs in a folder into one file, without weights, to be judged again elsewhere.

    Parameters
    ----------
    root
        A folder of runs.
    file
        What `mixerscope unpack FILE` reads; a pack that is there is written anew.
    best
        Of runs that differ in their learning rate alone, the one that learned best.
    """
    from mixerscope.packs import write_pack
    from mixerscope.results import load_runs
    from mixerscope.sweep.best import best_runs

    found = load_runs(root)
    chosen = best_runs(found) if best else found
    if not chosen:
        raise UserError(f"{root} has no finished run; `mixerscope status {root}` says what there is")
    size = write_pack(file, chosen)
    results().print(
        f"{size.runs} of {len(found)} finished runs are packed in {file}, {size.packed / 2**20:.1f} MiB",
        markup=False, soft_wrap=True,
    )  # fmt: skip
    return 0
