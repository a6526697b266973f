"""Kept results as the figures see them: the runs of each part with what tells them apart, and the best of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

from mixerscope.errors import UserError
from mixerscope.experiments.paper.collect import NO_PROOF, kind_of_spec
from mixerscope.experiments.paper.records import is_kept, kept_folders, read_table, read_tables
from mixerscope.experiments.paper.schemas import EMERGENCE, FILES, RUNS, WATCHED
from mixerscope.experiments.paper.sweeps import (
    RATE,
    WIDTH,
    Choice,
    Figure,
    load_figure,
    settings,
    sweeps_of,
)
from mixerscope.spec import canonical_json
from mixerscope.sweep.expand import Sweep

Row = dict[str, Any]
MEMBERS = (WIDTH, RATE, "seed")
"""What one kind of training is varied in."""
NEXT_INPUT = "blocks.1.resid_pre"
"""The input of the second block, where the paper restores."""
PERCENT = 100.0
PUBLISHED_DOCUMENTS = 320
"""On which the paper measured, where a figure's `published.json` does not say otherwise."""


@dataclass(frozen=True)
class Results:
    """Everything that is kept below a folder, of all figures: those that share runs find them where they lie."""

    runs: pl.DataFrame
    cells: pl.DataFrame
    tests: pl.DataFrame
    choice: Choice = field(default_factory=Choice)
    """As what the runs were asked for; a toy has other ones."""
    emergence: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=EMERGENCE))

    @staticmethod
    def load(root: Path, choice: Choice | None = None) -> "Results":
        """What lies below a folder; a run that two figures hold is taken from the first, and what was watched while it
        was trained from the first that watched."""
        found: dict[str, list[pl.DataFrame]] = {name: [] for name in (*FILES, WATCHED)}
        seen: dict[str, set[str]] = {"runs": set(), WATCHED: set()}
        for folder in kept_folders(root):
            tables = read_tables(folder)
            new = {name: {*tables[name]["run_id"].to_list()} - ids for name, ids in seen.items()}
            for name, ids in new.items():
                seen[name] |= ids
            for name, frames in found.items():
                own = new[WATCHED if name == WATCHED else "runs"]
                frames.append(tables[name].filter(pl.col("run_id").is_in(list(own))))
        if not seen["runs"]:
            raise UserError(f"there are no results below {root}; `mixerscope reproduce` puts them there")
        whole = {name: pl.concat(frames) for name, frames in found.items()}
        return Results(**whole, choice=choice or Choice())

    def part(self, figure: str, part: str) -> pl.DataFrame:
        """The runs of a part, each with a column for every setting that the part fixes or varies."""
        asked = kinds_of(figure, self.choice)
        labels = [{"kind": kind, **told} for kind, (name, told) in asked.items() if name == part]
        if not labels or self.runs.is_empty():
            return self.runs.clear()
        told = pl.DataFrame(labels, infer_schema_length=None)
        widths, rates = members_of(figure, part, self.choice)
        runs = self.runs.filter(pl.col("width").is_in(widths) & pl.col("lr").is_in(rates))
        return runs.drop(set(told.columns) - {"kind"}, strict=False).join(told, on="kind")

    def best(self, runs: pl.DataFrame, select: str | None = None) -> pl.DataFrame:
        """Of runs that differ in their rate alone the one with the highest accuracy: on dev documents, then by
        likelihood and the lower rate; or, as published, on the documents that are reported, then the lower rate."""
        by = select or settings()["presets"][self.choice.preset]["select"]
        order = ["curve_accuracy", "curve_likelihood"] if by == "dev" else ["accuracy"]
        sound = runs.filter((pl.col("outcome") != "diverged") & pl.col(order[0]).is_not_null())
        ordered = sound.sort([*order, "lr"], descending=[True] * len(order) + [False], nulls_last=True)
        return ordered.unique(["kind", "width", "seed"], keep="first", maintain_order=True).sort(
            "kind", "width", "seed"
        )

    def restored(self, runs: pl.DataFrame, site: str, role: str, documents: str = "test") -> pl.DataFrame:
        """The runs with what restoring one place gave: `restored` and `restored_share`, with their ends."""
        at = self.cells.filter(
            (pl.col("site") == site) & (pl.col("role") == role) & (pl.col("documents") == documents)
        ).drop("site", "role", "documents")
        names = {name: f"restored{name.removeprefix('likelihood')}" for name in at.columns if "likelihood" in name}
        names |= {name: f"restored_{name}" for name in at.columns if name.startswith("share")}
        return runs.join(at.rename(names), on="run_id", how="left")


