"""Figure 8: as Figure 4a, on treecall, with every panel."""

from collections.abc import Mapping

from mixerscope.experiments.fig4a.figure import LINES, rows_by_convolution
from mixerscope.experiments.paper.data import Results, Row
from mixerscope.experiments.paper.drawing import Chart, heat_maps
from mixerscope.experiments.paper.panels import ACCURACY, CORRUPTED, ORIGINAL, RESTORED
from mixerscope.experiments.paper.tables import CellKey

TITLE = "Mamba on treecall by the width of its convolution: likelihood of the answer x 100"
PANELS = (ORIGINAL, CORRUPTED, RESTORED["query"], RESTORED["key"], RESTORED["value"])


def rows(results: Results) -> list[Row]:
    """What the figure shows, a row a seed."""
    return rows_by_convolution(results, "fig8", (*PANELS, ACCURACY))


def draw(results: Results, published: Mapping[CellKey, float]) -> Chart:
    return heat_maps(rows(results), published, PANELS, list(LINES.values()), TITLE)
