"""One frame for everything: every row of every table of every run, behind columns that say whose it is."""

import gc
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

from mixerscope.artifacts.effect_columns import Coded, EffectColumns
from mixerscope.errors import CannotWrite, CorruptFile, UnknownName, UserError, remark
from mixerscope.export.frame import KEY, RENAMED, RUN, TABLES, VERSION, Kind, declared, fitted, kind_of, names_of
from mixerscope.export.tables import Elsewhere, Found, Listed, columns_elsewhere, listed, tables
from mixerscope.packs import unpack
from mixerscope.results import RunResult
from mixerscope.spec.labels import IMPLIED, Parts, flattened, labels, varying
from mixerscope.store import claim, find_runs, replacing

COLLECTED = "collected.parquet"
ROW_GROUP = 2**16
"""Rows that are written together, and are in memory until then: a million cells take 310 MiB then."""
ROWS = 50_000
"""Of a frame that is handed on: memory is that of a few of these."""
TYPES: dict[Kind, Any] = {"text": pl.String, "integer": pl.Int64, "number": pl.Float64, "boolean": pl.Boolean}
FITTING: dict[Kind, set[type]] = {
    "text": {str, NoneType},
    "integer": {int, NoneType},
    "number": {float, int, NoneType},
    "boolean": {bool, NoneType},
}
"""Types of values that are as their column holds them."""
Progress = Callable[[int, int], None]


@dataclass
class Collected:
    """What became of a call."""

    path: Path
    runs: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    """By table."""
    left_out: list[str] = field(default_factory=list)
    """What is wrong with runs that were left out, and stages whose code is not at hand."""


def collect(
    root: str | Path, tables: Iterable[str] | None = None, *, every: bool = False, strict: bool = False
) -> pl.DataFrame:
    """All rows of all tables of the runs in a folder, or in a pack, as one polars frame; or some tables, by name.

    A damaged run is named on stderr and left out; with `strict` it is an error. Of several analyses by one stage the
    one that `load_run` takes is in it, or with `every` all of them.
    """
    with _folder(Path(root)) as folder, _uncollected():
        frame = _Frame(folder, tables, every)
        parts = list(frame.parts(lambda done, total: None))
    _say(frame.left_out, strict)
    return pl.concat(parts, rechunk=False)


def write_collected(
    root: str | Path,
    out: str | Path | None = None,
    tables: Iterable[str] | None = None,
    *,
    every: bool = False,
    strict: bool = False,
    progress: Progress = lambda done, total: None,
) -> Collected:
    """Writes the frame of `collect` to a Parquet file, run by run, so that memory does not grow with the runs.

    It is `collected.parquet` in the folder unless named. A file there that is not such a frame is left alone.
    """
    root = Path(root)
    path = Path(out) if out is not None else (root.parent if root.is_file() else root) / COLLECTED
    if path.is_dir() or not path.parent.is_dir():
        raise UserError(f"cannot write the frame to {path}: it should be a file in a folder that exists")
    claim(path, lambda head: head.startswith(b"PAR1") and _is_ours(path))
    with _folder(root) as folder, _uncollected():
        frame = _Frame(folder, tables, every)
        try:
            with replacing(path) as temporary:
                _sink(frame, progress, temporary)
                _say(frame.left_out, strict)
        except CannotWrite as error:
            raise UserError(str(error)) from error
    return Collected(path, frame.done, dict(frame.counts), frame.left_out)


def _is_ours(path: Path) -> bool:
    try:
        return KEY in pl.read_parquet_metadata(path)
    except (pl.exceptions.PolarsError, OSError):
        return False


def _say(left_out: Sequence[str], strict: bool) -> None:
    if strict and left_out:
        raise CorruptFile("; ".join(left_out))
    for complaint in left_out:
        remark(f"left out: {complaint}")


@contextmanager
def _folder(root: Path) -> Iterator[Path]:
    """A folder of runs: the one that was named, or what was in a pack."""
    if not root.is_file():
        yield root
        return
    with tempfile.TemporaryDirectory(prefix="mixerscope-collect-") as unpacked:
        unpack(root, Path(unpacked))
        yield Path(unpacked)


@contextmanager
def _uncollected() -> Iterator[None]:
    """While many rows are made, none of which goes in circles: looking for those that do takes a tenth of the time."""
    looked = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looked:
            gc.enable()


