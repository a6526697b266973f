"""What is written of a figure: its tables of runs, the drawing, ours beside published, and how it was made."""

import html
import importlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import altair as alt
import polars as pl

from mixerscope.errors import UserError
from mixerscope.experiments.paper.collect import Tables, collect
from mixerscope.experiments.paper.data import Results, kinds_of, members_of, published_cells, published_documents
from mixerscope.experiments.paper.drawing import configured
from mixerscope.experiments.paper.records import (
    ABOUT,
    asked_below,
    changing,
    kept_folders,
    note_packs,
    read_about,
    read_tables,
    refuse_other_packs,
    refuse_others,
    sha256,
    write_tables,
)
from mixerscope.experiments.paper.schemas import WATCHED
from mixerscope.experiments.paper.sweeps import (
    Choice,
    Figure,
    figure_names,
    load_figure,
    measured_documents,
    module_name,
)
from mixerscope.experiments.paper.tables import Beside, CellKey, beside, cells_of, markdown
from mixerscope.report.charts import save_chart
from mixerscope.stages.judge import Judge
from mixerscope.store import make_folder, write_bytes


def figure_module(name: str) -> ModuleType:
    """The code that draws a figure."""
    load_figure(name)  # refuses what is none
    return importlib.import_module(f"mixerscope.experiments.{module_name(name)}.figure")


def take_in(root: Path, figures: Sequence[Figure], sources: Sequence[Path], choice: Choice, command: str) -> int:
    """Puts the runs of packs and run folders into the tables below `root`, each into the folder of the first figure it
    belongs to. Runs that are there already are replaced, but none with a proof by one without. Gives how many there
    were."""
    owners = {kind: figure.name for figure in reversed(figures) for kind in kinds_of(figure.name, choice)}
    shares = {name: [kind for kind, owner in owners.items() if owner == name] for name in set(owners.values())}
    tables = collect(sources, owners)
    with changing(root):
        kept, count = _kept_tables(root, choice), 0
        for name, kinds in shares.items():
            own = tables.runs.filter(pl.col("kind").is_in(kinds))
            if own.is_empty():
                continue
            count += len(own)
            merged = _merged(own, tables, kept.get(name))
            trained = {tables.trained_by[run_id] for run_id in own["run_id"] if run_id in tables.trained_by}
            write_tables(root / name, merged, _said(root / name, merged["runs"], sources, choice, command, trained))
    return count


def _merged(runs: pl.DataFrame, tables: Tables, kept: Mapping[str, pl.DataFrame] | None) -> dict[str, pl.DataFrame]:
    """These runs of the tables, beside what is kept."""
    if kept is not None:
        runs = _beside_those_kept(runs, kept["runs"])
    ids = runs["run_id"].implode()
    new = {"runs": runs, "cells": tables.cells, "tests": tables.tests, WATCHED: tables.emergence}
    new = {name: frame.filter(pl.col("run_id").is_in(ids)) for name, frame in new.items()}
    if kept is not None:
        new = {name: pl.concat([kept[name].filter(~pl.col("run_id").is_in(ids)), own]) for name, own in new.items()}
    if new[WATCHED].is_empty():
        del new[WATCHED]
    order = ("run_id", "step", "documents", "site", "role", "test")
    return {name: frame.sort([one for one in order if one in frame.columns]) for name, frame in new.items()}


def _beside_those_kept(runs: pl.DataFrame, kept: pl.DataFrame) -> pl.DataFrame:
    """Without what is kept with a proof and comes without; and with the seconds that are known of the same trainings,
    where the table of them does not lie beside the pack again."""
    known = kept.select("run_id", "curve_loss", known="seconds")
    proven = kept.filter("proof")["run_id"]
    runs = runs.filter(pl.col("proof") | ~pl.col("run_id").is_in(proven.implode()))
    told = runs.join(known, on=["run_id", "curve_loss"], how="left", nulls_equal=True)
    return told.with_columns(pl.coalesce("seconds", "known").alias("seconds")).select(runs.columns)


def _said(
    folder: Path,
    runs: pl.DataFrame,
    sources: Sequence[Path],
    choice: Choice,
    command: str,
    trained_by: Collection[str],
) -> dict[str, Any]:
    before = read_about(folder)
    return {
        "preset": choice.preset,
        "toy": choice.toy,
        "settings": dict(choice.settings),
        "commands": list(dict.fromkeys([*before.get("commands", ()), command])),
        "trained_by": sorted({*before.get("trained_by", ()), *trained_by}),
        "sources": {**before.get("sources", {}), **{path.name: sha256(path) for path in sources if path.is_file()}},
        "runs": len(runs),
        "with_proof": int(runs["proof"].sum()),
        "diverged": int((runs["outcome"] == "diverged").sum()),
        "seeds": sorted(runs["seed"].unique().to_list()),
        "seconds": round(float(runs["seconds"].sum() or 0.0), 1),
        "without_seconds": int(runs["seconds"].is_null().sum()),
        "devices": sorted(runs["device"].unique().to_list()),
        "made_by": sorted(runs["made_by"].unique().to_list()),
        "judged_by_revisions": sorted({*before.get("judged_by_revisions", ()), Judge.revision}),
    }


