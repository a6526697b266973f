"""A run's folder: what is in it, when it counts as finished, and how its bytes are checked."""

from pathlib import Path
from typing import Any

from mixerscope.errors import CorruptFile, UserError
from mixerscope.store.files import make_folder, read_json, sha256, write_json

SEAL = "files.json"
"""Written last: the hash of every other file. A folder without it is unfinished and is made anew."""
UNSEALED = {SEAL, "timing.json"}
"""Wall times differ from run to run; everything else is the same bytes for the same spec on the same machine."""


class RunFolder:
    """`<root>/<architecture>-<run id>`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def finished(self) -> bool:
        return (self.path / SEAL).is_file()

    def begin(self) -> None:
        """Makes the folder and removes what an interrupted run of ours left in it."""
        make_folder(self.path)
        (self.path / SEAL).unlink(missing_ok=True)  # first, so that a kill leaves no seal on what is half gone
        for leftover in self.path.iterdir():
            if leftover.is_file():
                leftover.unlink()

    def seal(self) -> None:
        files = sorted(p for p in self.path.iterdir() if p.is_file() and p.name not in UNSEALED)
        write_json(self.path / SEAL, {p.name: sha256(p) for p in files})

    def holds(self, name: str) -> bool:
        """Whether the run sealed a file of this name."""
        return self.finished and name in read_json(self.path / SEAL)

    def checked(self, name: str) -> Path:
        """The path of a file whose bytes are those that were sealed, or `CorruptFile`."""
        if not self.finished:
            raise UserError(f"{self.path} holds no finished run")
        hashes: dict[str, Any] = read_json(self.path / SEAL)
        path = self.path / name
        if name not in hashes or not path.is_file():
            raise CorruptFile(f"{path} is missing")
        if sha256(path) != hashes[name]:
            raise CorruptFile(f"{path} has changed since the run wrote it: its hash does not match {SEAL}")
        return path

    def verify(self) -> None:
        """Checks every sealed file, so that a damaged one is reported even where nobody reads it."""
        hashes: dict[str, Any] = read_json(self.path / SEAL)
        for name in hashes:
            self.checked(name)


def find_runs(root: Path) -> list[RunFolder]:
    """The finished runs in a folder, itself or one level below, by name."""
    if not root.is_dir():
        raise UserError(f"{root} is not a folder")
    folders = [RunFolder(path) for path in [root, *sorted(root.iterdir())] if path.is_dir()]
    found = [folder for folder in folders if folder.finished]
    if not found:
        raise UserError(f"{root} holds no finished runs; `mixerscope run --out {root} ...` makes one")
    return found
