"""What travels of one run: its files without weights and times, sealed and deflated."""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

from mixerscope.artifacts import StageOutcome, StageRecord, Verdicts, Weights
from mixerscope.errors import CorruptFile, MixerscopeError
from mixerscope.packs.filter import filtered
from mixerscope.packs.index import FILTERED, PLAIN, check_sizes, member_name
from mixerscope.spec import parse
from mixerscope.store import RunFolder, Seal, SealedFolder, own_name, sha256_of

if TYPE_CHECKING:
    from mixerscope.artifacts.proof import Proof

JUDGE = "judge"
EFFECTS, PROOF = "effects.safetensors", "proof.safetensors"
"""Said here, because the classes of these artifacts need torch and unpacking does not."""
LEVEL = 9
TRAVELLED = "of the gap for travel"
"""Ends the note in a stage whose effects were rounded; rounding them again would be once too often."""


@dataclass(frozen=True)
class Member:
    """A file in a pack. Deflating takes a third of the time of packing, so it is done once."""

    size: int
    crc: int
    deflated: bytes

    @classmethod
    def of(cls, data: bytes) -> Self:
        how = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)  # without a header: a zip has its own
        return cls(len(data), zlib.crc32(data), how.compress(data) + how.flush())


@dataclass(frozen=True)
class Part:
    """What travels of one run."""

    id: str
    folder: str
    training: dict[str, Any]
    """In full, as JSON; what people call the run depends on what else is in the pack."""
    stages: tuple[str, ...]
    members: dict[str, Member]
    """By name in a pack."""
    unpacked: int
    """Bytes of its folder."""
    exact: bool
    """Whether its effects travel as they are: rounding would change a verdict, or there is none to compare with."""

    def to_line(self) -> str:
        """JSON in one line, by which one process hands it to another."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        members = {
            name: [one.size, one.crc, base64.b64encode(one.deflated).decode()] for name, one in self.members.items()
        }
        return json.dumps({**values, "members": members})

    @classmethod
    def from_line(cls, line: str) -> Self:
        said = json.loads(line)
        members = {
            name: Member(size, crc, base64.b64decode(data)) for name, (size, crc, data) in said["members"].items()
        }
        return cls(**{**said, "stages": tuple(said["stages"]), "members": members})


def part_of(run: RunFolder) -> Part:
    """Refuses a run whose files have changed since they were sealed."""
    run.verify()
    stages = {stage: _files(stage) for stage in run.stages()}
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
    training = {name: data for name, data in _files(run).items() if name != Weights.file}
    found |= _sealed(run, training)
    folder = own_name(run.path)
    files = dict(_file(folder, name, data) for name, data in found.items())
    check_sizes({name: len(data) for name, data in files.items()})
    return Part(
        id=run.seal().id,
        folder=folder,
        training=run.recorded(run.seal()).spec,
        stages=tuple(stage.path.name for stage in stages),
        members={name: Member.of(data) for name, data in files.items()},
        unpacked=sum(map(len, found.values())),
        exact=exact,
    )


def _file(folder: str, path: str, data: bytes) -> tuple[str, bytes]:
    """What a file of a run is called in a pack, and its bytes there."""
    if path.endswith(f"/{EFFECTS}"):
        with suppress(CorruptFile):  # a stage from outside may keep something else under this name
            return member_name(folder, path, FILTERED), filtered(data)
    return member_name(folder, path, PLAIN), data


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
