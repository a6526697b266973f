"""From run folders to a pack."""

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mixerscope.packs.index import Index, PackedRun, check_sizes, is_pack
from mixerscope.packs.parts import Member, Part, part_of
from mixerscope.results import RunResult
from mixerscope.spec.labels import labels
from mixerscope.store import RunFolder, claim, make_folder, write_bytes

MOMENT = (1980, 1, 1, 0, 0, 0)
"""Of all members: the same runs give the same bytes."""
Made = Callable[[RunFolder], Part]
"""Who makes what travels of a run."""


@dataclass(frozen=True)
class PackSize:
    """How large a pack is."""

    runs: int
    packed: int
    """Bytes of the file."""
    unpacked: int
    """Bytes of the run folders that come out of it."""
    exact: int
    """Runs whose effects travel as they are: rounding would change a verdict, or there is none to compare with."""


def claim_pack(path: Path) -> None:
    """Refuses a path where something lies that is no pack, or where none can be written."""
    claim(path, is_pack)
    make_folder(path.parent)


def write_pack(path: Path, results: Sequence[RunResult], made: Made = part_of) -> PackSize:
    """Writes the runs into one file, each once and by name, in place of the pack that was there; the old or the new
    one survives a kill. A run whose files have changed since they were sealed is refused."""
    claim_pack(path)
    parts = _each_once(results, made)
    data, size = _zipped(parts, _names(parts))
    write_bytes(path, data)
    return size


def write_packs(path: Path, results: Sequence[RunResult], most: int, made: Made = part_of) -> dict[Path, PackSize]:
    """The same for those who carry no file above `most` bytes: as many packs as that takes, `part.pack`, `part-2.pack`
    and so on. A run that is larger alone has one to itself."""
    parts = _each_once(results, made)
    names, found = _names(parts), {}
    sizes = [len(_zipped([part], names)[0]) for part in parts]
    for number, together in enumerate(_carried(parts, sizes, most), start=1):
        data, size = _zipped(together, names)
        own = path if number == 1 else path.with_stem(f"{path.stem}-{number}")
        claim_pack(own)
        write_bytes(own, data)
        found[own] = size
    return found


def _each_once(results: Sequence[RunResult], made: Made) -> list[Part]:
    """What travels of each run, by folder. Deflate and numpy let other threads run meanwhile."""
    folders = {result.run_id: result.folder for result in results}
    with ThreadPoolExecutor() as threads:
        return sorted(threads.map(made, folders.values()), key=lambda part: part.folder)


def _names(parts: Sequence[Part]) -> dict[str, str]:
    """Folder to what people call the run."""
    found = labels([part.training for part in parts])
    return {part.folder: name for part, name in zip(parts, found, strict=True)}


def _carried(parts: Sequence[Part], sizes: Sequence[int], most: int) -> list[list[Part]]:
    """In order, as few as hold all, by the size that each run has alone, which counts its line in the list of runs."""
    packs: list[list[Part]] = [[]]
    room = most
    for part, size in zip(parts, sizes, strict=True):
        if size > room and packs[-1]:
            packs.append([])
            room = most
        packs[-1].append(part)
        room -= size
    return packs


def _zipped(parts: Sequence[Part], names: Mapping[str, str]) -> tuple[bytes, PackSize]:
    listed = tuple(PackedRun(part.id, part.folder, names[part.folder], part.stages) for part in parts)
    index = Index(1, tuple(run.id for run in listed), listed).to_bytes()
    members = {name: member for part in parts for name, member in part.members.items()}
    check_sizes({Index.file: len(index), **{name: member.size for name, member in members.items()}})
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as pack:
        pack.writestr(_info(Index.file), index, zipfile.ZIP_STORED)
        for name, member in members.items():
            _add(pack, written, name, member)
    unpacked = sum(part.unpacked for part in parts)
    return written.getvalue(), PackSize(
        len(parts), len(written.getvalue()), unpacked, sum(part.exact for part in parts)
    )


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, MOMENT)
    info.create_system, info.external_attr = 3, 0o644 << 16  # the same on every system
    return info


def _add(pack: zipfile.ZipFile, written: io.BytesIO, name: str, member: Member) -> None:
    """What `pack.writestr` does, without deflating again what is deflated."""
    info = _info(name)
    info.compress_type, info.CRC = zipfile.ZIP_DEFLATED, member.crc
    info.file_size, info.compress_size = member.size, len(member.deflated)
    info.header_offset = written.tell()
    written.write(info.FileHeader(zip64=False) + member.deflated)
    pack.start_dir = written.tell()  # where the list of members will begin
    pack.filelist.append(info)
    pack.NameToInfo[name] = info