def load_results(root: Path, preset: str | None = None) -> Results:
    """What is kept below a folder, read as what it was asked for, or with another preset's way of choosing rates."""
    return Results.load(root, asked_below(root, preset))


def refuse_to_keep(root: Path, choice: Choice) -> None:
    """Refuses, before anything is trained, what could not be put beside what is kept, or drawn from there."""
    _kept_tables(root, choice)


def _kept_tables(root: Path, choice: Choice) -> dict[str, dict[str, pl.DataFrame]]:
    """Of each figure below a folder, which have to be what was asked for now."""
    found = {folder.name: read_tables(folder) for folder in kept_folders(root)}
    for name in found:
        refuse_other_packs(root / name)
    refuse_others(root, choice)
    return found


def compared(name: str, results: Results | None) -> list[Beside]:
    """Every cell of a figure, ours beside published."""
    module = figure_module(name)
    times = 1.0 if results is None else measured_documents(results.choice) / published_documents(load_figure(name))
    return beside(module.rows(results), _printed(name, results), getattr(module, "EXACT", False), times)


def draw(name: str, results: Results | None) -> dict[str, Any]:
    """A figure as Vega-Lite JSON."""
    return configured(figure_module(name).draw(results, _printed(name, results)))


def paper_figure(name: str, folder: str | Path) -> alt.TopLevelMixin:
    """A figure of the paper (`fig3`, `fig4a`, ...) as an altair chart, from what `mixerscope reproduce` keeps in
    `folder`."""
    figure = load_figure(name)
    results = load_results(Path(folder)) if figure.parts else None
    _refuse_nothing(figure, Path(folder), results)
    return alt.Chart.from_dict(draw(name, results))


def _refuse_nothing(figure: Figure, root: Path, results: Results | None) -> None:
    if figure.parts and results is not None and not _is_there(figure, root, results):
        raise UserError(
            f"there are no runs of {figure.name} below {root}; `mixerscope reproduce {figure.name}` makes them"
        )


def _printed(name: str, results: Results | None) -> dict[CellKey, float]:
    """What was published; nothing beside a toy."""
    return {} if results is not None and results.choice.toy else published_cells(load_figure(name))


def write_figure(name: str, root: Path, results: Results | None = None) -> Path:
    """Draws a figure from what is kept below `root`, into the figure's folder there, which is given back."""
    figure = load_figure(name)
    if results is None and figure.parts:
        results = load_results(root)
    folder = root / name
    _refuse_nothing(figure, root, results)
    make_folder(folder)
    note_packs(folder)
    spec = draw(name, results)
    for ending in ("svg", "png"):
        save_chart(spec, folder / f"figure.{ending}")
    cells = compared(name, results)
    write_bytes(folder / "table.md", ("\n".join(markdown(cells)) + "\n").encode())
    svg = (folder / "figure.svg").read_text(encoding="utf-8")
    write_bytes(folder / "figure.html", _page(figure, svg, cells).encode())
    return folder


def _page(figure: Figure, svg: str, cells: Sequence[Beside]) -> str:
    lines = "".join(f"<tr>{''.join(f'<td>{html.escape(word)}</td>' for word in cells_of(cell))}</tr>" for cell in cells)
    title, about = html.escape(figure.title), html.escape(figure.about)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        "<style>body{font:14px system-ui;margin:2em}td{padding:2px 10px}</style>"
        f"<h1>{title}</h1><p>{about}</p>{svg}<table>{lines}</table></html>\n"
    )


def kept_figures(root: Path, results: Results) -> list[Figure]:
    """Figures of which something is kept."""
    return [figure for figure in map(load_figure, figure_names()) if _is_there(figure, root, results)]


def _is_there(figure: Figure, root: Path, results: Results) -> bool:
    """Those with runs of their own count where these are, not where another figure has some like them."""
    return missing(figure, results) != "everything" and (not figure.apart or (root / figure.name / ABOUT).is_file())


def missing(figure: Figure, results: Results) -> str:
    """What of a figure was not run, in words; `everything`, or nothing where all is there."""
    left: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    found_any = False
    for part in figure.parts:
        found = results.part(figure.name, part.name)
        found_any |= not found.is_empty()
        have: dict[str, set[int]] = {}
        for kind, width in found.select("kind", "width").unique().iter_rows():
            have.setdefault(kind, set()).add(width)
        widths = members_of(figure.name, part.name, results.choice)[0]
        for kind, (own, told) in kinds_of(figure.name, results.choice).items():
            lacks = tuple(width for width in widths if width not in have.get(kind, set()))
            if own == part.name and lacks:
                left.setdefault((part.name, lacks), []).append(_label(told))
    if figure.parts and not found_any:
        return "everything"
    return "; ".join(
        f"{part}: {', '.join(names)} d = {', '.join(map(str, widths))}" for (part, widths), names in left.items()
    )


def _label(told: Mapping[str, Any]) -> str:
    """An architecture and what tells it from others of its part."""
    more = [f"{name} {told[name]}" for name in ("relative", "filter_skip") if name in told]
    learned = ["with positions"] if told["positions"] == "learned" and told["architecture"] != "attention" else []
    bare = ["without positions"] if told["positions"] == "none" and told["architecture"] == "attention" else []
    return " ".join([str(told["architecture"]), *more, *learned, *(bare if not more else [])])
