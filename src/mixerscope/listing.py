"""All finished runs below a folder at a glance, ten thousand of them within a second or two.

What is shown of a run is kept in the user's cache with the times at which something was last added to, replaced in or
removed from its folders, which is how this package writes; with another time it is read again. Whether every byte is
what it was is for `verify` to say. The folder itself is not written to.
"""

import hashlib
import json
import multiprocessing
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mixerscope.artifacts import StageRecord, Verdicts
from mixerscope.cache import cache_folder
from mixerscope.errors import MixerscopeError, UserError
from mixerscope.results import load_run
from mixerscope.store import RunFolder, Seal, StageFolder, write_bytes

FORMAT = 1
WORTH_KEEPING = 100
"""Runs: fewer are read in no time."""
MANY, AT_ONCE, MOST_PROCESSES = 1000, 250, 8
"""Runs that are worth a process more, runs that one is handed at a time, and how many processes there are at most."""
YOUNG = 2.0
"""Seconds: a folder that changed so lately may change again without its time telling."""
JUDGE = "judge"
"""The stage whose verdicts are shown."""
Seen = dict[str, int]
"""By name of each stage's folder, and of the run's own, which has none: when it last changed, in nanoseconds."""


@dataclass(frozen=True)
class Listed:
    """What a listing shows of a run."""

    id: str
    training: dict[str, Any]
    """In full, as JSON."""
    outcome: str
    mechanism: str
    """One for each slot where several were corrupted, or why there is none."""


def listed_runs(root: Path, damaged: list[str], processes: int = MOST_PROCESSES) -> dict[Path, Listed]:
    """The finished runs at any depth below a folder, by path; a copy of one counts once.

    What is wrong with folders that are not what they seem is added to `damaged`.
    """
    if not root.is_dir():
        raise UserError(f"{root} is not a folder; `ls runs --out DIR` looks elsewhere")
    kept, places = _kept(root), sorted(_sealed(str(root)))
    now = {place: kept[place] for place in places if place in kept and _seen(place, kept[place][0]) == kept[place][0]}
    new = _read_all([place for place in places if place not in now], processes)
    damaged += [entry for entry in new.values() if isinstance(entry, str)]
    now |= {place: entry for place, entry in new.items() if not isinstance(entry, str)}
    found: dict[str, tuple[Path, Listed]] = {}
    for place in places:
        if place in now:
            found.setdefault(now[place][1].id, (Path(place), now[place][1]))
    if new or len(now) < len(kept):
        _keep(root, now)
    if not found and not damaged:
        raise UserError(f"{root} holds no finished runs; `mixerscope run --out {root} ...` makes one")
    return dict(found.values())


def keep_listing(root: Path, runs: int) -> None:
    """Reads what was written since the last look, so that the next one need not; for those who just saw many runs."""
    if runs >= WORTH_KEEPING:
        with suppress(MixerscopeError):
            listed_runs(root, [], processes=1)  # others may have threads


def _sealed(folder: str) -> Iterator[str]:
    """Folders with a seal, at any depth; what is hidden, or lies in a run, is not looked into."""
    if os.path.isfile(f"{folder}/{Seal.file}"):
        if not os.path.isfile(f"{folder}/{StageRecord.file}"):
            yield folder
        return
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and entry.is_dir():
                yield from _sealed(entry.path)


def _read_all(places: list[str], processes: int) -> "dict[str, tuple[Seen, Listed] | str]":
    """By place: what there is, or what is wrong with it. Many are read by all cores: parsing takes the time."""
    processes = min(processes, os.cpu_count() or 1) if len(places) >= MANY else 1
    if processes == 1:
        return {place: _found(place) for place in places}
    # `ls` has no threads and no torch, so that a copy of its process is made at once and can do what it could.
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        return dict(zip(places, pool.map(_found, places, chunksize=AT_ONCE), strict=True))


def _found(place: str) -> tuple[Seen, Listed] | str:
    try:
        return _read(place)
    except MixerscopeError as error:
        return str(error)


def _read(place: str) -> tuple[Seen, Listed]:
    result = load_run(place)
    stages = [stage.path.name for stage in result.folder.stages()]
    seen = _seen(place, ["", *stages])  # before they are read: what changes meanwhile differs the next time
    verdicts = _only_verdicts(result.folder, stages) or result.find(Verdicts)
    mechanism = result.reason if verdicts is None else _mechanisms(verdicts)
    return seen, Listed(result.run_id, result.training, result.status.outcome, mechanism)


def _only_verdicts(folder: RunFolder, stages: list[str]) -> Verdicts | None:
    """The verdicts of a run that has every stage once, as most have: nothing is chosen then, and nothing else read."""
    named = {stage.rpartition("-")[0]: stage for stage in stages}
    if len(named) < len(stages) or JUDGE not in named:
        return None
    judge = StageFolder(folder.path / named[JUDGE])
    seal = judge.seal()
    needs = judge.read_sealed(StageRecord, seal).needs
    if Verdicts.file not in seal.files or any(named.get(need) != f"{need}-{id}" for need, id in needs.items()):
        return None
    return judge.read_sealed(Verdicts, seal)


def _seen(place: str, folders: Iterable[str]) -> Seen:
    found: Seen = {}
    for folder in folders:
        try:
            found[folder] = os.stat(f"{place}/{folder}").st_mtime_ns
        except OSError:
            found[folder] = 0
    return found


def _mechanisms(verdicts: Verdicts) -> str:
    if len(verdicts) == 1:
        return verdicts.verdicts[0].mechanism
    return ", ".join(f"{verdict.slot}: {verdict.mechanism}" for verdict in verdicts)


def _file(root: Path) -> Path:
    return cache_folder() / "listings" / f"{hashlib.sha256(bytes(root.resolve())).hexdigest()[:32]}.json"


def _kept(root: Path) -> dict[str, tuple[Seen, Listed]]:
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        kept = json.loads(_file(root).read_bytes())
        if kept["format"] == FORMAT:
            return {f"{root}/{name}": (seen, Listed(**listed)) for name, (seen, listed) in kept["runs"].items()}
    return {}


def _keep(root: Path, runs: dict[str, tuple[Seen, Listed]]) -> None:
    """Below a name that does not depend on how the root was typed. Where it cannot be written, nothing is lost."""
    before = (time.time() - YOUNG) * 1e9
    named = {
        place.removeprefix(f"{root}/"): (seen, vars(listed))
        for place, (seen, listed) in runs.items()
        if max(seen.values()) < before
    }
    if len(named) < WORTH_KEEPING:
        return
    path = _file(root)
    with suppress(OSError, MixerscopeError, ValueError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, json.dumps({"format": FORMAT, "runs": named}, separators=(",", ":")).encode())
