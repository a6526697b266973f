"""Figure 12: one to three blocks on recall: accuracy, and in which block the mixer writes the answer to the query."""

from collections.abc import Mapping

import polars as pl

from mixerscope.experiments.paper.data import Results, Row, share_of
from mixerscope.experiments.paper.drawing import Chart, beside_each_other, boxes, lines
from mixerscope.experiments.paper.panels import accuracy_rows, named
from mixerscope.experiments.paper.tables import CellKey

PANELS = {"1 layer": "layers-1", "2 layers": "layers-2", "3 layers": "layers-3"}
LIMITS = (-0.2, 1.2)
"""Of the box plots; what lies outside is left out, as published."""
LEAST_GAP = 0.01
"""Checkpoints whose likelihood corrupting lowers by less are left out, as published."""


def rows(results: Results) -> list[Row]:
    """Figure 12a, a row a seed."""
    return [row for panel, part in PANELS.items() for row in accuracy_rows(results, "fig12", part, panel)]


def shares(results: Results) -> list[Row]:
    """Figure 12b: what restoring the output of each block's mixer at the query gives, every checkpoint."""
    found: list[Row] = []
    for depth, (panel, part) in enumerate(PANELS.items(), start=1):
        runs = named(results.part("fig12", part))
        runs = runs.filter(pl.col("likelihood") - pl.col("corrupted") > LEAST_GAP)
        for block in range(depth):
            at = results.restored(runs, f"blocks.{block}.mixer_out", "query")
            for run in at.iter_rows(named=True):
                value = share_of(run["restored"], run["likelihood"], run["corrupted"])
                told = {key: run[key] for key in ("width", "seed", "lr", "run_id", "accuracy")}
                found.append({"row": run["name"], "block": f"block {block}", "depth": panel, "value": value, **told})
    return found


def draw(results: Results, published: Mapping[CellKey, float]) -> Chart:
    return beside_each_other(
        lines(rows(results), published, list(PANELS), "a: accuracy"),
        boxes(shares(results), "b: share restored by the mixer's output at the query", LIMITS, "block", "depth"),
    )
