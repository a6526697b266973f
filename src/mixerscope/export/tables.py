"""The tables of finished runs, run by run. Every file is read once and checked against its hash; no torch for ours."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mixerscope.artifacts import (
    Artifact,
    Curve,
    Emergence,
    Erasures,
    Interchanges,
    Lengths,
    Probes,
    Scores,
    SelfTest,
    Status,
    Verdicts,
    tables_of,
)
from mixerscope.artifacts.alignments import Alignments
from mixerscope.artifacts.effect_columns import EffectColumns
from mixerscope.artifacts.patterns import Patterns
from mixerscope.artifacts.proof import Proof
from mixerscope.artifacts.recoveries import Recoveries
from mixerscope.artifacts.state_verdict import StateVerdict
from mixerscope.errors import CorruptFile, MixerscopeError, UnknownName
from mixerscope.export.frame import Kind, kind_of
from mixerscope.registry import OURS, STAGES
from mixerscope.results import RunResult, StageResult
from mixerscope.spec import canonical_json
from mixerscope.spec.labels import Parts
from mixerscope.store import Seal

TRAIN = "train"
"""Stands where a stage stands, for what training left."""


class _ProofRows(Proof):
    """Rows need no torch."""

    @classmethod
    def from_bytes(cls, data: bytes) -> "Proof":
        return Proof.in_numpy(data)


READERS: dict[str, type[Any]] = {
    cls.file: cls
    for cls in (
        *(EffectColumns, Scores, SelfTest, Verdicts, Emergence, Lengths, Probes, Erasures, Interchanges, Recoveries),
        *(StateVerdict, Alignments, Patterns, _ProofRows),
    )
}
"""By file name: who reads the tables of our stages."""


@dataclass(frozen=True)
class Found:
    """A table of a run: rows, or columns where there are many."""

    table: str
    stage: str
    stage_id: str
    settings: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    columns: EffectColumns | None = None


@dataclass(frozen=True)
class Listed:
    """A run of which all is known but its tables."""

    result: RunResult
    seal: Seal
    folder: str
    settings: str
    """Of the training, as JSON."""
    status: Status
    stages: tuple[StageResult, ...]


class Elsewhere:
    """Stages from elsewhere: which of them can be read here, and why the others cannot."""

    def __init__(self) -> None:
        self.ours = {entry.name for entry in STAGES.entries() if entry.origin == OURS}
        self.unknown: dict[str, str] = {}
        """By name: why its tables are missing."""

    def artifacts(self, stage: str) -> Iterable[type[Artifact]]:
        """The kinds of artifacts of a stage whose class is at hand."""
        if stage in self.unknown:
            return ()
        try:
            found = STAGES.load(stage).artifacts
        except UnknownName:
            self.unknown[stage] = f"tables of the stage {stage}: its class is not at hand; --use file.py:Class names it"
            return ()
        except Exception as error:  # noqa: BLE001 - a package from elsewhere may raise anything when it is imported
            self.unknown[stage] = f"tables of the stage {stage}: {type(error).__name__}: {error}"
            return ()
        return [cls for cls in found if callable(getattr(cls, "rows", None))]


def listed(result: RunResult, root: Path, every: bool, parts: Parts) -> Listed:
    """What says what a run is; with `every`, all analyses of a stage and not one for each."""
    folder = result.folder
    seal = folder.seal()
    record = folder.recorded(seal)
    training = parts.shared(record.spec)
    result.__dict__["record"] = replace(record, spec=training)  # as it would be read by whoever asks
    stages = [StageResult.of(stage) for stage in folder.stages()] if every else result.stages.values()
    where = folder.path.relative_to(root).as_posix() if folder.path != root else "."
    status = folder.read_sealed(Status, seal)
    return Listed(result, seal, where, parts.canonical_json(training), status, tuple(stages))


def tables(run: Listed, elsewhere: Elsewhere, wanted: Callable[[str], bool]) -> Iterator[Found]:
    """All tables of a run, or those whose names are wanted."""
    folder = run.result.folder
    reason = next((s.outcome.reason for s in run.stages if s.outcome.state == "impossible"), "")
    yield Found("run", TRAIN, "", "{}", [{"reason": reason}])
    if wanted("curve"):
        yield Found("curve", TRAIN, "", "{}", list(folder.read_sealed(Curve, run.seal).rows()))
    for stage in run.stages:
        about = (stage.name, stage.id, canonical_json(stage.record.identity.get("settings", {})))
        outcome = stage.outcome
        yield Found(
            "stage", *about, [{"state": outcome.state, "reason": outcome.reason, "notes": "; ".join(outcome.notes)}]
        )
        for table, found in stage_tables(stage, elsewhere, wanted):
            if isinstance(found, EffectColumns):
                yield Found(table, *about, columns=found)
            else:
                yield Found(table, *about, found)


def stage_tables(
    stage: StageResult, elsewhere: Elsewhere, wanted: Callable[[str], bool]
) -> Iterator[tuple[str, list[dict[str, Any]] | EffectColumns]]:
    files = stage.seal.files
    if stage.name in elsewhere.ours:
        readers = [READERS[name] for name in files if name in READERS]
    else:
        # One of ours in a stage from elsewhere is read as ours is.
        readers = [
            READERS.get(c.file, c) if _is_ours(c) else c for c in elsewhere.artifacts(stage.name) if c.file in files
        ]
    for reader in readers:
        if reader is EffectColumns:
            if wanted("effects"):
                yield "effects", stage.folder.read_sealed(EffectColumns, stage.seal)
        else:
            yield from _rows(stage, reader, wanted)


def _is_ours(cls: type) -> bool:
    return cls.__module__.startswith(f"{OURS}.")


def _rows(
    stage: StageResult, reader: type[Any], wanted: Callable[[str], bool]
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    try:
        for name, rows in tables_of(stage.folder.read_sealed(reader, stage.seal)).items():
            if wanted(name):
                yield name, list(rows) if _is_ours(reader) else [{str(c): v for c, v in row.items()} for row in rows]
    except MixerscopeError:
        raise
    except Exception as error:
        # Code from elsewhere, or a file that passed for a table until somebody looked at its rows.
        what = f"{type(error).__name__}: {error}"
        raise CorruptFile(f"{stage.folder.path / reader.file} gives no rows: {what}") from error


def columns_elsewhere(
    runs: Iterable[Listed], elsewhere: Elsewhere, wanted: Callable[[str], bool]
) -> dict[str, dict[str, Kind]]:
    """The tables of stages from elsewhere, and the columns of each with the type that holds all of its values."""
    kinds: dict[str, dict[str, Kind]] = {}
    for run in runs:
        for stage in run.stages:
            if stage.name in elsewhere.ours:
                continue
            try:
                for table, found in stage_tables(stage, elsewhere, wanted):
                    if not isinstance(found, EffectColumns):
                        _widen(kinds.setdefault(table, {}), found)
            except CorruptFile:
                break  # said when its turn comes
    return kinds


def _widen(columns: dict[str, Kind], rows: list[dict[str, Any]]) -> None:
    samples: Mapping[Kind, Any] = {"text": "", "integer": 0, "number": 0.0, "boolean": False}
    for name in dict.fromkeys(name for row in rows for name in row):
        before = [samples[columns[name]]] if name in columns else []
        kind = kind_of([*before, *(row.get(name) for row in rows)])
        if kind is not None:
            columns[name] = kind
