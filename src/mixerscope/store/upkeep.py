"""A root at a glance, and what may be cleared away there. Reads headers and names only, whatever is being made."""

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mixerscope.errors import CorruptFile, UserError
from mixerscope.store.checkpoints import WORKSHOP, CheckpointFolder
from mixerscope.store.files import TEMPORARY, read_jsonl
from mixerscope.store.folder import WRITING, Seal
from mixerscope.store.locks import LAPSED_AFTER, Holder, abandoned, holders, touched

TABLE = "sweep.jsonl"
SUBMITTING = "submitting"
"""The lock of whoever is queueing jobs for a root."""
QUEUED = ".queued"
"""Ends the name of a file that says which jobs were queued for a work item."""
FORGOTTEN_AFTER = 14 * 24 * 3600.0
"""Seconds after which nobody waits for jobs that were queued."""


@dataclass(frozen=True)
class Begun:
    """A training that is not finished, by its checkpoint."""

    runs: tuple[str, ...]
    done: int
    steps: int
    seconds_left: float | None
    """Of training, at the rate so far; None where nothing says."""
    holder: Holder | None
    """Who is at it; None where nobody is, so it was interrupted."""


@dataclass(frozen=True)
class Overview:
    """What there is below a root."""

    finished: int
    making: dict[str, Holder]
    """Runs that somebody is making, by folder."""
    begun: list[Begun] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Cohorts whose last try failed, by label: why."""


def overview(root: Path) -> Overview:
    if not root.is_dir():
        raise UserError(f"{root} is not a folder")
    sealed = {path.name for path in root.iterdir() if (path / Seal.file).is_file()}
    making = {name: holder for name, holder in holders(root).items() if name not in (TABLE, SUBMITTING)}
    headers = [
        header
        for _, header in CheckpointFolder(root).headers()
        if header.get("replaces") or not set(header["runs"]) <= sealed
    ]
    begun = [found for header in headers if (found := _begun(header, making)) is not None]
    return Overview(len(sealed - set(making)), making, begun, _failed(root, sealed))


def _begun(header: dict[str, Any], making: dict[str, Holder]) -> Begun | None:
    """None of a checkpoint that makes no sense, which nobody will go on from."""
    try:
        point, steps = header["training"]["point"], int(header["steps"])
        done, spent = (steps, 0.0) if point is None else (int(point["done"]), float(point["train_seconds"]))
    except (KeyError, TypeError, ValueError):
        return None
    left = spent / done * (steps - done) if done > 0 else None
    holder = next((making[name] for name in header["runs"] if name in making), None)
    return Begun(tuple(header["runs"]), done, steps, left, holder)


def _failed(root: Path, sealed: set[str]) -> dict[str, str]:
    path = root / TABLE
    rows = read_jsonl(path) if path.is_file() else []
    folders = {name.rpartition("-")[2]: root / name for name in sealed}
    try:
        last = {run: row for row in rows if row["kind"] == "cohort" for run in row["runs"]}
        failed = [
            row
            for run, row in last.items()
            if row["ending"] == "failed" and not _made_since(folders.get(run), row.get("at"))
        ]
        return {str(row["label"]): str(row["reason"]) for row in failed}
    except (KeyError, TypeError) as error:
        raise CorruptFile(f"{path} is not a table of cohorts and jobs; move it away to start a new one") from error


def _made_since(folder: Path | None, failed: float | None) -> bool:
    """Whether somebody made a run, or what it lacked, after a try at its cohort failed; rows once did not say when."""
    if folder is None or failed is None:
        return folder is not None
    return any(touched(seal) > failed for seal in (folder / Seal.file, *folder.glob(f"*/{Seal.file}")))


def leftovers(root: Path) -> dict[Path, str]:
    """Files that may go, and why: halves and journals, checkpoints of finished runs, locks and items of the dead."""
    if not root.is_dir():
        raise UserError(f"{root} is not a folder")
    now = time.time()
    found: dict[Path, str] = dict.fromkeys(abandoned(root), "lock of a process that is gone")
    for path, header in CheckpointFolder(root).headers():
        if not header.get("replaces") and all((root / name / Seal.file).is_file() for name in header["runs"]):
            found[path] = "checkpoint of finished runs"
    if not holders(root):  # else one may be of a file that is being written, by a clock that differs from ours
        found |= {path: "half of a file" for path in _halves(root) if now - touched(path, now) > LAPSED_AFTER}
        found |= dict.fromkeys(_journals(root), "journal of a folder that is sealed")
        found |= _items(root, now)
    return found


def _items(root: Path, now: float) -> dict[Path, str]:
    """Work items that nobody is making, nor will: jobs may be queued for days. Logs go with them."""
    found: dict[Path, str] = {}
    items = root / WORKSHOP / "items"
    queued = {path.stem for path in items.glob(f"*{QUEUED}") if now - touched(path) < FORGOTTEN_AFTER}
    for path in (*items.glob("*.json"), *items.glob(f"*{QUEUED}")):
        if path.stem not in queued:
            found[path] = "work item that nobody is making"
    for path in (root / WORKSHOP / "logs").glob("*/*"):
        if path.parent.name not in queued:
            found[path] = "log of a job that is over"
    return found


def _halves(root: Path) -> Iterable[Path]:
    """Of run folders, their stages, and checkpoints: where we write."""
    for pattern in ("", "*/", "*/*/", f"{WORKSHOP}/*/"):
        yield from root.glob(f"{pattern}.*{TEMPORARY}*")


def _journals(root: Path) -> Iterable[Path]:
    """Which a kill between the seal and their end left."""
    for pattern in ("*/", "*/*/"):
        yield from (path for path in root.glob(f"{pattern}{WRITING}") if path.with_name(Seal.file).is_file())


def clear(root: Path, paths: Iterable[Path]) -> None:
    """Removes files that `leftovers` gave, and our own folders that are empty then."""
    for path in paths:
        path.unlink(missing_ok=True)
    for folder in (*(root / WORKSHOP / "logs").glob("*"), *(root / WORKSHOP).glob("*"), root / WORKSHOP):
        with suppress(OSError):  # not empty, or somebody else was quicker
            folder.rmdir()
