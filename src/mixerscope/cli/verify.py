"""`mixerscope verify`: is every file what it was when it was sealed?"""

from pathlib import Path

from mixerscope.cli.console import results
from mixerscope.errors import FAILED, FINE, CorruptFile, remark


def verify(folder: Path = Path("runs"), /) -> int:
    """Check every file of finished runs against its hash, and ids against what they name; exits with 1 if one fails.

    Parameters
    ----------
    folder
        A run's folder, or one that holds run folders.
    """
    from mixerscope.store import find_runs

    damaged: list[str] = []
    whole = 0
    for found in find_runs(folder, damaged):
        try:
            found.verify()
            whole += 1
        except CorruptFile as error:
            damaged.append(str(error))
    for complaint in damaged:
        remark(complaint)
    tail = f", {len(damaged)} damaged" if damaged else ""
    results().print(f"{whole} run{'' if whole == 1 else 's'} whole{tail}", markup=False)
    return FAILED if damaged else FINE
