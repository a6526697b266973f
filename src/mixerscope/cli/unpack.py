"""`mixerscope unpack`: run folders out of a pack."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from mixerscope.cli.console import results
from mixerscope.errors import CorruptFile, UserError


def unpack(file: Annotated[Path, Parameter(name="FILE")], /, *, out: Path = Path("runs")) -> int:
    """Put the runs of a packed file into a folder, where they can be listed, judged again and reported on.

    Parameters
    ----------
    file
        What `mixerscope sweep --pack FILE` wrote.
    out
        Every run gets a folder of its own in here; those that are there already are left as they are.
    """
    from mixerscope import packs

    try:
        unpacked = len(packs.unpack(file, out))
        there = len(packs.finished_ids(file)) - unpacked
    except CorruptFile as error:  # a damaged pack is what was given, not what became of a run
        raise UserError(str(error)) from error
    said = f"{unpacked} run{'' if unpacked == 1 else 's'} unpacked into {out}"
    said += f"; {there} {'was' if there == 1 else 'were'} there already" if there else ""
    results().print(said, markup=False, soft_wrap=True)
    return 0
