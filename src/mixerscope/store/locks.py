"""Who is making which run: a lock file a run in `<root>/.mixerscope/locks`, so that no two processes make the same.

It works on shared file systems too, where `flock` may not: a lock is a hard link, which exactly one process can make,
and its holder touches it every few seconds. On the same machine it can be seen whether its holder's process is there,
and a lock is recovered when it is gone; clocks say nothing then. A lock from elsewhere is recovered when it was not
touched for minutes by the file system's own clock.
"""

import json
import os
import platform
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from mixerscope.errors import CannotWrite, Held, MixerscopeError, UserError, remark
from mixerscope.store.checkpoints import WORKSHOP

TOUCHED_EVERY = 10.0
LAPSED_AFTER = 180.0
"""Seconds without a touch; caches of network file systems may hide one for a minute."""
FORGOTTEN = 3600.0
"""The same for those who only look, whose clock may be another than the file system's."""
LOOKED_EVERY = 0.5
"""Seconds between two looks while waiting."""
LARGEST = 4096
"""Bytes of a lock file."""
ENDED = ("Z", "X")
"""States of processes that have ended, and of which some number is left until their parent asks: some never do."""
TRIES = 200
"""To write into a folder that others remove, as they do with the last of theirs; then it is not they who do."""


@dataclass(frozen=True)
class Holder:
    """Who holds a lock."""

    host: str
    space: str
    """In which process numbers mean the same: this start of the machine, and the container."""
    pid: int
    began: str
    """When the process began, as the system counts: numbers of processes are used again."""
    token: str
    since: float
    doing: str

    @staticmethod
    def here() -> "Holder":
        pid = os.getpid()
        doing = Path(sys.argv[0]).name if sys.argv else ""
        return Holder(platform.node(), _space(), pid, _began(pid), uuid.uuid4().hex, time.time(), doing)

    def __str__(self) -> str:
        where = "" if self.host == platform.node() else f" on {self.host}"
        return f"process {self.pid}{where}, since {time.strftime('%H:%M:%S', time.localtime(self.since))}"

    def is_gone(self) -> bool:
        """Whether its process is known to have ended."""
        if not self._is_near():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return _began(self.pid) != self.began

    def is_there(self) -> bool:
        """Whether its process is known to be there still, however long it has not touched its lock: it may have slept,
        and the clock been set, since then."""
        return self._is_near() and bool(self.began) and _began(self.pid) == self.began

    def _is_near(self) -> bool:
        return self.host == platform.node() and self.space == _space()


class Locks:
    """Locks on some runs below a root, by the names of their folders: all of them, or none."""

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        self.folder = root / WORKSHOP / "locks"
        self.names = sorted(set(names))  # two that want the same ones in another order would wait for each other
        self.holder = Holder.here()
        self.taken: list[Path] = []
        self.over = threading.Event()

    def take(self) -> None:
        """Takes all, or raises `Held`."""
        try:
            for name in self.names:
                path = self.folder / f"{name}.lock"
                holder = self._take(path)
                if holder is not None:
                    raise Held(name, str(holder), touched(path))
                self.taken.append(path)
        except BaseException:
            self.release()
            raise
        if self.taken:
            threading.Thread(target=self._touch, name="locks", daemon=True).start()

    def check(self) -> None:
        """Raises if a lock was lost, as after minutes in which this process could not touch it."""
        for path in self.taken:
            if (holder := _read(path)) == self.holder:
                continue
            if holder is None and not path.exists():
                raise MixerscopeError(f"the lock on {path.stem} is gone: {self.folder.parents[1]} was moved or removed")
            raise MixerscopeError(f"{path.stem} was taken over by another process while this one did not respond")

    def release(self) -> None:
        self.over.set()
        while self.taken:
            path = self.taken.pop()
            if _read(path) == self.holder:
                path.unlink(missing_ok=True)
        for folder in (self.folder, self.folder.parent):
            with suppress(OSError):  # others may be at work here
                folder.rmdir()

    def _take(self, path: Path) -> "Holder | str | None":
        """Takes one lock; gives who holds it if it cannot be had."""
        own = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
        gone = 0
        while True:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                own.write_text(json.dumps(asdict(self.holder)))
            except FileNotFoundError as error:
                gone += 1  # whoever was the last here has just removed the folder, or all of it is gone
                if gone == TRIES:
                    raise CannotWrite(self.folder.parents[1], error) from error
                time.sleep(0.001)
                continue
            except (NotADirectoryError, FileExistsError) as error:
                raise UserError(f"cannot write to {self.folder.parents[1]}: {error.strerror}") from error
            except OSError as error:
                raise CannotWrite(self.folder.parents[1], error) from error
            try:
                if _linked(own, path):
                    return None
                found = _state(path, own)
                if found is None:
                    continue  # released in between
                holder, lapsed = found
                if not lapsed:
                    return holder or "another process"
                _recover(path, own)
            finally:
                own.unlink(missing_ok=True)

    def _touch(self) -> None:
        while not self.over.wait(TOUCHED_EVERY):
            for path in list(self.taken):
                with suppress(OSError):  # lost, or out of reach for now: `check` tells
                    if _read(path) == self.holder:
                        os.utime(path)


