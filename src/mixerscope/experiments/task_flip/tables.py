"""What is kept of the study's runs: a table of models, and one of what each stage found of them."""

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from mixerscope.artifacts import Erasures, Interchanges, Lengths, Probes
from mixerscope.artifacts.alignments import Alignments
from mixerscope.artifacts.recoveries import Recoveries
from mixerscope.artifacts.state_verdict import StateVerdict
from mixerscope.errors import UserError
from mixerscope.experiments.task_flip.study import architecture_name, task_name
from mixerscope.packs import unpack
from mixerscope.results import RunResult, load_runs
from mixerscope.store import make_folder

Row = dict[str, Any]
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
    "erasures": {
        **dict.fromkeys(("run_id", "site", "method"), pl.String),
        **dict.fromkeys(("boundary", "rank"), pl.Int32),
        **dict.fromkeys(("variance", "before", "residual"), _NUMBER),
        "speaks": pl.Boolean,
        "length": pl.Int32,
        **dict.fromkeys(("accuracy", "damage", "random_rank", "random_variance", "percentile"), _NUMBER),
        **dict.fromkeys(("clean", "guessing"), _NUMBER),
    },
    "erased_once": {
        **dict.fromkeys(("run_id", "site", "method"), pl.String),
        **dict.fromkeys(("boundary", "position", "rank"), pl.Int32),
        **dict.fromkeys(("chance", "before", "residual"), _NUMBER),
        "speaks": pl.Boolean,
        **dict.fromkeys(("now", "later", "damage_now", "damage_later", "random_now", "random_later"), _NUMBER),
    },
    "refitted": {
        **dict.fromkeys(("run_id", "site", "method"), pl.String),
        **dict.fromkeys(("boundary", "length", "rank"), pl.Int32),
        **dict.fromkeys(("chance", "before", "residual", "kept_residual"), _NUMBER),
        "speaks": pl.Boolean,
        **dict.fromkeys(("accuracy", "damage", "alike"), _NUMBER),
    },
    "ablations": {
        **dict.fromkeys(("run_id", "site", "edit"), pl.String),
        **dict.fromkeys(("accuracy", "damage", "turned", "percentile"), _NUMBER),
    },
    "interchanges": {
        **dict.fromkeys(("run_id", "place", "how"), pl.String),
        **dict.fromkeys(("now", "now_low", "now_high", "later", "later_low", "later_high", "kept"), _NUMBER),
    },
    "alignments": {
        **dict.fromkeys(("run_id", "place", "how"), pl.String),
        "rank": pl.Int32,
        **dict.fromkeys(("now", "now_low", "now_high", "later", "later_low", "later_high", "kept", "alike"), _NUMBER),
    },
    "recoveries": {
        **dict.fromkeys(("run_id", "site"), pl.String),
        "position": pl.Int32,
        **dict.fromkeys(("same", "later", "taps_damage"), _NUMBER),
    },
}


def collect(sources: Sequence[Path]) -> dict[str, pl.DataFrame]:
    """The tables of the state-tracking runs in packs and folders of runs."""
    rows: dict[str, list[Row]] = {name: [] for name in SCHEMAS}
    seen: set[str] = set()
    for source in sources:
        for result in _runs_in(source):
            if result.run_id in seen or result.find(Lengths) is None:
                continue
            seen.add(result.run_id)
            for name, make in ROWS.items():
                rows[name] += list(make(result))
            rows["models"][-1]["source"] = source.name
    if not seen:
        raise UserError(f"there are no runs that track a state in {', '.join(map(str, sources)) or 'no place'}")
    return {name: pl.DataFrame(rows[name], schema=schema) for name, schema in SCHEMAS.items()}


def _runs_in(source: Path) -> Iterator[RunResult]:
    if source.is_dir():
        yield from load_runs(source)
        return
    if not source.is_file():
        raise UserError(f"there are no results in {source}; give a pack, or a folder of runs")
    with tempfile.TemporaryDirectory() as place:
        unpack(source, Path(place) / "runs")
        yield from load_runs(Path(place) / "runs")


