"""All finished runs below a folder at a glance, ten thousand of them within two seconds of one core.

What is shown of a run is kept in the user's cache with the times at which something was last added to, replaced in or
removed from its folders, which is how this package writes; with another time it is read again. Whether every byte is
what it was is for `verify` to say. The folder itself is not written to.
"""

import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic_core import from_json, to_json

from mixerscope.artifacts import Artifact, JsonArtifact, StageRecord, Status, Verdicts
from mixerscope.cache import cache_folder
from mixerscope.errors import MixerscopeError, UserError
from mixerscope.results import load_run
from mixerscope.spec.labels import Parts
from mixerscope.store import RunFolder, Seal, SealedFolder, StageFolder, write_bytes

A = TypeVar("A", bound=Artifact)

FORMAT = 4
WORTH_KEEPING = 100
"""Runs: fewer are read in no time."""
YOUNG = 2.0
"""Seconds: a folder that changed so lately may change again without its time telling."""
JUDGE = "judge"
"""The stage whose verdicts are shown."""
Seen = dict[str, int]
"""By name of each folder in a run's, finished or not, and of its own, which has none: when it last changed, in ns."""


@dataclass(frozen=True)
class Listed:
    """What a listing shows of a run."""

    id: str
    training: dict[str, Any]
    """In full, as JSON."""
    outcome: str
    mechanism: str
    """One for each slot where several were corrupted, or why there is none."""


def listed_runs(root: Path, damaged: list[str]) -> dict[str, Listed]:
    """The finished runs at any depth below a folder, by path; a copy of one counts once.

    What is wrong with folders that are not what they seem is added to `damaged`.
    """
    if not root.is_dir():
        raise UserError(f"{root} is not a folder; `ls runs --out DIR` looks elsewhere")
    began, kept = time.time(), _kept(root)
    now: dict[str, tuple[Seen, Listed]] = {}
    wrong: dict[str, str] = {}
    shared = _Shared()
    for place, folders in _sealed(str(root)):
        seen = _seen(place, folders)  # before it is read: what changes meanwhile differs the next time
        if place in kept and kept[place][0] == seen:
            now[place] = kept[place]
            continue
        try:
            now[place] = seen, _read(place, folders, shared)
        except MixerscopeError as error:
            wrong[place] = str(error)
    damaged += [wrong[place] for place in sorted(wrong)]
    found: dict[str, tuple[str, Listed]] = {}
    for place, (_, run) in sorted(now.items()):
        found.setdefault(run.id, (place, run))
    if now != kept:
        _keep(root, now, began)
    if not found and not damaged:
        raise UserError(f"{root} holds no finished runs; `mixerscope run --out {root} ...` makes one")
    return dict(found.values())


def keep_listing(root: Path, runs: int) -> None:
    """Reads what was written since the last look, so that the next one need not; for those who just saw many runs."""
    if runs >= WORTH_KEEPING:
        with suppress(MixerscopeError):
            listed_runs(root, [])


def _sealed(folder: str) -> Iterator[tuple[str, list[str]]]:
    """Folders with a seal, at any depth, and the folders in each. What is hidden, or in a run, is not looked into."""
    try:
        with os.scandir(folder) as entries:
            found = {entry.name: entry for entry in entries}
    except OSError:
        if os.path.isfile(f"{folder}/{Seal.file}"):
            yield folder, []  # whoever reads it says why it cannot be
        return
    folders = [name for name, entry in found.items() if not name.startswith(".") and entry.is_dir()]
    if Seal.file not in found or not found[Seal.file].is_file():
        for name in folders:
            yield from _sealed(found[name].path)
    elif StageRecord.file not in found:
        yield folder, folders


@dataclass(frozen=True)
class _Named:
    """What is shown of a verdict."""

    mechanism: str
    slot: str = "key"


@dataclass(frozen=True)
class _Verdicts(JsonArtifact):
    """Verdicts of which nothing else is made."""

    file: ClassVar[str] = Verdicts.file
    verdicts: tuple[_Named, ...]


