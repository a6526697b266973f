"""Figure 7: as Figure 3, on treecall."""

from collections.abc import Mapping

from mixerscope.experiments.paper.data import Results, Row
from mixerscope.experiments.paper.drawing import ARCHITECTURES, Chart, heat_maps
from mixerscope.experiments.paper.panels import ACCURACY, FIVE, likelihood_rows, named
from mixerscope.experiments.paper.tables import CellKey

TITLE = "Associative treecall: likelihood of the answer x 100, input of the second block restored"


def rows(results: Results) -> list[Row]:
    """What the figure shows, a row a seed."""
    best = results.best(results.part("fig7", "treecall"))
    return likelihood_rows(results, named(best), "name", (*FIVE, ACCURACY))


def draw(results: Results, published: Mapping[CellKey, float]) -> Chart:
    return heat_maps(rows(results), published, FIVE, ARCHITECTURES, TITLE)