def merge(folder: Path, tables: dict[str, pl.DataFrame]) -> int:
    """Adds the tables to those in a folder, in place of what is there of the same runs; gives the runs there are."""
    make_folder(folder)
    ids = tables["models"]["run_id"].to_list()
    for name, frame in tables.items():
        path = folder / f"{name}.parquet"
        if path.is_file():
            frame = pl.concat([pl.read_parquet(path).filter(~pl.col("run_id").is_in(ids)), frame])
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
    verdict, made = result.find(StateVerdict), result.provenance
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
    place = _boundaries(result)
    kept = SCHEMAS["probes"]
    for row in found.rows():
        own = {"run_id": result.run_id, "boundary": place.get(row["site"]), **row}
        yield {name: own[name] for name in kept}


def _erasures(result: RunResult) -> Iterator[Row]:
    found = result.find(Erasures)
    place = _boundaries(result)
    for one in found.erased if found else ():
        assert found is not None
        for at, length in enumerate(found.lengths):
            longer = one.random_longer[at - 1] if at and one.random_longer else ()
            drawn = longer if at else one.random_variance
            yield {
                "run_id": result.run_id,
                "site": one.site,
                "method": one.method,
                "boundary": place.get(one.site),
                "rank": one.rank,
                "variance": one.variance,
                "before": one.before,
                "residual": one.residual,
                "speaks": found.speaks(one),
                "length": length,
                "accuracy": one.accuracy[at],
                "damage": one.damage[at],
                "random_rank": _mean(one.random_rank) if at == 0 else None,
                "random_variance": _mean(drawn),
                "percentile": _mean([value > one.accuracy[at] for value in drawn]),
                "clean": found.clean[at],
                "guessing": found.guessing[at],
            }


def _once(result: RunResult) -> Iterator[Row]:
    found = result.find(Erasures)
    place = _boundaries(result)
    for one in found.once if found else ():
        assert found is not None
        drawn = {"random_now": _mean(one.random_now), "random_later": _mean(one.random_later)}
        where = {"run_id": result.run_id, "boundary": place.get(one.site), "position": found.position}
        yield {**where, **vars(one), "speaks": found.speaks(one), **drawn}


def _refitted(result: RunResult) -> Iterator[Row]:
    found = result.find(Erasures)
    place = _boundaries(result)
    for one in found.refitted if found else ():
        assert found is not None
        said = {name: value for name, value in vars(one).items() if name != "cosines"}
        alike = _mean([value**2 for value in one.cosines])
        where = {"run_id": result.run_id, "boundary": place.get(one.site)}
        yield {**where, **said, "speaks": found.speaks(one), "alike": alike}


def _ablations(result: RunResult) -> Iterator[Row]:
    found = result.find(Erasures)
    for one in found.ablated if found else ():
        yield {"run_id": result.run_id, **vars(one), "turned": _mean(one.turned), "percentile": one.percentile}


def _boundaries(result: RunResult) -> dict[str, int]:
    """Site to its number, of those between blocks."""
    probes = result.find(Probes)
    return {site: number for number, site in enumerate(probes.boundaries)} if probes else {}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


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
        yield {"run_id": result.run_id, **row, "taps_damage": None}
    for one in found.without_taps if found else ():
        nothing = {"position": None, "same": None, "later": None}
        yield {"run_id": result.run_id, "site": f"blocks.{one.block}", **nothing, "taps_damage": one.damage}


ROWS: dict[str, Callable[[RunResult], Iterator[Row]]] = {
    "models": _model,
    "lengths": _lengths,
    "probes": _probes,
    "erasures": _erasures,
    "erased_once": _once,
    "refitted": _refitted,
    "ablations": _ablations,
    "interchanges": _interchanges,
    "alignments": _alignments,
    "recoveries": _recoveries,
}
