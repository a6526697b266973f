"""Beyond the paper: grandparents, one block of attention behind a convolution; emergence is shown by the report."""

from collections.abc import Mapping

import polars as pl

from mixerscope.experiments.paper.data import Results, Row, rows_of
from mixerscope.experiments.paper.drawing import Chart, words
from mixerscope.experiments.paper.panels import ACCURACY, named
from mixerscope.experiments.paper.sweeps import load_figure
from mixerscope.experiments.paper.tables import CellKey

FIGURE = "beyond"
COLUMNS = ("part", "model", "d", "seed", "accuracy", "mechanism", "route", "published reading")


def rows_by_part(results: Results, figure: str) -> list[Row]:
    """The best runs of every part, a row a seed."""
    found: list[Row] = []
    for part in load_figure(figure).parts:
        best = named(results.best(results.part(figure, part.name)))
        if not best.is_empty():
            best = best.with_columns((pl.lit(f"{part.name}: ") + pl.col("name")).alias("line"))
            found += rows_of(best, ACCURACY, "line", "accuracy")
    return found


def lines_by_part(results: Results, figure: str) -> list[Row]:
    """The same in words, with the verdict."""
    found: list[Row] = []
    for part in load_figure(figure).parts:
        for run in named(results.best(results.part(figure, part.name))).iter_rows(named=True):
            said = (part.name, run["name"], run["width"], run["seed"], f"{100 * (run['accuracy'] or 0):.1f}")
            verdict = (run["mechanism"] or run["reason"], run["route"], run["published_reading"])
            found.append(dict(zip(COLUMNS, (*said, *verdict), strict=True)))
    return found


def rows(results: Results) -> list[Row]:
    """Accuracy, a row a seed."""
    return rows_by_part(results, FIGURE)


def draw(results: Results, published: Mapping[CellKey, float]) -> Chart:
    return words(lines_by_part(results, FIGURE), COLUMNS, "Beyond the paper: best runs")
