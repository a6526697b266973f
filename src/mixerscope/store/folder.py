"""Sealed folders: what is in them, when they count as finished, how their bytes are checked.

A folder is what its content says. The seal, written last, names what the folder holds (its kind and id) and the hash
of every file that we wrote. A folder without a seal is unfinished and is made anew; one whose name, seal and content
do not agree is refused. What we did not write is neither hashed nor deleted nor overwritten.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from mixerscope.artifacts import (
    Artifact,
    Curve,
    JsonArtifact,
    Provenance,
    Readable,
    Record,
    StageOutcome,
    StageRecord,
    Status,
    Timing,
)
from mixerscope.errors import CorruptFile, UserError
from mixerscope.spec.identity import id_of
from mixerscope.store.files import TEMPORARY, make_folder, read_bounded, read_known, sha256_of, write_bytes

A = TypeVar("A", bound=Artifact)
R = TypeVar("R", bound=Readable)


@dataclass(frozen=True)
class Seal(JsonArtifact):
    """What a folder holds."""

    file: ClassVar[str] = "seal.json"
    kind: Literal["training", "stage"]
    id: str
    files: dict[str, str]
    """Name to sha256."""
    format: Literal[2] = 2
    run: str = ""
    """Of a stage: the id of the training whose model it worked on."""


PASSING = ".passing"
"""Beside a file that is to be dropped once all stages are done; with the name of the file behind it."""
WRITING = ".writing.json"
"""While a folder is being made: the names it will hold, so that what a kill leaves behind is known to be ours."""


def own_name(path: str | Path) -> str:
    """The name that a folder itself has, whatever a path calls it."""
    return os.path.basename(_followed(str(path)))


def _followed(path: str) -> str:
    unnamed = os.path.basename(path) in ("", ".", "..")
    return os.path.realpath(path) if unnamed or os.path.islink(path) else path


def _version(known: os.stat_result) -> tuple[int, int, int]:
    return known.st_ino, known.st_mtime_ns, known.st_size


class SealedFolder:
    """A folder whose files are known by their hashes."""

    kind: ClassVar[Literal["training", "stage"]]
    record: ClassVar[type[Record] | type[StageRecord]]
    required: ClassVar[tuple[type[Artifact], ...]] = ()
    """Artifacts that every such folder has."""

    def __init__(self, path: str | Path) -> None:
        """`path` may be text, as of a `Path`: making one of ten thousand takes half of what reading a file does."""
        self._text = str(path)
        self._seal = f"{self._text}/{Seal.file}"
        self._sealed: tuple[tuple[int, int, int], Seal] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"

    @property
    def sealed(self) -> bool:
        return os.path.isfile(self._seal)

    @property
    def is_stage(self) -> bool:
        return os.path.isfile(f"{self._text}/{StageRecord.file}")

    def seal(self) -> Seal:
        """What the folder says it holds; refused where its name says otherwise."""
        path = self._seal
        try:
            # A seal is asked for with every file that is read, and is read again where it is another than before.
            if self._sealed is not None and self._sealed[0] == _version(os.stat(path)):
                return self._sealed[1]
            data, known = read_known(path)
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(f"{self.path} holds no finished run") from None
        except OSError as error:
            raise CorruptFile(f"{path} cannot be read: {error.strerror}") from error
        try:
            found = Seal.from_bytes(data)
        except CorruptFile as error:
            raise CorruptFile(f"{path}: {error}") from error
        if found.kind != self.kind:
            raise CorruptFile(f"{self.path} holds a {found.kind}, where a {self.kind} was expected")
        if self.named[1] != found.id:
            raise CorruptFile(f"{self.path} is misnamed: its seal says that it holds {found.id}; give it its name back")
        if found.run != self.run_id:
            raise CorruptFile(f"{self.path} belongs to the run {found.run or 'of no name'}, not to the one it lies in")
        self._sealed = _version(known), found
        return found

    @cached_property
    def path(self) -> Path:
        return Path(self._text)

    @cached_property
    def named(self) -> tuple[str, str]:
        """What the folder's own name says it holds: what it is, and its id."""
        what, _, id = os.path.basename(self._own).rpartition("-")
        return what, id

    @cached_property
    def _own(self) -> str:
        """Where the folder itself is, whatever a path calls it."""
        return _followed(self._text)

    @property
    def run_id(self) -> str:
        """Of a stage: the id of the run in whose folder it lies."""
        return ""

    def check_free(self, names: Iterable[str]) -> set[str]:
        """Refuses a folder that cannot be written to, or in which files of others have these names; gives ours."""
        make_folder(self.path)
        ours = self._left_behind()
        for name in (*names, Seal.file):
            path = self.path / name
            if (path.exists() or path.is_symlink()) and name not in ours:
                raise UserError(f"{path} is in the way and was not written by mixerscope; move it away")
        return ours

    def begin(self, names: Iterable[str]) -> None:
        """Makes the folder ready for files of these names. What an interrupted call left is removed, nothing else."""
        names = [*names, Seal.file]
        ours = self.check_free(names)
        write_bytes(self.path / WRITING, json.dumps(sorted({*names, *ours})).encode())
        (self.path / Seal.file).unlink(missing_ok=True)  # first, so that a kill leaves no seal on what is half gone
        for name in ours:
            (self.path / name).unlink(missing_ok=True)
        for part in self.path.glob(f".*{TEMPORARY}*"):  # halves of files that a kill left
            part.unlink(missing_ok=True)

    def write(self, *artifacts: Artifact) -> None:
        for artifact in artifacts:
            write_bytes(self.path / artifact.file, artifact.to_bytes())

    def close(self, identity: dict[str, Any], names: Iterable[str]) -> None:
        """Seals the folder with those of the named files that were written."""
        present = [name for name in names if (self.path / name).is_file()]
        files = {name: sha256_of((self.path / name).read_bytes()) for name in sorted(present)}
        write_bytes(self.path / Seal.file, Seal(self.kind, id_of(identity), files, run=self.run_id).to_bytes())
        (self.path / WRITING).unlink(missing_ok=True)

    def drop(self, name: str) -> None:
        """Takes one file out of a sealed folder; the seal first, so that a kill leaves nothing that is missed."""
        seal = self.seal()
        files = {other: sha for other, sha in seal.files.items() if other != name}
        write_bytes(self.path / Seal.file, replace(seal, files=files).to_bytes())
        (self.path / name).unlink(missing_ok=True)

    def discard(self) -> None:
        """Removes what we wrote, and the folder if nothing else is in it."""
        self.begin([])
        (self.path / WRITING).unlink(missing_ok=True)
        if not any(self.path.iterdir()):
            self.path.rmdir()

    def is_passing(self, artifact: type[Artifact]) -> bool:
        """Whether an artifact is marked as kept only until all stages are done."""
        return (self.path / f"{PASSING}-{artifact.file}").is_file()

    def mark_passing(self, artifact: type[Artifact]) -> None:
        """Notes that an artifact is kept only until all stages are done."""
        write_bytes(self.path / f"{PASSING}-{artifact.file}", b"")

    def settle(self, artifact: type[Artifact], keep: bool) -> None:
        """Drops an artifact that was marked as passing, or takes back the mark; one without a mark stays."""
        mark = self.path / f"{PASSING}-{artifact.file}"
        if mark.is_file():
            if not keep and self.holds(artifact):
                self.drop(artifact.file)
            if not self.holds(artifact):  # a kill may have come between the seal and the file
                (self.path / artifact.file).unlink(missing_ok=True)
            mark.unlink(missing_ok=True)

    def holds(self, artifact: type[Artifact]) -> bool:
        """Whether the folder was sealed with an artifact of this kind."""
        return self.sealed and artifact.file in self.seal().files

    def read(self, artifact: type[A]) -> A:
        """An artifact whose bytes are those that were sealed, or `CorruptFile`."""
        return self.read_sealed(artifact, self.seal())

    def read_sealed(self, artifact: type[R], seal: Seal) -> R:
        """The same for those who have read the seal, and read much."""
        data = self._bytes(artifact.file, seal)
        try:
            return artifact.from_bytes(data)
        except CorruptFile as error:
            raise CorruptFile(f"{self.path / artifact.file}: {error}") from error

    def verify(self) -> None:
        """Checks every sealed file, and that the id is that of what the folder says it holds."""
        seal = self.seal()
        for name in (*seal.files, *(artifact.file for artifact in self.required)):
            self._bytes(name, seal)
        record = self.read(self.record)
        if id_of(record.identity) != seal.id:
            raise CorruptFile(f"{self.path} is sealed as {seal.id}, but what it holds is {id_of(record.identity)}")

    def _bytes(self, name: str, seal: Seal) -> bytes:
        path = f"{self._text}/{name}"
        if name not in seal.files:
            raise CorruptFile(f"{path} is missing")
        try:
            data = read_bounded(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise CorruptFile(f"{path} is missing") from error
        except OSError as error:
            raise CorruptFile(f"{path} cannot be read: {error.strerror}") from error
        if sha256_of(data) != seal.files[name]:
            raise CorruptFile(f"{path} has changed since the run wrote it: its hash does not match {Seal.file}")
        return data

    def _left_behind(self) -> set[str]:
        """Names of files here that an earlier call wrote, finished or not."""
        names: set[str] = set()
        if self.sealed:
            try:
                names |= {*Seal.from_bytes((self.path / Seal.file).read_bytes()).files, Seal.file, Timing.file}
            except CorruptFile as error:
                raise CorruptFile(f"{self.path / Seal.file}: {error}; move the folder elsewhere") from error
        names |= self._journal() if (self.path / WRITING).exists() else self._ours_without_seal()
        return {name for name in names if Path(name).name == name and (self.path / name).is_file()}

    def _journal(self) -> set[str]:
        """What a call that was interrupted was about to write."""
        try:
            names = json.loads((self.path / WRITING).read_text())
        except (OSError, ValueError, RecursionError) as error:
            raise CorruptFile(f"{self.path / WRITING} is not a list of names; remove it") from error
        if not isinstance(names, list) or not all(isinstance(name, str) and "\0" not in name for name in names):
            raise CorruptFile(f"{self.path / WRITING} is not a list of names; remove it")
        return set(names)

    def _ours_without_seal(self) -> set[str]:
        """Of a folder whose seal someone removed: what we wrote, if it says itself that it is what its name says."""
        try:
            record = self.record.from_bytes((self.path / self.record.file).read_bytes())
        except (OSError, CorruptFile):
            return set()
        if id_of(record.identity) != self.named[1]:
            return set()
        return {path.name for path in self.path.iterdir() if path.suffix in (".json", ".safetensors")}


class StageFolder(SealedFolder):
    """`<run folder>/<stage>-<id>`."""

    kind = "stage"
    record = StageRecord

    required = (StageRecord, StageOutcome)

    @property
    def name(self) -> str:
        """Of the stage, as it stands in the folder's name."""
        return os.path.basename(self._text).rpartition("-")[0]

    @property
    def run_id(self) -> str:
        return own_name(os.path.dirname(self._own) or ".").rpartition("-")[2]

    def verify(self) -> None:
        super().verify()
        if self.read(StageRecord).name.replace("/", "-") != self.name:
            raise CorruptFile(f"{self.path} is misnamed: it holds the stage {self.read(StageRecord).name!r}")


class RunFolder(SealedFolder):
    """`<root>/<architecture>-<run id>`: a training, and below it a folder for each analysis of its model."""

    kind = "training"
    record = Record
    required = (Record, Status, Curve, Provenance)

    def recorded(self, seal: Seal) -> Record:
        """Which training it holds, for those who have read the seal; refused where its name says otherwise."""
        found = self.read_sealed(Record, seal)
        architecture = found.spec["model"]["architecture"]
        if architecture.replace("/", "-") != self.named[0]:
            raise CorruptFile(f"{self.path} is misnamed: it holds {architecture!r}")
        return found

    def stage(self, name: str, id: str) -> StageFolder:
        return StageFolder(self.path / f"{name.replace('/', '-')}-{id}")

    def stages(self) -> list[StageFolder]:
        """All finished analyses, by name."""
        try:
            with os.scandir(self.path) as entries:
                names = sorted(entry.name for entry in entries if entry.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise CorruptFile(f"{self.path} cannot be read: {error.strerror}") from error
        return [folder for name in names if (folder := StageFolder(f"{self._text}/{name}")).sealed]

    def verify(self) -> None:
        super().verify()
        for stage in self.stages():
            stage.verify()


def find_runs(root: Path, damaged: list[str] | None = None) -> list[RunFolder]:
    """The finished trainings in a folder, itself or one level below, by name; a copy of one counts once.

    One that is not what it seems is an error, or is left out and added to `damaged`.
    """
    if not root.is_dir():
        raise UserError(f"{root} is not a folder")
    with os.scandir(root) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir())
    folders = (RunFolder(path) for path in [root, *(root / name for name in names)])
    found = _each_once(folders, damaged)
    return found if found or damaged else _none(root)


def _each_once(folders: Iterable[RunFolder], damaged: list[str] | None = None) -> list[RunFolder]:
    found: dict[str, RunFolder] = {}
    for folder in folders:
        if not folder.sealed or folder.is_stage:
            continue
        try:
            found.setdefault(folder.seal().id, folder)
        except CorruptFile as error:
            if damaged is None:
                raise
            damaged.append(str(error))
    return list(found.values())


def _none(root: Path) -> list[RunFolder]:
    raise UserError(f"{root} holds no finished runs; `mixerscope run --out {root} ...` makes one")