@contextmanager
def locked(root: Path, names: Sequence[str], wait: bool, interrupt: Callable[[], object]) -> Iterator[Locks]:
    """Holds locks while open. With `wait` one that others hold is waited for, else `Held` is raised.

    `interrupt` is called now and then while waiting, and may raise.
    """
    locks, said = Locks(root, names), False
    while True:
        try:
            locks.take()
            break
        except Held as held:
            if not wait:
                raise
            if not said:
                remark(f"{held}; waiting for it")
            said = True
        time.sleep(LOOKED_EVERY)
        interrupt()
    try:
        yield locks
    finally:
        locks.release()


def holders(root: Path) -> dict[str, Holder]:
    """Who is making what below a root, by the names of run folders; without those who are gone, or not heard of."""
    found: dict[str, Holder] = {}
    now = time.time()
    for path in sorted((root / WORKSHOP / "locks").glob("*.lock")):
        holder = _read(path)
        if holder is not None and not holder.is_gone() and (holder.is_there() or now - touched(path) < FORGOTTEN):
            found[path.stem] = holder
    return found


def abandoned(root: Path) -> list[Path]:
    """Lock files of those who are known to be gone, and what a kill left of taking one."""
    folder = root / WORKSHOP / "locks"
    now = time.time()
    found = [path for path in folder.glob("*.lock") if (holder := _read(path)) is not None and holder.is_gone()]
    return found + [path for path in folder.glob(".*") if now - touched(path, now) > LAPSED_AFTER]


def _linked(own: Path, path: Path) -> bool:
    try:
        os.link(own, path)
        return True
    except FileExistsError:
        # An answer may get lost on a network, and the question be asked again.
        return own.stat().st_nlink > 1
    except FileNotFoundError:
        return False
    except OSError:  # no hard links here; the content follows, and until then nobody can tell whose it is
        try:
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            return False
        with os.fdopen(handle, "wb") as file:
            file.write(own.read_bytes())
        return True


def touched(path: Path, missing: float = 0.0) -> float:
    """When a file was last written to, which may have gone meanwhile."""
    with suppress(FileNotFoundError):
        return path.stat().st_mtime
    return missing


def _state(path: Path, now: Path) -> tuple[Holder | None, bool] | None:
    """Who holds a lock, if that can be read, and whether it has lapsed; None if nobody does. `now` was just written."""
    try:
        age = now.stat().st_mtime - path.stat().st_mtime
        if age < -LAPSED_AFTER:  # the clock was set back since; from now on it counts as any other
            os.utime(path)
    except FileNotFoundError:
        return None
    except PermissionError:
        age = 0.0
    holder = _read(path)
    if holder is None:
        return None, age > LAPSED_AFTER
    return holder, holder.is_gone() or (age > LAPSED_AFTER and not holder.is_there())


def _recover(path: Path, now: Path) -> None:
    """Removes a lock that has lapsed. One process at a time: another one may have recovered it and taken it since."""
    alone = path.with_suffix(".recovering")
    try:
        os.close(os.open(alone, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except FileExistsError:
        with suppress(FileNotFoundError):
            if now.stat().st_mtime - alone.stat().st_mtime > LAPSED_AFTER:
                alone.unlink()  # left by a kill
        time.sleep(0.01)
        return
    except FileNotFoundError:
        return
    try:
        found = _state(path, now)
        if found is not None and found[1]:
            path.unlink(missing_ok=True)
    finally:
        alone.unlink(missing_ok=True)


def _read(path: Path) -> Holder | None:
    try:
        with path.open("rb") as file:
            return Holder(**json.loads(file.read(LARGEST)))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


@cache
def _space() -> str:
    parts: list[str] = []
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _began(pid: int) -> str:
    with suppress(OSError, IndexError):
        # The name of a program, in brackets, may hold anything; the 20th field after it is the time of its start.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return "" if fields[0] in ENDED else fields[19]
    return ""
