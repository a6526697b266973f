"""From run folders to a pack."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mixerscope.artifacts import StageOutcome, StageRecord, Verdicts, Weights
from mixerscope.errors import CorruptFile, MixerscopeError
from mixerscope.packs.filter import filtered
from mixerscope.packs.index import FILTERED, PLAIN, Index, PackedRun, check_sizes, is_pack, member_name
from mixerscope.results import RunResult
from mixerscope.spec import parse
from mixerscope.spec.labels import labels
from mixerscope.store import Seal, SealedFolder, claim, make_folder, own_name, sha256_of, write_bytes

if TYPE_CHECKING:
    from mixerscope.artifacts.proof import Proof

JUDGE = "judge"
EFFECTS, PROOF = "effects.safetensors", "proof.safetensors"
"""Said here, because the classes of these artifacts need torch and unpacking does not."""
LEVEL = 9
MOMENT = (1980, 1, 1, 0, 0, 0)
"""Of all members: the same runs give the same bytes."""
TRAVELLED = "of the gap for travel"
"""Ends the note in a stage whose effects were rounded; rounding them again would be once too often."""


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


@dataclass(frozen=True)
class _Run:
    """What travels of one run."""

    result: RunResult
    stages: tuple[str, ...]
    members: dict[str, bytes]
    """By name in a pack."""
    unpacked: int
    """Bytes of its folder."""
    exact: bool

    @property
    def folder(self) -> str:
        return own_name(self.result.folder.path)


def claim_pack(path: Path) -> None:
    """Refuses a path where something lies that is no pack, or where none can be written."""
    claim(path, is_pack)
    make_folder(path.parent)


def write_pack(path: Path, results: Sequence[RunResult]) -> PackSize:
    """Writes the runs into one file, each once and by name, in place of the pack that was there; the old or the new
    one survives a kill. A run whose files have changed since they were sealed is refused."""
    claim_pack(path)
    runs = _each_once(results)
    data, size = _zipped(runs, _names(runs))
    write_bytes(path, data)
    return size


def write_packs(path: Path, results: Sequence[RunResult], most: int) -> dict[Path, PackSize]:
    """The same for those who carry no file above `most` bytes: as many packs as that takes, `part.pack`, `part-2.pack`
    and so on. A run that is larger alone has one to itself."""
    runs = _each_once(results)
    names, found = _names(runs), {}
    with ThreadPoolExecutor() as threads:
        sizes = list(threads.map(lambda run: len(_zipped([run], names)[0]), runs))
        packs = list(threads.map(lambda part: _zipped(part, names), _parts(runs, sizes, most)))
    for number, (data, size) in enumerate(packs, start=1):
        own = path if number == 1 else path.with_stem(f"{path.stem}-{number}")
        claim_pack(own)
        write_bytes(own, data)
        found[own] = size
    return found


def _each_once(results: Sequence[RunResult]) -> list[_Run]:
    """What travels of each run, by folder. Most of the work is deflate's and numpy's, which let other threads run; on
    a GPU that is lent it is done while nothing trains."""
    each_once = {result.run_id: result for result in results}
    with ThreadPoolExecutor() as threads:
        return sorted(threads.map(_travelling, each_once.values()), key=lambda run: run.folder)


def _names(runs: Sequence[_Run]) -> dict[str, str]:
    """Folder to what people call the run."""
    found = labels([run.result.training for run in runs])
    return {run.folder: name for run, name in zip(runs, found, strict=True)}


def _parts(runs: Sequence[_Run], sizes: Sequence[int], most: int) -> list[list[_Run]]:
    """In order, as few as hold all, by the size that each run has alone, which counts its line in the list of runs."""
    parts: list[list[_Run]] = [[]]
    room = most
    for run, size in zip(runs, sizes, strict=True):
        if size > room and parts[-1]:
            parts.append([])
            room = most
        parts[-1].append(run)
        room -= size
    return parts


def _zipped(runs: Sequence[_Run], names: Mapping[str, str]) -> tuple[bytes, PackSize]:
    listed = tuple(PackedRun(run.result.run_id, run.folder, names[run.folder], run.stages) for run in runs)
    index = Index(1, tuple(run.id for run in listed), listed).to_bytes()
    members = {name: data for run in runs for name, data in run.members.items()}
    check_sizes({Index.file: len(index), **{name: len(data) for name, data in members.items()}})
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as pack:
        _add(pack, Index.file, index, zipfile.ZIP_STORED)
        for name, data in members.items():
            _add(pack, name, data, zipfile.ZIP_DEFLATED)
    unpacked = sum(run.unpacked for run in runs)
    return written.getvalue(), PackSize(len(runs), len(written.getvalue()), unpacked, sum(run.exact for run in runs))


def _member(folder: str, path: str, data: bytes) -> tuple[str, bytes]:
    """What a file of a run is called in a pack, and its bytes there."""
    if path.endswith(f"/{EFFECTS}"):
        with suppress(CorruptFile):  # a stage from outside may keep something else under this name
            return member_name(folder, path, FILTERED), filtered(data)
    return member_name(folder, path, PLAIN), data


def _add(pack: zipfile.ZipFile, name: str, data: bytes, how: int) -> None:
    member = zipfile.ZipInfo(name, MOMENT)
    member.create_system, member.external_attr = 3, 0o644 << 16  # the same on every system
    pack.writestr(member, data, how, LEVEL)


def _travelling(result: RunResult) -> _Run:
    """The files of a run without weights and times, sealed as they travel."""
    result.folder.verify()
    stages = {stage: _files(stage) for stage in result.folder.stages()}
    exact = False
    for stage, files in stages.items():
        if EFFECTS in files:
            judges = [judge for judge in stages.values() if _is_judge_of(stage.seal().id, judge)]
            proofs = {folder.seal().id: files[PROOF] for folder, files in stages.items() if PROOF in files}
            exact |= not _reduce(files, judges, proofs)
    found = {
        f"{stage.path.name}/{name}": data
        for stage, files in stages.items()
        for name, data in _sealed(stage, files).items()
    }
    training = {name: data for name, data in _files(result.folder).items() if name != Weights.file}
    found |= _sealed(result.folder, training)
    folder = own_name(result.folder.path)
    members = dict(_member(folder, name, data) for name, data in found.items())
    unpacked = sum(map(len, found.values()))
    return _Run(result, tuple(stage.path.name for stage in stages), members, unpacked, exact)


def _files(folder: SealedFolder) -> dict[str, bytes]:
    return {name: (folder.path / name).read_bytes() for name in sorted(folder.seal().files)}


def _sealed(folder: SealedFolder, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files with a seal of their own."""
    seal = replace(folder.seal(), files={name: sha256_of(data) for name, data in files.items()})
    return {**files, Seal.file: seal.to_bytes()}


