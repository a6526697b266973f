"""Figure 4a: likelihood of Mamba by the width of its convolution."""

from collections.abc import Mapping

import polars as pl

from mixerscope.experiments.paper.data import Results, Row
from mixerscope.experiments.paper.drawing import Chart, heat_maps
from mixerscope.experiments.paper.panels import ACCURACY, CORRUPTED, ORIGINAL, RESTORED, likelihood_rows
from mixerscope.experiments.paper.sweeps import load_figure
from mixerscope.experiments.paper.tables import CellKey

TITLE = "Mamba on associative recall by the width of its convolution: likelihood of the answer x 100"
PANELS = (ORIGINAL, RESTORED["query"], RESTORED["key"])
"""The paper leaves the value out, where nothing came back; `rows` has more."""
LINES = {"none": "none", "conv-1": "1", "conv-2": "2", "conv-3": "3", "conv-4": "4"}


def rows_by_convolution(results: Results, figure: str, panels: tuple[str, ...]) -> list[Row]:
    """The best runs of every width of convolution; a row a seed."""
    found: list[Row] = []
    for part in load_figure(figure).parts:
        best = results.best(results.part(figure, part.name)).with_columns(pl.lit(LINES[part.name]).alias("line"))
        found += likelihood_rows(results, best, "line", panels)
    return sorted(found, key=lambda row: panels.index(row["panel"]))


def rows(results: Results) -> list[Row]:
    """What the figure shows, a row a seed."""
    return rows_by_convolution(results, "fig4a", (*PANELS, RESTORED["value"], CORRUPTED, ACCURACY))


def draw(results: Results, published: Mapping[CellKey, float]) -> Chart:
    return heat_maps(rows(results), published, PANELS, list(LINES.values()), TITLE)