def kept_ids(root: Path, proven: bool = False, of: Figure | None = None) -> set[str]:
    """Every run that is kept below a folder, of figures and of studies; `proven` leaves out those that have no name for
    want of a proof. `of` a figure whose runs have stages of their own those in its own folder count, since others like
    them lack what these stages find."""
    told = {name: RUNS[name] for name in ("run_id", "mechanism")}
    own = of.name if of is not None and of.apart else "*"
    folders = [path for path in root.glob(own) if path.is_dir()]
    of_figures, of_studies = ([path / name for path in folders] for name in ("runs.parquet", "models.parquet"))
    figures = (read_table(table, told) for table in of_figures if is_kept(table))
    if proven:
        figures = (runs.filter(pl.col("mechanism").ne_missing(NO_PROOF)) for runs in figures)
    studies = (read_table(table, {"run_id": pl.String}) for table in of_studies if is_kept(table))
    return {run_id for runs in (*figures, *studies) for run_id in runs["run_id"]}


def kinds_of(figure: str, choice: Choice) -> dict[str, tuple[str, Row]]:
    """Each kind of training of a figure: the part it belongs to, and the settings that the part names."""
    return _kinds(figure, choice.toy, canonical_json(dict(choice.settings)))


@cache
def _kinds(figure: str, toy: bool, over: str) -> dict[str, tuple[str, Row]]:
    found: dict[str, tuple[str, Row]] = {}
    loaded = load_figure(figure)
    for part, sweep in zip(loaded.parts, sweeps_of(loaded, Choice(toy=toy, settings=json.loads(over))), strict=True):
        paths = [path for path in part.vary if path not in MEMBERS]
        for values in product(*(part.vary[path] for path in paths)):
            chosen = dict(zip(paths, values, strict=True))
            one = {path: [chosen.get(path, values[0])] for path, values in sweep.vary.items()}
            [spec] = Sweep(base=sweep.base, vary=one).runs()
            told = {path.rpartition(".")[2]: value for path, value in chosen.items() if not isinstance(value, list)}
            told |= {"positions": spec.model.positions, "layers": spec.model.layers}
            found[kind_of_spec(spec)] = (part.name, told)
    return found


def members_of(figure: str, part: str, choice: Choice) -> tuple[list[int], list[float]]:
    """Widths and rates of a part."""
    loaded = load_figure(figure)
    whole = Choice(toy=choice.toy, settings=choice.settings)
    for own, sweep in zip(loaded.parts, sweeps_of(loaded, whole), strict=True):
        if own.name == part:
            return list(sweep.vary[WIDTH]), list(sweep.vary[RATE])
    raise UserError(f"{figure} has no part {part!r}")


def share_of(restored: float | None, clean: float | None, corrupted: float | None, least: float = 0.0) -> float | None:
    """What was brought back, as a part of what corrupting took; None where that is no more than `least`, or nothing."""
    if restored is None or clean is None or corrupted is None:
        return None
    gap = clean - corrupted
    return (restored - corrupted) / gap if gap and gap > least else None


def rows_of(runs: pl.DataFrame, panel: str, row: str, value: str, share: bool = False, **more: Any) -> list[Row]:
    """What a figure shows of runs, in percent: a row each, with the interval over documents. `row` is the column that
    names the row of the figure; `more` are columns, or values, to carry along."""
    scale = 1.0 if share else PERCENT
    found: list[Row] = []
    for run in runs.iter_rows(named=True):
        known = run[value] is not None
        ends = {name: run[f"{value}_{name}"] * scale if known else None for name in ("low", "high")}
        found.append(
            {
                "panel": panel,
                "row": str(run[row]),
                "width": run["width"],
                "seed": run["seed"],
                "lr": run["lr"],
                "run_id": run["run_id"],
                "value": run[value] * scale if known else None,
                **ends,
                **{name: run[column] if column in runs.columns else column for name, column in more.items()},
            }
        )
    return found


def published_of(figure: Figure) -> Mapping[str, Any]:
    """What the paper's text prints of a figure: `source`, and by panel and row a number for each width, or null."""
    return json.loads((figure.folder / "published.json").read_text(encoding="utf-8"))


def published_cells(figure: Figure) -> dict[tuple[str, str, int], float]:
    """The same by panel, row and width; what is not printed is not there."""
    said = published_of(figure)
    widths: Sequence[int] = said.get("widths", ())
    return {
        (panel, row, width): value
        for panel, rows in said.get("panels", {}).items()
        for row, values in rows.items()
        for width, value in zip(widths, values, strict=True)
        if value is not None
    }


def published_documents(figure: Figure) -> int:
    """On how many the published numbers were measured."""
    return published_of(figure).get("documents", PUBLISHED_DOCUMENTS)
