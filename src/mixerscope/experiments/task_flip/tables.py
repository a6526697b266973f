"""What is kept of the study's runs: a table of models, and one of what each stage found of them."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from mixerscope.artifacts import Interchanges, Lengths, Probes
from mixerscope.artifacts.alignments import Alignments
from mixerscope.artifacts.estimate import as_columns
from mixerscope.artifacts.recoveries import Recoveries
from mixerscope.errors import UserError
from mixerscope.experiments.finetune.results import tuned_in
from mixerscope.experiments.paper.collect import runs_in
from mixerscope.experiments.paper.records import is_kept, read_older_table, read_together
from mixerscope.experiments.task_flip import erasure_tables, pretrained
from mixerscope.experiments.task_flip.erasure_tables import Row, boundaries
from mixerscope.experiments.task_flip.study import architecture_name, task_name
from mixerscope.experiments.task_flip.verdicts import EARLIER, JUDGED, judged
from mixerscope.results import RunResult
from mixerscope.stages.align import LEARNED
from mixerscope.stages.state_pairs import BOTH, STATES, STREAM

_NUMBER = pl.Float32
SCHEMAS: dict[str, dict[str, Any]] = {
    "models": {
        **dict.fromkeys(("run_id", "task", "architecture"), pl.String),
        **dict.fromkeys(("layers", "width", "length"), pl.Int32),
        "lr": pl.Float64,
        "seed": pl.Int32,
        **dict.fromkeys(("outcome", "reason"), pl.String),
        "steps": pl.Int32,
        "dev_accuracy": _NUMBER,
        **dict.fromkeys(("verdict", "verdict_reason", "tests", "source", "device", "made_by"), pl.String),
        "unwritten": pl.List(pl.String),
        "probed_by": pl.Int32,
    },
    "lengths": {
        "run_id": pl.String,
        **dict.fromkeys(("times", "length"), pl.Int32),
        **dict.fromkeys(("accuracy", "accuracy_low", "accuracy_high"), _NUMBER),
        **dict.fromkeys(("last", "last_low", "last_high", "whole", "guessing", "guessing_all"), _NUMBER),
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
        "by_distance": pl.List(_NUMBER),
        "told": pl.List(pl.Int32),
    },
    "alignments": {
        **dict.fromkeys(("run_id", "place", "how"), pl.String),
        "rank": pl.Int32,
        **dict.fromkeys(("now", "now_low", "now_high", "later", "later_low", "later_high", "kept", "alike"), _NUMBER),
        **dict.fromkeys(("moved", "moved_low", "moved_high", "earlier", "earlier_low", "earlier_high"), _NUMBER),
        "by_distance": pl.List(_NUMBER),
        "told": pl.List(pl.Int32),
    },
    "recoveries": {
        **dict.fromkeys(("run_id", "site"), pl.String),
        "position": pl.Int32,
        **dict.fromkeys(("same", "later", "taps_damage"), _NUMBER),
    },
    **pretrained.SCHEMAS,
}


Tables = dict[str, pl.DataFrame]
SAME = ("task", "architecture", "layers", "length", "lr", "seed")
"""What two trainings by different code share where the one is in place of the other."""
STAGE = "lengths"
"""That every run of the study is asked for; it says nothing of models that diverged."""


def collect(sources: Sequence[Path]) -> Tables:
    """The tables of the state-tracking runs in packs and folders of runs, and of fine-tuned models in folders."""
    found = empty()
    for source in sources:
        found = joined(found, _tables_of(source))
    if not ids_of(found):
        raise UserError(f"there are no runs that track a state in {', '.join(map(str, sources)) or 'no place'}")
    return judged(found)


def _tables_of(source: Path) -> Tables:
    rows: dict[str, list[Row]] = {name: [] for name in SCHEMAS}
    tuned = list(tuned_in(source)) if source.is_dir() else []
    for result in tuned:
        for name, found in pretrained.rows_of(result).items():
            rows[name] += found
    # A folder has the one or the other.
    for result in runs_in(source) if not tuned else ():
        if STAGE not in result.stages:
            continue
        for name, make in ROWS.items():
            rows[name] += list(make(result))
        rows["models"][-1]["source"] = source.name
    return {name: pl.DataFrame(rows[name], schema=schema) for name, schema in SCHEMAS.items()}


def empty() -> Tables:
    """No runs at all."""
    return {name: pl.DataFrame(schema=schema) for name, schema in SCHEMAS.items()}


def ids_of(tables: Tables) -> list[str]:
    """Every run and every fine-tuned model."""
    return [*tables["models"]["run_id"], *tables["tuned"]["run_id"]]


def joined(kept: Tables, new: Tables) -> Tables:
    """Both; of a run that is in both what tells more, the new one where that is the same: a pack from before a stage
    was there takes nothing away. A new run is also in place of one that is the same by its settings, which code of
    before gave another id."""
    before, now = _told(kept), _told(new)
    taken = [run_id for run_id in ids_of(new) if now[run_id] >= before.get(run_id, 0)]
    again = kept["models"].join(new["models"].filter(pl.col("run_id").is_in(taken)), on=SAME, how="semi")
    left = [run_id for run_id in ids_of(kept) if run_id not in {*taken, *again["run_id"]}]
    # Diagonal: what is kept of runs from before a column was there has nothing in it.
    return {
        name: pl.concat([_only(new[name], taken), _only(kept[name], left)], how="diagonal").sort(
            "run_id", maintain_order=True
        )
        for name in SCHEMAS
    }


def _only(table: pl.DataFrame, ids: Sequence[str]) -> pl.DataFrame:
    return table.filter(pl.col("run_id").is_in(ids))


def _told(tables: Tables) -> dict[str, int]:
    """Of each run, in how many columns of all tables there is something."""
    count = dict.fromkeys(ids_of(tables), 0)
    for table in tables.values():
        found = table.group_by("run_id").agg(pl.exclude("run_id").is_not_null().any())
        for run_id, *columns in found.iter_rows():
            count[run_id] += sum(columns)
    return count


ASKED = {
    "probes": "probes",
    "erase": "erasures",
    "interchange": "interchanges",
    "align": "alignments",
    "recover": "recoveries",
}
"""Stages of the study, each with the table that has something of every model it looked at."""
WRITTEN = (BOTH, STREAM, STATES)
"""Places whose answers are kept by distance."""
LATE = "align late in documents"
"""Of runs whose subspaces were learned before these were tried there too; of models that hold something."""
ALONE = "align in memory alone"
"""Of runs whose subspaces were learned in memory and stream together."""
ELSEWHERE = "erase, read in other documents"
"""Of runs in which what is left was read only where erasures were found."""
PENALTIES = "the largest of equally good penalties"
"""Of runs whose probes, and erasures by them, were of the smallest: revisions of `probes` before this one."""
LARGEST = 4
NOT_OF_VERDICTS = (ELSEWHERE, PENALTIES)
"""What gives no model its name."""


def lacking(tables: Tables) -> dict[str, list[str]]:
    """Stage to the runs that were taken in before it was there. Models that diverged, and those of which some stage
    says why it could not look at them, lack nothing."""
    models = tables["models"].filter((pl.col("outcome") != "diverged") & (pl.col("reason") == ""))
    found: dict[str, list[str]] = {}
    for stage, name in ASKED.items():
        found[stage] = models.join(tables[name], on="run_id", how="anti")["run_id"].to_list()
    held = tables["alignments"].filter(pl.col("place").is_in([BOTH, STATES]) & (pl.col("how") == LEARNED))
    held = held.group_by("run_id")
    tried = held.agg(late=pl.col("moved").is_not_null().any(), alone=(pl.col("place") == STATES).any())
    for stage, asked in ((LATE, "late"), (ALONE, "alone")):
        found[stage] = models.join(tried.filter(~pl.col(asked)), on="run_id", how="semi")["run_id"].to_list()
    read = tables["erasures"].group_by("run_id").agg(pl.col("unseen").is_not_null().any()).filter(~pl.col("unseen"))
    found[ELSEWHERE] = models.join(read, on="run_id", how="semi")["run_id"].to_list()
    probed = models.join(tables["probes"], on="run_id", how="semi")
    found[PENALTIES] = probed.filter(pl.col("probed_by").fill_null(0) < LARGEST)["run_id"].to_list()
    return {stage: ids for stage, ids in found.items() if ids}


def whole_ids(folder: Path) -> set[str]:
    """Runs that are kept with every stage of the study."""
    tables = stored(folder)
    left = {run_id for stage, ids in lacking(tables).items() if stage in ASKED for run_id in ids}
    return {*tables["models"]["run_id"]} - left


def merged(folder: Path, tables: Tables) -> Tables:
    """The tables beside those in a folder, all of them judged by the rules of this version."""
    return judged(joined(stored(folder), tables))


def load(folder: Path) -> Tables:
    """The tables of a folder, judged by the rules of this version."""
    found = stored(folder)
    if not ids_of(found):
        raise UserError(f"there are no runs in {folder}; `mixerscope reproduce task-flip` makes them")
    return judged(found)


def stored(folder: Path) -> Tables:
    """The tables of a folder as they lie there, judged as they were; empty where there are none."""
    return read_together(folder, lambda: _stored(folder), {})


def _stored(folder: Path) -> Tables:
    found = empty()
    for name, nothing in found.items():
        path = folder / f"{name}.parquet"
        if is_kept(path):
            # Of runs from before a stage or a column was there, nothing is known of it.
            found[name] = pl.concat([nothing, read_older_table(path, SCHEMAS[name])], how="diagonal")
    return found


def _model(result: RunResult) -> Iterator[Row]:
    training, status, last = result.training, result.status, result.curve.last
    made, written = result.provenance, result.find(Interchanges)
    yield {
        "run_id": result.run_id,
        "task": task_name(training["task"]),
        "architecture": architecture_name(training["model"]),
        "layers": training["model"]["layers"],
        "width": training["model"]["width"],
        "length": training["task"]["length"],
        "lr": training["train"]["lr"],
        "seed": training["seed"],
        "outcome": status.outcome,
        "reason": result.reason,
        "steps": status.steps,
        "dev_accuracy": last.accuracy if last else None,
        # Judged from the tables, as all others are.
        **dict.fromkeys(JUDGED),
        "source": "",
        "device": made.device,
        "made_by": str(made.git.get("commit", ""))[:12],
        "unwritten": written and written.unwritten and list(written.unwritten),
        "probed_by": result.stages["probes"].record.identity["revision"] if "probes" in result.stages else None,
    }


def _lengths(result: RunResult) -> Iterator[Row]:
    found = result.find(Lengths)
    for one in found.lengths if found else ():
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
            "guessing_all": one.guessing_all,
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
    """A row a place and way of writing, and one of what is held early and put late."""
    found = result.find(Interchanges)
    for one in found.cells if found else ():
        ends = {**as_columns("now", one.now), **as_columns("later", one.later)}
        # Verdicts rest on what is written everywhere; of single sites the means will do.
        whole = one.place in WRITTEN and one.how in ("shift", "swap")
        each = {"by_distance": list(one.by_distance), "told": list(one.told)} if whole else {}
        told = {"place": one.place, "how": one.how, **ends, "kept": one.kept, "by_distance": None, "told": None, **each}
        yield {"run_id": result.run_id, **told}
    if found is not None and found.earlier is not None:
        ends = {**as_columns("now", None), **as_columns("later", found.earlier.right)}
        told = {"place": EARLIER, "how": "nearest", **ends, "kept": None, "by_distance": None, "told": None}
        yield {"run_id": result.run_id, **told}


def _alignments(result: RunResult) -> Iterator[Row]:
    found = result.find(Alignments)
    for one, row in zip(found.cells, found.rows(), strict=True) if found else ():
        late = one.moved is not None or one.earlier is not None  # verdicts rest on these alone
        each = (list(one.by_distance), list(one.told)) if late else (None, None)
        yield {"run_id": result.run_id, **row, **dict(zip(("by_distance", "told"), each, strict=True))}


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
