"""Figure 4b: accuracy of Based by the kernel of its convolution."""

from collections.abc import Mapping

import polars as pl

from mixerscope.experiments.paper.data import Results, Row, rows_of
from mixerscope.experiments.paper.drawing import Chart, heat_maps
from mixerscope.experiments.paper.panels import ACCURACY
from mixerscope.experiments.paper.sweeps import load_figure
from mixerscope.experiments.paper.tables import CellKey

TITLE = "Based on associative recall by the kernel of its convolution: accuracy x 100"
LINES = {"kernel-1": "1", "kernel-2": "2", "kernel-3": "3", "kernel-4": "4", "long": "long"}


def rows(results: Results) -> list[Row]:
    """What the figure shows, a row a seed."""
    found: list[Row] = []
    for part in load_figure("fig4b").parts:
        best = results.best(results.part("fig4b", part.name)).with_columns(pl.lit(LINES[part.name]).alias("line"))
        found += rows_of(best, ACCURACY, "line", "accuracy")
    return found


def draw(results: Results, published: Mapping[CellKey, float]) -> Chart:
    return heat_maps(rows(results), published, [ACCURACY], list(LINES.values()), TITLE)
