"""Figure 5: the output of Mamba's convolutions restored, at every rate."""

from collections.abc import Mapping

import polars as pl

from mixerscope.experiments.paper.data import Results, Row, rows_of
from mixerscope.experiments.paper.drawing import Chart, heat_maps
from mixerscope.experiments.paper.tables import CellKey

TITLE = "Mamba on associative recall, every learning rate: output of the convolution restored, likelihood x 100"
ORIGINAL, CORRUPTED = "Original", "Corrupted"
PLACES = {
    "Restored @ 0, value": ("blocks.0.mixer.conv_out", "value"),
    "Restored @ 0, next key": ("blocks.0.mixer.conv_out", "next_key"),
    "Restored @ 1, value": ("blocks.1.mixer.conv_out", "value"),
}
PANELS = (ORIGINAL, CORRUPTED, *PLACES)
RATES = ("3e-02", "1e-02", "3e-03", "1e-03", "3e-04", "1e-04", "3e-05")


def rows(results: Results) -> list[Row]:
    """What the figure shows, a row a seed: no rate is chosen. A run that diverged has no number."""
    runs = results.part("fig5", "mamba").filter(pl.col("outcome") != "diverged")
    runs = runs.with_columns(pl.col("lr").map_elements("{:.0e}".format, return_dtype=pl.String).alias("rate"))
    found = [*rows_of(runs, ORIGINAL, "rate", "likelihood"), *rows_of(runs, CORRUPTED, "rate", "corrupted")]
    for panel, (site, role) in PLACES.items():
        found += rows_of(results.restored(runs, site, role), panel, "rate", "restored")
    return found


def draw(results: Results, published: Mapping[CellKey, float]) -> Chart:
    return heat_maps(rows(results), published, PANELS, RATES, TITLE)