def _sink(frame: "_Frame", progress: Progress, path: Path) -> None:
    """Writes the parts of a frame as they are made."""
    broken: list[BaseException] = []

    def source(*_: Any) -> Iterator[pl.DataFrame]:
        try:
            yield from frame.parts(progress)
        except BaseException as error:
            broken.append(error)  # polars would wrap it in one of its own
            raise

    try:
        lazy = register_io_source(source, schema=frame.schema)
        lazy.sink_parquet(
            path, compression="zstd", compression_level=3, row_group_size=ROW_GROUP, metadata={KEY: str(VERSION)}
        )
    except (pl.exceptions.PolarsError, OSError) as error:
        if broken:
            raise broken[0] from None
        raise CannotWrite(path, error if isinstance(error, OSError) else OSError(str(error))) from error


class _Frame:
    """A frame in the making: its columns are known, its rows are not read yet."""

    def __init__(self, root: Path, names: Iterable[str] | None, every: bool) -> None:
        self.left_out: list[str] = []
        self.counts: dict[str, int] = {}
        self.done = 0
        self.elsewhere = Elsewhere()
        self.runs = self._listed(root, every)
        if not self.runs:
            raise CorruptFile("; ".join(self.left_out))
        foreign = columns_elsewhere(self.runs, self.elsewhere, lambda table: True)
        self.names = None if names is None else _known(names, foreign)
        self.columns, self.called = _columns(foreign)
        trainings = [run.result.training for run in self.runs]
        self.models = labels(trainings, always=("model.width",))
        self.facts = flattened(trainings)
        self.differs = varying(trainings)
        self.settings = _settings(self.differs)
        self.schema = pl.Schema(
            {name: TYPES[kind] for name, (kind, _) in RUN.items()}
            | {name: TYPES[kind] for name, kind in self.settings.items()}
            | {name: TYPES[kind] for name, kind in self.columns.items()}
        )

    def _listed(self, root: Path, every: bool) -> list[Listed]:
        found, parts = list[Listed](), Parts()
        for folder in find_runs(root, self.left_out):
            try:
                found.append(listed(RunResult(folder), root, every, parts))
            except (CorruptFile, UserError) as error:
                self.left_out.append(str(error))
        return found

    def wanted(self, table: str) -> bool:
        return self.names is None or table in self.names

    def parts(self, progress: Progress) -> Iterator[pl.DataFrame]:
        """The rows, some runs at a time. A run that turns out to be damaged has none of its rows here."""
        batch: list[tuple[int, Found]] = []
        waiting = 0
        for number, run in enumerate(self.runs):
            try:
                found = [one for one in tables(run, self.elsewhere, self.wanted) if self.wanted(one.table)]
            except CorruptFile as error:
                self.left_out.append(str(error))
                continue
            self.done += 1
            batch += [(number, one) for one in found]
            waiting += sum(one.columns.size if one.columns else len(one.rows) for one in found)
            if waiting >= ROWS:
                yield self._part(batch)
                batch, waiting = [], 0
                progress(number + 1, len(self.runs))
        self.left_out += self.elsewhere.unknown.values()
        if not self.done:
            raise CorruptFile("; ".join(self.left_out))
        yield self._part(batch)
        progress(len(self.runs), len(self.runs))

    def _part(self, batch: Sequence[tuple[int, Found]]) -> pl.DataFrame:
        """Rows of some tables of some runs as one frame."""
        whose = self._whose(batch)
        by_table: dict[tuple[str, bool], list[int]] = {}
        for place, (_, found) in enumerate(batch):
            by_table.setdefault((found.table, found.columns is not None), []).append(place)
        frames: list[pl.DataFrame] = []
        for (table, coded), places in by_table.items():
            found = [batch[place][1] for place in places]
            own = _joined([one.columns for one in found if one.columns]) if coded else self._of_rows(table, found)
            sizes = [one.columns.size if one.columns else len(one.rows) for one in found]
            self.counts[table] = self.counts.get(table, 0) + sum(sizes)
            front = whose[np.repeat(np.array(places, dtype=np.int64), sizes)]
            frames.append(pl.concat([front, own], how="horizontal"))
        if not frames:
            return pl.DataFrame(schema=self.schema)
        empty = pl.DataFrame(schema=self.schema)
        return pl.concat([empty, *frames], how="diagonal", rechunk=False).select(self.schema.names())

    def _whose(self, batch: Sequence[tuple[int, Found]]) -> pl.DataFrame:
        """A row for each table of the batch: the columns that say whose it is."""
        rows: list[dict[str, Any]] = []
        own: dict[int, dict[str, Any]] = {}
        for number, found in batch:
            if number not in own:
                own[number] = self._run(number)
            about = {"stage": found.stage, "stage_id": found.stage_id, "stage_settings": found.settings}
            rows.append({**own[number], **about, "table": found.table})
        columns = {name: self.schema[name] for name in (*RUN, *self.settings)}
        return pl.DataFrame(rows, schema=columns)

    def _run(self, number: int) -> dict[str, Any]:
        """The columns that all rows of a run have."""
        run, settings = self.runs[number], self.differs[number]
        status, flat = run.status, self.facts[number]
        return {
            **{path: fitted(settings.get(path), kind) for path, kind in self.settings.items()},
            **{path: flat.get(path) for path in ("model.width", "model.layers", "train.lr", "data_seed", "seed")},
            "run_id": run.seal.id,
            "folder": run.folder,
            "model": self.models[number],
            "settings": run.settings,
            "architecture": flat["model.architecture"],
            "task": flat["task.name"],
            "outcome": status.outcome,
            "steps": status.steps,
            "parameters": status.parameters,
            "state_size": status.state_size,
        }

    def _of_rows(self, table: str, found: Sequence[Found]) -> pl.DataFrame:
        rows = [row for one in found for row in one.rows]
        series: list[pl.Series] = []
        for column, values in _turned(rows).items():
            name = self.called.get((table, column), column)
            if name in self.columns:  # else nothing but missing values, of a table from elsewhere
                series.append(_series(name, values, self.columns[name]))
        return pl.DataFrame(series).with_columns(pl.col(pl.Float64).fill_nan(None))


