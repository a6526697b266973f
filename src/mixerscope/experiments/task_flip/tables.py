"""What is kept of the study's runs: a table of models, and one of what each stage found of them."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from mixerscope.analysis.tracking import judge_tracking
from mixerscope.artifacts import Erasures, Interchanges, Lengths, Probes
from mixerscope.artifacts.alignments import Alignments
from mixerscope.artifacts.recoveries import Recoveries
from mixerscope.artifacts.state_verdict import StateVerdict
from mixerscope.errors import UserError
from mixerscope.experiments.finetune.results import tuned_in
from mixerscope.experiments.paper.collect import runs_in
from mixerscope.experiments.task_flip import erasure_tables, pretrained
from mixerscope.experiments.task_flip.erasure_tables import Row, boundaries
from mixerscope.experiments.task_flip.study import architecture_name, task_name
from mixerscope.results import RunResult
from mixerscope.store import make_folder

COMPRESSION = {"compression": "zstd", "compression_level": 19}
_NUMBER = pl.Float32
SCHEMAS: dict[str, dict[str, Any]] = {
    "models": {
        **dict.fromkeys(("run_id", "task", "architecture"), pl.String),
        **dict.fromkeys(("layers", "length"), pl.Int32),
        "lr": pl.Float64,
        "seed": pl.Int32,
        **dict.fromkeys(("outcome", "reason"), pl.String),
        "steps": pl.Int32,
        "dev_accuracy": _NUMBER,
        **dict.fromkeys(("verdict", "verdict_reason", "tests", "source", "device", "made_by"), pl.String),
    },
    "lengths": {
        "run_id": pl.String,
        **dict.fromkeys(("times", "length"), pl.Int32),
        **dict.fromkeys(("accuracy", "accuracy_low", "accuracy_high"), _NUMBER),
        **dict.fromkeys(("last", "last_low", "last_high", "whole", "guessing"), _NUMBER),
    },
    "probes": {
        **dict.fromkeys(("run_id", "label", "positions", "site"), pl.String),
        "boundary": pl.Int32,
        **dict.fromkeys(("accuracy", "readability", "shuffled", "control", "untrained", "logistic"), _NUMBER),
        **dict.fromkeys(("chance", "position", "window", "ceiling"), _NUMBER),
    },
    **erasure_tables.SCHEMAS,
    "interchanges": {
        **dict.fromkeys(("run_id", "place", "how"), pl.String),
        **dict.fromkeys(("now", "now_low", "now_high", "later", "later_low", "later_high", "kept"), _NUMBER),
    },
    "alignments": {
        **dict.fromkeys(("run_id", "place", "how"), pl.String),
        "rank": pl.Int32,
        **dict.fromkeys(("now", "now_low", "now_high", "later", "later_low", "later_high", "kept", "alike"), _NUMBER),
        **dict.fromkeys(("moved", "moved_low", "moved_high", "earlier", "earlier_low", "earlier_high"), _NUMBER),
    },
    "recoveries": {
        **dict.fromkeys(("run_id", "site"), pl.String),
        "position": pl.Int32,
        **dict.fromkeys(("same", "later", "taps_damage"), _NUMBER),
    },
    **pretrained.SCHEMAS,
}


def collect(sources: Sequence[Path]) -> dict[str, pl.DataFrame]:
    """The tables of the state-tracking runs in packs and folders of runs, and of fine-tuned models in folders."""
    rows: dict[str, list[Row]] = {name: [] for name in SCHEMAS}
    seen: set[str] = set()
    for source in sources:
        tuned = list(tuned_in(source)) if source.is_dir() else []
        for result in tuned:
            seen.add(str(result.path))
            for name, found in pretrained.rows_of(result).items():
                rows[name] += found
        # A folder has the one or the other.
        for result in runs_in(source) if not tuned else ():
            if result.run_id in seen or result.find(Lengths) is None:
                continue
            seen.add(result.run_id)
            for name, make in ROWS.items():
                rows[name] += list(make(result))
            rows["models"][-1]["source"] = source.name
    if not seen:
        raise UserError(f"there are no runs that track a state in {', '.join(map(str, sources)) or 'no place'}")
    return {name: pl.DataFrame(rows[name], schema=schema) for name, schema in SCHEMAS.items()}


def merge(folder: Path, tables: dict[str, pl.DataFrame]) -> int:
    """Adds the tables to those in a folder, in place of what is there of the same runs; gives the runs there are."""
    make_folder(folder)
    ids = [*tables["models"]["run_id"], *tables["tuned"]["run_id"]]
    for name, frame in tables.items():
        path = folder / f"{name}.parquet"
        if path.is_file():
            # Diagonal: what is kept of runs from before a column was there has nothing in it.
            frame = pl.concat([frame, pl.read_parquet(path).filter(~pl.col("run_id").is_in(ids))], how="diagonal")
        frame.sort("run_id", maintain_order=True).write_parquet(path, **COMPRESSION)
    return len(pl.read_parquet(folder / "models.parquet"))


def load(folder: Path) -> dict[str, pl.DataFrame]:
    """The tables of a folder."""
    if not (folder / "models.parquet").is_file():
        raise UserError(f"there are no runs in {folder}; `mixerscope reproduce task-flip` makes them")
    # Of runs from before a stage was there, nothing is known of it.
    return {
        name: pl.read_parquet(path) if (path := folder / f"{name}.parquet").is_file() else pl.DataFrame(schema=schema)
        for name, schema in SCHEMAS.items()
    }


def _model(result: RunResult) -> Iterator[Row]:
    training, status, last = result.training, result.status, result.curve.last
    verdict, made = _verdict(result), result.provenance
    yield {
        "run_id": result.run_id,
        "task": task_name(training["task"]),
        "architecture": architecture_name(training["model"]),
        "layers": training["model"]["layers"],
        "length": training["task"]["length"],
        "lr": training["train"]["lr"],
        "seed": training["seed"],
        "outcome": status.outcome,
        "reason": result.reason,
        "steps": status.steps,
        "dev_accuracy": last.accuracy if last else None,
        "verdict": verdict.name if verdict else None,
        "verdict_reason": verdict.reason if verdict else None,
        "tests": json.dumps({test.name: test.value for test in verdict.tests}) if verdict else None,
        "source": "",
        "device": made.device,
        "made_by": str(made.git.get("commit", ""))[:12],
    }


def _verdict(result: RunResult) -> StateVerdict | None:
    """By the rules of this version; None where states were not exchanged."""
    lengths, found = result.find(Lengths), result.find(Interchanges)
    if lengths is None or found is None:
        return None
    return judge_tracking(lengths, found, erasures=result.find(Erasures), aligned=result.find(Alignments))


def _lengths(result: RunResult) -> Iterator[Row]:
    for one in result.read(Lengths).lengths:
        yield {
            "run_id": result.run_id,
            "times": one.times,
            "length": one.length,
            "accuracy": one.accuracy.value,
            "accuracy_low": one.accuracy.low,
            "accuracy_high": one.accuracy.high,
            "last": one.last.value,
            "last_low": one.last.low,
            "last_high": one.last.high,
            "whole": one.whole.value,
            "guessing": one.guessing,
        }


def _probes(result: RunResult) -> Iterator[Row]:
    found = result.find(Probes)
    if found is None:
        return
    place = boundaries(result)
    kept = SCHEMAS["probes"]
    for row in found.rows():
        own = {"run_id": result.run_id, "boundary": place.get(row["site"]), **row}
        yield {name: own[name] for name in kept}


def _interchanges(result: RunResult) -> Iterator[Row]:
    found = result.find(Interchanges)
    for one in found.cells if found else ():
        ends: Row = {}
        for name, value in (("now", one.now), ("later", one.later)):
            said = (None, None, None) if value is None else (value.value, value.low, value.high)
            ends |= dict(zip((name, f"{name}_low", f"{name}_high"), said, strict=True))
        yield {"run_id": result.run_id, "place": one.place, "how": one.how, **ends, "kept": one.kept}


def _alignments(result: RunResult) -> Iterator[Row]:
    found = result.find(Alignments)
    return ({"run_id": result.run_id, **row} for row in (found.rows() if found else ()))


def _recoveries(result: RunResult) -> Iterator[Row]:
    """A row a place, and one a block whose convolutions were cut short."""
    found = result.find(Recoveries)
    for row in found.rows() if found else ():
        own = {"run_id": result.run_id, **row, "taps_damage": None}
        yield {name: own[name] for name in SCHEMAS["recoveries"]}
    for one in found.without_taps if found else ():
        nothing = {"position": None, "same": None, "later": None}
        yield {"run_id": result.run_id, "site": f"blocks.{one.block}", **nothing, "taps_damage": one.damage}


ROWS: dict[str, Callable[[RunResult], Iterator[Row]]] = {
    "models": _model,
    "lengths": _lengths,
    "probes": _probes,
    **erasure_tables.ROWS,
    "interchanges": _interchanges,
    "alignments": _alignments,
    "recoveries": _recoveries,
}
