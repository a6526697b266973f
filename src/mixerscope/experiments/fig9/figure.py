"""Figure 9: accuracy over width with learned positions and without; attention with RoPE and ALiBi beside."""

from collections.abc import Mapping

import polars as pl

from mixerscope.experiments.paper.data import Results, Row, rows_of
from mixerscope.experiments.paper.drawing import Chart, lines
from mixerscope.experiments.paper.panels import named
from mixerscope.experiments.paper.tables import CellKey

TITLE = "Accuracy with learned positions and with none"
PANELS = {
    "AR": ("recall", "relative-recall"),
    "ATR, L = 5": ("treecall", "relative-treecall"),
    "ATR, L = 10": ("longer-learned", "longer-none", "relative-longer"),
}


def rows(results: Results) -> list[Row]:
    """What the figure shows, a row a seed; `positions` tells the lines of an architecture apart."""
    found: list[Row] = []
    for panel, parts in PANELS.items():
        for part in parts:
            best = named(results.best(results.part("fig9", part)))
            if best.is_empty():
                continue
            how = pl.col("relative") if "relative" in best.columns else pl.col("positions")
            best = best.with_columns(how.alias("how"), (pl.col("name") + ", " + how).alias("line"))
            found += rows_of(best, panel, "line", "accuracy", positions="how")
    return found


def draw(results: Results, published: Mapping[CellKey, float]) -> Chart:
    return lines(rows(results), published, list(PANELS), TITLE, dash="positions")