def _is_judge_of(stage_id: str, files: Mapping[str, bytes]) -> bool:
    """Whether these are the files of a judge who has read the effects of this stage."""
    record = StageRecord.from_bytes(files[StageRecord.file])
    return record.name == JUDGE and stage_id in record.needs.values() and Verdicts.file in files


def _reduce(files: dict[str, bytes], judges: Sequence[dict[str, bytes]], proofs: Mapping[str, bytes]) -> bool:
    """Reduces the effects among the files of a stage and judges them again, in place; whether that changes no verdict.
    If it does, all stays as it is."""
    from mixerscope.analysis import Rules, judge
    from mixerscope.artifacts.effects import EffectTable
    from mixerscope.packs.rounding import Judged, reduced

    outcome = StageOutcome.from_bytes(files[StageOutcome.file])
    if any(note.endswith(TRAVELLED) for note in outcome.notes):
        return True
    try:
        judged = [
            Judged(parse(Rules, _rules(each)), Verdicts.from_bytes(each[Verdicts.file]), _proof(each, proofs))
            for each in judges
        ]
        table, fineness = reduced(whole := EffectTable.from_bytes(files[EFFECTS]), judged)
    except MixerscopeError:  # what cannot be judged again here cannot be shown to stay as it is
        return False
    if fineness is None:
        return False
    notes = (*outcome.notes, f"effects rounded to 1/{fineness} {TRAVELLED}")
    if any(cell.head >= 0 for cell in whole.cells):
        notes = (*notes, "of single heads, means and intervals have travelled, and no single documents")
    files[EFFECTS] = table.to_bytes()
    files[StageOutcome.file] = replace(outcome, notes=notes).to_bytes()
    for each, known in zip(judges, judged, strict=True):
        each[Verdicts.file] = judge(table, known.rules, known.proof).to_bytes()
    return True


def _proof(files: Mapping[str, bytes], proofs: Mapping[str, bytes]) -> "Proof | None":
    """The proof that a judge has read."""
    from mixerscope.artifacts.proof import Proof

    known = [proofs[id] for id in StageRecord.from_bytes(files[StageRecord.file]).needs.values() if id in proofs]
    return Proof.from_bytes(known[0]) if known else None


def _rules(files: Mapping[str, bytes]) -> object:
    return StageRecord.from_bytes(files[StageRecord.file]).settings.get("rules", {})
