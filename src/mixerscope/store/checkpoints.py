"""Checkpoints of trainings in the making: `<root>/.mixerscope/checkpoints` has a file a cohort until it is done."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mixerscope.artifacts.checkpoint import LENGTH_BYTES, Checkpoint
from mixerscope.errors import CannotWrite, CorruptFile
from mixerscope.spec import digest
from mixerscope.store.files import TEMPORARY, write_bytes

WORKSHOP = ".mixerscope"
"""Below a root: what only those need who are making runs there."""
SUFFIX = ".safetensors"


class CheckpointFolder:
    """The checkpoints below a root. Runs go by the names of their folders."""

    def __init__(self, root: Path) -> None:
        self.path = root / WORKSHOP / "checkpoints"

    def file(self, runs: Sequence[str]) -> Path:
        """Of the cohort of these runs in this order."""
        return self.path / f"{digest(list(runs))[:12]}{SUFFIX}"

    def headers(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """All that can be read and say of which `runs` they are, without their tensors."""
        for path in sorted(self.path.glob(f"*{SUFFIX}")) if self.path.is_dir() else ():
            with suppress(OSError, CorruptFile), path.open("rb") as file:
                start = file.read(LENGTH_BYTES)
                header = Checkpoint.header_of(start + file.read(Checkpoint.header_bytes(start) - LENGTH_BYTES))
                runs = header.get("runs")
                if isinstance(runs, list) and runs and all(isinstance(name, str) for name in runs):
                    yield path, header

    def read(self, path: Path) -> Checkpoint:
        try:
            return Checkpoint.from_bytes(path.read_bytes())
        except OSError as error:
            raise CorruptFile(f"{path} cannot be read: {error.strerror}") from error
        except CorruptFile as error:
            raise CorruptFile(f"{path}: {error}") from error

    def write(self, path: Path, checkpoint: Checkpoint) -> None:
        data = checkpoint.to_bytes()
        while True:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise CannotWrite(self.path, error) from error
            try:
                return write_bytes(path, data)
            except CannotWrite:
                if self.path.is_dir():  # else whoever removed the last of theirs has just removed the folder
                    raise

    def remove(self, path: Path) -> None:
        """Removes a checkpoint, halves of it that a kill left, and the folder with the last."""
        path.unlink(missing_ok=True)
        for part in self.path.glob(f".{path.name}{TEMPORARY}*"):
            part.unlink(missing_ok=True)
        for folder in (self.path, self.path.parent):
            with suppress(OSError):  # others may be making runs here
                folder.rmdir()
