"""Runs that lie in packs, for commands that only look at them."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mixerscope.cli.console import remarks


@contextmanager
def unpacked(folder: Path) -> Iterator[Path]:
    """Where the runs of a folder are: the folder itself, or, where it holds none but packs of them do, a place into
    which these are unpacked for as long as it takes. A pack itself can be named too."""
    packs = _packs(folder)
    if not packs:
        yield folder
        return
    from mixerscope.packs import unpack

    with tempfile.TemporaryDirectory(prefix="mixerscope-") as place:
        for pack in packs:
            unpack(pack, Path(place))
        remarks().print(f"runs of {len(packs)} pack{'' if len(packs) == 1 else 's'} below {folder}", markup=False)
        yield Path(place)


def _packs(folder: Path) -> list[Path]:
    if folder.is_file():
        return [folder]
    from mixerscope.store import Seal

    runs = any(True for pattern in (Seal.file, f"*/{Seal.file}") for _ in folder.glob(pattern))
    return [] if runs or not folder.is_dir() else sorted(folder.rglob("*.pack"))
