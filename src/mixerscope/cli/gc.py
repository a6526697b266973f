"""`mixerscope gc`: away with what killed processes left behind."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from mixerscope.cli.console import results


def gc(folder: Path = Path("runs"), /, *, dry_run: Annotated[bool, Parameter(negative=())] = False) -> int:
    """Remove halves of files, locks of processes that are gone and checkpoints of finished runs. No run is touched.

    Parameters
    ----------
    folder
        One that holds run folders.
    dry_run
        Say what would be removed, and remove nothing.
    """
    from mixerscope.store.upkeep import clear, leftovers

    found = leftovers(folder)
    size = sum(path.stat().st_size for path in found)
    for path, reason in found.items():
        results().print(f"{path}: {reason}", markup=False, soft_wrap=True)
    if not dry_run:
        clear(folder, found)
    said = "would be removed" if dry_run else "removed"
    results().print(f"{len(found)} file{'' if len(found) == 1 else 's'}, {size / 2**20:.1f} MiB, {said}", markup=False)
    return 0
