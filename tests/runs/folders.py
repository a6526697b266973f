"""What tests of runs do with folders."""

import shutil
from pathlib import Path

from mixerscope.results import load_run


def contents(folder) -> dict[str, bytes]:
    """Every file of a run by its path in the folder, but for the times."""
    files = (path for path in folder.path.rglob("*") if path.is_file() and path.name != "timing.json")
    return {str(path.relative_to(folder.path)): path.read_bytes() for path in files}


def copied(result, root: Path):
    shutil.copytree(result.folder.path, root / result.folder.path.name)
    return load_run(root / result.folder.path.name)


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("trained again")
