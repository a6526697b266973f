"""The tables of docs/reproduction.md, worked out from what is kept in `reproduction/`; `--write` puts them there, and
the drawing of Figure 3 onto the first page."""

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import polars as pl

from benchmarks.paste import paste, table
from mixerscope.experiments.paper.claims import counted, tested_claims
from mixerscope.experiments.paper.cost import costs
from mixerscope.experiments.paper.data import Results
from mixerscope.experiments.paper.disagreements import disagreements
from mixerscope.experiments.paper.drawing import ARCHITECTURES
from mixerscope.experiments.paper.panels import named
from mixerscope.experiments.paper.render import compared, kept_figures, load_results, missing, read_about
from mixerscope.experiments.paper.sweeps import Choice, figure_names, load_figure
from mixerscope.experiments.paper.tables import COLUMNS, NOT_PRINTED, cells_of, counts
from mixerscope.progress import duration
from mixerscope.sweep.plan import Imagined

ROOT = Path(__file__).parents[1] / "reproduction"
PAGE = "reproduction.md"
DRAWING, PICTURE = ROOT / "fig3" / "figure.png", Path(__file__).parents[1] / "docs" / "figure3.png"
COSTS = "what figures cost"
MOST_WORDS = 160
"""Letters of what was not run; the page of the reproduction has all of it."""


def tables(root: Path = ROOT) -> dict[str, str]:
    """Marker on the page to its table."""
    results = load_results(root)
    return {
        "figures that are kept": _figures(root, results),
        "figure 3, likelihood": _figure3(results),
        "cells that disagree": _outside(root, results),
        "both presets": _presets(root),
        "claims of the paper": _claims(results),
    }


def _figures(root: Path, results: Results) -> str:
    rows: list[list[str]] = []
    for figure in kept_figures(root, results):
        about = read_about(root / figure.name)
        cells = compared(figure.name, results if figure.parts else None)
        found = ", ".join(f"{count} {name}" for name, count in counts(cells).items() if name != NOT_PRINTED)
        left = missing(figure, results)
        left = left if len(left) <= MOST_WORDS else f"{left[:MOST_WORDS].rpartition(';')[0]}; ..."
        own = [str(about["runs"]), str(about["with_proof"]), duration(about["seconds"])] if about else ["–", "–", "–"]
        rows.append([figure.name, *own, found or "–", left or "–"])
    return table(["figure", "runs", "with proof", "GPU time", "published numbers", "not run"], rows)


def _figure3(results: Results) -> str:
    cells = [cell for cell in compared("fig3", results) if cell.panel == "Original"]
    return table(list(COLUMNS[1:]), [list(cells_of(cell)[1:]) for cell in cells])


def _outside(root: Path, results: Results) -> str:
    rows = [
        [found.figure, *cells_of(found.cell)[:-1], found.cause]
        for figure in kept_figures(root, results)
        for found in disagreements(figure.name, compared(figure.name, results if figure.parts else None))
    ]
    return table(["figure", *COLUMNS[:-1], "cause"], rows)


def _presets(root: Path) -> str:
    """Figure 3 by both ways of choosing rates, and the published reading beside the verdict, of the clean choice."""
    clean, paper = (load_results(root, preset) for preset in ("clean", "paper"))
    best = named(clean.best(clean.part("fig3", "recall")))
    medians = [
        {(cell.row, cell.width): cell.median for cell in compared("fig3", results) if cell.panel == "Original"}
        for results in (paper, clean)
    ]
    rows: list[list[str]] = []
    for name in ARCHITECTURES:
        for width in sorted(best.filter(pl.col("name") == name)["width"].unique().to_list()):
            own = best.filter((pl.col("name") == name) & (pl.col("width") == width))
            numbers = [f"{median[name, width]:.1f}" for median in medians]
            rows.append([name, str(width), *numbers, _counted(own["published_reading"]), _counted(own["mechanism"])])
    header = ["architecture", "d", "chosen on test", "chosen on dev", "published reading", "verdict"]
    return table(header, rows)


def _counted(names: pl.Series) -> str:
    found = Counter("not patched" if name is None else str(name) for name in names.to_list())
    return ", ".join(f"{name} {count}" for name, count in sorted(found.items(), key=lambda one: (-one[1], one[0])))


def _claims(results: Results) -> str:
    found = tested_claims(results)
    rows: list[list[str]] = []
    for one in found:
        share = (
            "–"
            if one.interval is None
            else f"{one.passed} of {one.models} [{one.interval[0]:.2f}, {one.interval[1]:.2f}]"
        )
        again = "–" if one.again is None else f"{one.again:.0%}"
        words = [one.claim.sentence, one.claim.section, one.outcome, again, one.effect or "–", share, str(one.seeds)]
        rows.append([*words, f"`{one.claim.command}`"])
    sums = ", ".join(f"{count} {name}" for name, count in counted(found).items())
    header = ["claim", "section", "outcome", "again so", "effect", "models that pass", "seeds", "command"]
    return f"{table(header, rows)}\n\n{len(found)} claims: {sums}."


def cost_table() -> str:
    """What every figure takes from nothing, on one GPU, with three seeds; those before it having been run."""
    figures = [load_figure(name) for name in figure_names()]
    machine = Imagined("cuda", compile=True)
    paper = [figure for figure in figures if figure.parts and not figure.apart]
    with tempfile.TemporaryDirectory() as empty:
        found = costs(paper, Choice(), Path(empty), machine)
        for figure in figures:
            found += costs([figure], Choice(), Path(empty), machine) if figure.apart else []
    rows = [[c.name, f"{c.runs:,}", f"{c.runs - c.shared:,}", str(c.cohorts), f"{c.minutes:.0f}"] for c in found]
    return table(["figure", "runs", "not in one above", "cohorts", "minutes, estimated"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put them into docs/reproduction.md")
    parser.add_argument("--costs", action="store_true", help="only what figures cost, which takes a minute")
    options = parser.parse_args()
    for name, text in ({COSTS: cost_table()} if options.costs else tables()).items():
        if options.write:
            paste(PAGE, name, text)
        else:
            sys.stdout.write(f"{name}\n\n{text}\n\n")
    if options.write:
        shutil.copyfile(DRAWING, PICTURE)


if __name__ == "__main__":
    main()
