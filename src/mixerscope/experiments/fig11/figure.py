"""Figure 11: accuracy over width with one block and with two."""

from collections.abc import Mapping

from mixerscope.experiments.paper.data import Results, Row
from mixerscope.experiments.paper.drawing import Chart, lines
from mixerscope.experiments.paper.panels import accuracy_rows
from mixerscope.experiments.paper.tables import CellKey

TITLE = "Accuracy with one block and with two (with one, BaseConv is Based)"
PANELS = {"AR": ("recall-1", "recall-2"), "ATR": ("treecall-1", "treecall-2")}


def rows(results: Results) -> list[Row]:
    """What the figure shows, a row a seed; `layers` tells the lines of an architecture apart."""
    found = [
        row
        for panel, parts in PANELS.items()
        for part in parts
        for row in accuracy_rows(results, "fig11", part, panel, "layers")
    ]
    return [{**row, "layers": row["row"].partition(", ")[2]} for row in found]


def draw(results: Results, published: Mapping[CellKey, float]) -> Chart:
    return lines(rows(results), published, list(PANELS), TITLE, dash="layers")
