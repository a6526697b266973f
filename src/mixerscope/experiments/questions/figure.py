"""Runs that test why cells of Figure 3 disagree, likelihood beside the published number of the same cell."""

from collections.abc import Mapping

import polars as pl

from mixerscope.experiments.beyond.figure import COLUMNS, lines_by_part
from mixerscope.experiments.paper.data import Results, Row, rows_of
from mixerscope.experiments.paper.drawing import Chart, words
from mixerscope.experiments.paper.panels import ORIGINAL, named
from mixerscope.experiments.paper.sweeps import load_figure
from mixerscope.experiments.paper.tables import CellKey

FIGURE = "questions"


def rows(results: Results) -> list[Row]:
    """Likelihood of the best runs, a row a seed."""
    found: list[Row] = []
    for part in load_figure(FIGURE).parts:
        best = named(results.best(results.part(FIGURE, part.name)))
        if not best.is_empty():
            skip = (
                (pl.lit(", filter_skip ") + pl.col("filter_skip").cast(pl.String))
                if "filter_skip" in best.columns
                else pl.lit("")
            )
            best = best.with_columns((pl.lit(f"{part.name}: ") + pl.col("name") + skip).alias("line"))
            found += rows_of(best, ORIGINAL, "line", "likelihood")
    return found


def draw(results: Results, published: Mapping[CellKey, float]) -> Chart:
    return words(lines_by_part(results, FIGURE), COLUMNS, "Causes that were tried: best runs")
