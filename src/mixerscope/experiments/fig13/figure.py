"""Figure 13: accuracy on sibling queries with one to three blocks."""

from collections.abc import Mapping

from mixerscope.experiments.paper.data import Results, Row
from mixerscope.experiments.paper.drawing import Chart, lines
from mixerscope.experiments.paper.panels import accuracy_rows
from mixerscope.experiments.paper.tables import CellKey

TITLE = "Sibling queries on treecall (with one block, BaseConv is Based)"
PANELS = {"1 layer": "layers-1", "2 layers": "layers-2", "3 layers": "layers-3"}


def rows(results: Results) -> list[Row]:
    """What the figure shows, a row a seed."""
    return [row for panel, part in PANELS.items() for row in accuracy_rows(results, "fig13", part, panel)]


def draw(results: Results, published: Mapping[CellKey, float]) -> Chart:
    return lines(rows(results), published, list(PANELS), TITLE)