class _Shared:
    """What is the same in many runs of a sweep, and is read, held and kept once."""

    def __init__(self) -> None:
        self.files: dict[str, Any] = {}
        self.parts = Parts()

    def read(self, artifact: type[A], folder: SealedFolder, seal: Seal) -> A:
        """The artifact; a file with the hash of one that was read says the same, unless `verify` says otherwise."""
        hash = f"{artifact.file} {seal.files.get(artifact.file)}"
        if hash not in self.files:
            self.files[hash] = folder.read_sealed(artifact, seal)
        return self.files[hash]


def _read(place: str, folders: Iterable[str], shared: _Shared) -> Listed:
    """What there is of a run in whose folder these lie: the few files that are shown, each read once."""
    folder = RunFolder(place)
    seal = folder.seal()
    record, status = folder.recorded(seal), shared.read(Status, folder, seal)
    verdicts, reason = _only_verdicts(place, folders, shared), ""
    if verdicts is None:
        result = load_run(place)
        verdicts = result.find(_Verdicts)
        reason = result.state_verdict.name if result.state_verdict else result.reason
    mechanism = reason if verdicts is None else _mechanisms(verdicts.verdicts)
    return Listed(seal.id, shared.parts.shared(record.spec), status.outcome, mechanism)


def _only_verdicts(place: str, folders: Iterable[str], shared: _Shared) -> _Verdicts | None:
    """The verdicts of a run that has every stage once, as most have: nothing is chosen then, and nothing else read."""
    stages = [name for name in folders if os.path.isfile(f"{place}/{name}/{Seal.file}")]
    named = {stage.rpartition("-")[0]: stage for stage in stages}
    if len(named) < len(stages) or JUDGE not in named:
        return None
    judge = StageFolder(f"{place}/{named[JUDGE]}")
    seal = judge.seal()
    record = shared.read(StageRecord, judge, seal)
    fits = all(named.get(need) == f"{need}-{id}" for need, id in record.needs.items())
    fits &= record.name == JUDGE and _Verdicts.file in seal.files
    return judge.read_sealed(_Verdicts, seal) if fits else None


def _seen(place: str, folders: Iterable[str]) -> Seen:
    return {folder: _changed(f"{place}/{folder}") for folder in ("", *folders)}


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _mechanisms(verdicts: Sequence[_Named]) -> str:
    if len(verdicts) == 1:
        return verdicts[0].mechanism
    return ", ".join(f"{verdict.slot}: {verdict.mechanism}" for verdict in verdicts)


def _file(root: Path) -> Path:
    return cache_folder() / "listings" / f"{hashlib.sha256(bytes(root.resolve())).hexdigest()[:32]}.json"


def _kept(root: Path) -> dict[str, tuple[Seen, Listed]]:
    with suppress(OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        kept = from_json(_file(root).read_bytes())
        if kept["format"] == FORMAT:
            return {f"{root}/{name}": _unfolded(entry, kept["parts"]) for name, entry in kept["runs"].items()}
    return {}


def _keep(root: Path, runs: dict[str, tuple[Seen, Listed]], began: float) -> None:
    """Below a name that does not depend on how the root was typed. Where it cannot be written, nothing is lost."""
    before = (began - YOUNG) * 1e9
    parts: dict[int, tuple[int, Any]] = {}
    named = {
        place.removeprefix(f"{root}/"): _folded(seen, listed, parts)
        for place, (seen, listed) in runs.items()
        if max(seen.values()) < before
    }
    if len(named) < WORTH_KEEPING:
        return
    path = _file(root)
    with suppress(OSError, MixerscopeError, ValueError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, to_json({"format": FORMAT, "parts": [part for _, part in parts.values()], "runs": named}))


def _folded(seen: Seen, listed: Listed, parts: dict[int, tuple[int, Any]]) -> tuple[Any, ...]:
    """An entry in which parts of the training that others share are numbers."""
    numbered = {
        name: parts.setdefault(id(value), (len(parts), value))[0]
        for name, value in listed.training.items()
        if isinstance(value, dict)
    }
    own = {name: value for name, value in listed.training.items() if name not in numbered}
    return seen, listed.id, numbered, own, listed.outcome, listed.mechanism


def _unfolded(entry: Sequence[Any], parts: Sequence[Any]) -> tuple[Seen, Listed]:
    seen, id, numbered, own, outcome, mechanism = entry
    training = {**{name: parts[number] for name, number in numbered.items()}, **own}
    return seen, Listed(id, training, outcome, mechanism)