def _turned(rows: Sequence[Mapping[str, Any]]) -> dict[str, Sequence[Any]]:
    """Columns of rows, with nothing where a row lacks one."""
    names = dict.fromkeys(map(tuple, rows))
    if len(names) == 1:  # as nearly always
        return dict(zip(*names, zip(*(row.values() for row in rows), strict=True), strict=True))
    return {name: [row.get(name) for row in rows] for own in names for name in own}


def _series(name: str, values: Sequence[Any], kind: Kind) -> pl.Series:
    """A column. What is of its type already, as nearly all are, is not gone through one by one."""
    if not set(map(type, values)) <= FITTING[kind]:
        values = [fitted(value, kind) for value in values]
    return pl.Series(name, values, dtype=TYPES[kind], strict=False)


def _joined(grids: Sequence[EffectColumns]) -> pl.DataFrame:
    """Grids of several runs, one below the other."""
    kinds, series = TABLES["effects"][1], []
    for name, kind in kinds.items():
        found = [grid.columns[name] for grid in grids]
        if kind == "text":
            series.append(_text(name, [column for column in found if isinstance(column, Coded)]))
            continue
        values = np.concatenate([np.asarray(column) for column in found])
        series.append(pl.Series(name, values.astype(np.float64 if kind == "number" else np.int64), nan_to_null=True))
    frame = pl.DataFrame(series)
    return frame.with_columns(pl.when(pl.col("head") >= 0).then(pl.col("head")).alias("head"))


def _text(name: str, found: Sequence[Coded]) -> pl.Series:
    words: dict[str, int] = {}
    numbers: dict[tuple[str, ...], np.ndarray] = {}
    codes: list[np.ndarray] = []
    for column in found:
        if column.words not in numbers:  # most grids of a sweep have the same
            of_each = [words.setdefault(word, len(words)) for word in column.words]
            numbers[column.words] = np.array(of_each, dtype=np.uint32)
        codes.append(numbers[column.words][column.codes])
    return pl.Series(name, list(words), dtype=pl.String).gather(np.concatenate(codes))


def _columns(foreign: Mapping[str, Mapping[str, Kind]]) -> tuple[dict[str, Kind], dict[tuple[str, str], str]]:
    """All columns of tables, and what those are called that have another name here."""
    columns, called = declared(), dict(RENAMED)
    for table, own in foreign.items():
        for column, name in names_of(table, own, columns).items():
            if (table, column) not in called:
                called[table, column] = name
                columns.setdefault(name, own[column])
    return columns, called


def _settings(differs: Sequence[Mapping[str, Any]]) -> dict[str, Kind]:
    """Settings in which the runs differ, beside those that every frame has."""
    paths = dict.fromkeys(path for settings in differs for path in settings)
    kinds: dict[str, Kind] = {}
    for path in paths:
        if path not in RUN and path not in IMPLIED:
            kinds[path] = kind_of(settings.get(path) for settings in differs) or "text"
    return kinds


def _known(names: Iterable[str], foreign: Iterable[str]) -> set[str]:
    chosen, known = set(names), {*TABLES, *foreign}
    for name in sorted(chosen - known):
        raise UnknownName("table", name, known)
    return chosen
