"""From a pack to run folders. A pack comes from elsewhere: nothing in it is believed before it was checked."""

import json
import os
import re
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mixerscope.errors import CorruptFile, UserError
from mixerscope.packs.filter import restored
from mixerscope.packs.index import FILTERED, Index, PackedRun, check_sizes, is_pack, place_of
from mixerscope.spec.identity import LENGTH
from mixerscope.store import RunFolder, Seal, SealedFolder, StageFolder, make_folder

BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, RuntimeError, OverflowError, OSError)
"""What reading a zip can raise; an unknown compression or a password is a `RuntimeError`."""


@dataclass(frozen=True)
class _Pack:
    """An open pack whose list of members was checked, but not yet their bytes."""

    path: Path
    zip: zipfile.ZipFile
    index: Index
    files: dict[str, dict[str, zipfile.ZipInfo]]
    """By run folder: its members, by their path in it."""


def finished_ids(path: Path) -> list[str]:
    """The ids of the runs in a pack, or those that a JSON file lists."""
    return list(finished_analyses(path))


def finished_analyses(path: Path) -> dict[str, frozenset[str] | None]:
    """By run id: the folders of its analyses in a pack; None for a run that a JSON file lists, which is done with."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
        if head.startswith(b"PK"):
            with _opened(path) as pack:
                return {run.id: frozenset(run.stages) for run in pack.index.runs}
        listed = json.loads(path.read_text(encoding="utf-8"))
    except UserError:
        raise
    except CorruptFile as error:
        raise UserError(str(error)) from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is neither a pack nor a JSON list of run ids") from error
    if not isinstance(listed, list) or not all(isinstance(run_id, str) and _is_id(run_id) for run_id in listed):
        raise UserError(f"{path} should hold a JSON list of run ids, each of {LENGTH} hexadecimal digits")
    return dict.fromkeys(listed)


def unpack(path: Path, root: Path) -> list[RunFolder]:
    """The runs of a pack as folders below `root`; those that are there already are left alone and not among them.

    Everything is unpacked beside its place and checked there. Nothing is put in place unless all of it is sound, and
    each run at one stroke.
    """
    with _opened(path) as pack:
        wanted = [run for run in pack.index.runs if not _is_there(run, root)]
        if not wanted:
            return []
        beside = _nearest(root)
        try:
            temporary = Path(tempfile.mkdtemp(dir=beside, prefix=".unpacking-"))
        except OSError as error:
            raise UserError(f"cannot write to {beside}: {error.strerror}") from error
        try:
            for run in wanted:
                _extract(pack, run, temporary / run.folder)
            return [_put(temporary / run.folder, root) for run in wanted]
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _is_id(text: str) -> bool:
    return re.fullmatch(rf"[0-9a-f]{{{LENGTH}}}", text) is not None


@contextmanager
def _opened(path: Path) -> Iterator[_Pack]:
    """A pack whose members are those that it lists, none of them too large or in a place where it should not be."""
    if not path.is_file():
        raise UserError(f"there is no pack {path}")
    try:
        with path.open("rb") as file:
            ours = is_pack(file.read(64))
        archive = zipfile.ZipFile(path) if ours else None
    except BROKEN as error:
        raise UserError(f"{path} is a damaged pack, or none: {error}") from error
    if archive is None:
        raise UserError(f"{path} is no pack; `mixerscope sweep --pack FILE` writes one")
    with archive:
        members = archive.infolist()
        files = _members(path, members)
        try:
            index = Index.from_bytes(_bytes(path, archive, members[0]))
        except CorruptFile as error:
            raise CorruptFile(f"{path} is damaged, or was packed by another version of mixerscope: {error}") from error
        _check_index(path, index, files)
        yield _Pack(path, archive, index, files)


def _members(path: Path, members: list[zipfile.ZipInfo]) -> dict[str, dict[str, zipfile.ZipInfo]]:
    """By run folder and path in it. Names that lead elsewhere, links, what is there twice or too large, are refused."""
    if not members or members[0].filename != Index.file:
        raise UserError(f"{path} is no pack: it does not begin with {Index.file}")
    files: dict[str, dict[str, zipfile.ZipInfo]] = defaultdict(dict)
    known: set[str] = set()
    try:
        check_sizes({member.filename: member.file_size for member in members})
        for member in members[1:]:
            folder, name = place_of(member.filename)
            if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):
                raise UserError(f"{member.filename!r} is no regular file")
            if (once := f"{folder}/{name}".casefold()) in known:
                raise UserError(f"{folder}/{name} is there twice")
            known.add(once)
            files[folder][name] = member
    except UserError as error:
        raise UserError(f"{path} is no pack of ours: {error}") from error
    return dict(files)


def _check_index(path: Path, index: Index, files: dict[str, dict[str, zipfile.ZipInfo]]) -> None:
    ids, folders = [run.id for run in index.runs], [run.folder for run in index.runs]
    sound = list(index.finished) == ids and len({folder.casefold() for folder in folders}) == len(folders)
    sound &= all(_is_id(run.id) and run.folder.rpartition("-")[2] == run.id for run in index.runs)
    if not sound or len(set(ids)) < len(ids) or set(folders) != set(files):
        raise CorruptFile(f"{path} is a damaged pack: the runs that it lists are not those that it holds")


def _bytes(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    try:
        data = archive.read(member)
    except BROKEN as error:
        raise CorruptFile(f"{path} is damaged: {member.filename!r} in it cannot be read") from error
    if len(data) != member.file_size:
        raise CorruptFile(f"{path} is damaged: {member.filename!r} in it ends too early")
    return data


def _is_there(run: PackedRun, root: Path) -> bool:
    """Whether a run needs no unpacking; what else lies in its place is refused."""
    place = root / run.folder
    if not place.exists() and not place.is_symlink():
        return False
    if not place.is_dir() or not RunFolder(place).sealed:
        raise UserError(f"{place} is in the way and holds no finished run; move it elsewhere")
    RunFolder(place).seal()  # which refuses what is not the run that the name says
    return True


def _nearest(root: Path) -> Path:
    """The folder itself, or the nearest one above it that exists: on the same disk as what will be in it."""
    found = next(path for path in (root, *root.absolute().parents) if path.exists() or path.is_symlink())
    if not found.is_dir():
        raise UserError(f"cannot unpack into {root}: {found} is not a folder")
    return found


def _extract(pack: _Pack, run: PackedRun, target: Path) -> None:
    """Writes the files of a run and checks that they are what it was sealed with, no more and no less."""
    files = pack.files[run.folder]
    for name in sorted(files, key=lambda name: (name.endswith(Seal.file), -name.count("/"))):  # the run's seal last
        data = _bytes(pack.path, pack.zip, files[name])
        if files[name].filename.startswith(f"{FILTERED}/"):
            try:
                data = restored(data)
            except CorruptFile as error:
                raise CorruptFile(f"{pack.path} is damaged: {name} of {run.folder}: {error}") from error
        try:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(data)
        except OSError as error:
            raise UserError(f"cannot unpack into {target.parent}: {error.strerror}") from error
    try:
        _check_run(run, RunFolder(target), set(files))
    except (CorruptFile, UserError) as error:
        said = str(error).replace(f"{target.parent}{os.sep}", "")
        raise CorruptFile(f"{pack.path} is damaged or was altered: {said}") from error


def _check_run(run: PackedRun, folder: RunFolder, files: set[str]) -> None:
    stages = {name.partition("/")[0] for name in files if "/" in name}
    if stages != set(run.stages):
        raise CorruptFile(f"{run.folder} does not hold the stages that are listed")
    sealed = _sealed_files(folder, "")
    for stage in stages:
        sealed |= _sealed_files(StageFolder(folder.path / stage), f"{stage}/")
    if sealed != files:
        name = min(sealed ^ files)
        raise CorruptFile(f"{run.folder}/{name} is {'missing' if name in sealed else 'not named in a seal'}")
    if folder.seal().id != run.id:
        raise CorruptFile(f"{run.folder} is listed as {run.id}")
    folder.verify()


def _sealed_files(folder: SealedFolder, prefix: str) -> set[str]:
    return {f"{prefix}{name}" for name in (*folder.seal().files, Seal.file)}


def _put(found: Path, root: Path) -> RunFolder:
    make_folder(root)
    try:
        os.rename(found, root / found.name)
    except OSError as error:
        raise UserError(f"cannot put {found.name} into {root}: {error.strerror}") from error
    return RunFolder(root / found.name)
