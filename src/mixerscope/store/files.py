"""Files that are either whole or absent, and known by their hash."""

import hashlib
import json
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mixerscope.errors import CannotWrite, CorruptFile, UserError

TEMPORARY = ".mixerscope-"
"""In the name of a file while it is being written."""
HEAD = 4096
"""Bytes of a file that tell whose it is."""
LARGEST_JSON, LARGEST_FILE = 64 << 20, 8 << 30
"""Bytes that are read of what somebody else may have made."""
_UMASK = threading.Lock()
"""The mask can only be read by setting it; of two threads in between, one would leave it at zero for good."""


def write_bytes(path: Path, data: bytes) -> None:
    """Writes a file so that a kill at any moment leaves the old one or the new one, never a part.

    Where the disk is full, or cannot be written to, `CannotWrite` says so and the old one stays.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The name of a file to be written, which takes the place of `path` when the block ends well."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}{TEMPORARY}")
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            os.chmod(temporary, 0o666 & ~_umask())  # a temporary file is readable by its owner only
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CannotWrite(path, error) from error


def _umask() -> int:
    with _UMASK:
        mask = os.umask(0)
        os.umask(mask)
    return mask


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def append_jsonl(path: Path, row: Mapping[str, Any]) -> None:
    """Adds a row at the end; half of one that a kill left there is taken away. One writer at a time."""
    try:
        _append(path, (json.dumps(row, allow_nan=False) + "\n").encode())
    except OSError as error:
        raise CannotWrite(path, error) from error


def _append(path: Path, line: bytes) -> None:
    with path.open("ab+") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"{path} is not JSON: {error}") from error


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    try:
        # What follows the last end of a line is half of a row that somebody is writing, or was.
        return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"{path} is not JSON lines: {error}") from error


def read_bounded(path: str | Path) -> bytes:
    """A file that somebody else may have made: one of a size that no run of ours has is not read, nor what is no file.

    `path` may be text, which those who read ten thousand of them make.
    """
    return read_known(path)[0]


def read_known(path: str | Path) -> tuple[bytes, os.stat_result]:
    """The same, and what the file system says of the file that was read."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would be waited for
    try:
        found, most = os.fstat(handle), LARGEST_JSON if str(path).endswith(".json") else LARGEST_FILE
        if not stat.S_ISREG(found.st_mode):
            raise CorruptFile(f"{path} is no regular file")
        if found.st_size > most:
            raise CorruptFile(f"{path} has {found.st_size / 2**20:,.0f} MiB, where {most / 2**20:,.0f} are the most")
        data = os.read(handle, found.st_size + 1)
        if len(data) == found.st_size:  # as of every file but one of gigabytes, which is read in parts
            return data, found
        with open(handle, "rb", buffering=0, closefd=False) as file:
            return data + file.read(), found
    finally:
        os.close(handle)


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def claim(path: Path, ours: Callable[[bytes], bool]) -> None:
    """Refuses to overwrite a file that is not ours, as `ours` tells from its first bytes, or no regular file at all."""
    if not path.exists() and not path.is_symlink():
        return
    try:
        head = b"" if path.is_symlink() or not path.is_file() else _head(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
    if not ours(head):
        raise UserError(f"{path} exists and was not written by mixerscope; give another name or move it elsewhere")


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD)


def make_folder(path: Path) -> None:
    """The folder, made if need be; an unusable one is the user's to fix."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise UserError(f"cannot write to {path}: {error.strerror}") from error
