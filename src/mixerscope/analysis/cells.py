"""The intervention table: one row per cell and metric, one column per fact."""

from collections.abc import Iterator
from typing import Any

import torch

from mixerscope.analysis.stats import Estimate, mean_estimate, ratio_estimate, resampling_counts
from mixerscope.interventions import Cell, Grid, Measured
from mixerscope.interventions.resume import split_site

SHARE = "share"
"""(edited - unedited) / (target - unedited) of the mean likelihood: 1 is full restoration, or full damage."""

NO_GAP = "corrupting changes too little for a share of it to be a number"


def share_estimate(grid: Grid, cell: Cell, counts: torch.Tensor) -> Estimate | None:
    """How much of the gap between original and corrupted the edit closes, as a ratio of means over documents.

    None where corrupting changes so little that the gap of some resample is exactly zero.
    """
    original, corrupted = grid.original.likelihood, grid.corrupted[cell.slot].likelihood
    edited = grid.cells[cell].effects.likelihood
    moved = edited - corrupted if cell.direction == "restore" else original - edited
    return ratio_estimate(moved, original - corrupted, counts)


def cell_rows(grid: Grid) -> Iterator[dict[str, Any]]:
    """All rows of the table. A cell that is not a number has the reason and no value."""
    counts = resampling_counts(len(grid.pairs))
    for cell, measured in grid.cells.items():
        layer, component = split_site(cell.site) if cell.site != "embed" else (0, "embed")
        facts = {
            "site": cell.site,
            "layer": layer,
            "component": component,
            "slot": cell.slot,
            "role": cell.role,
            "direction": cell.direction,
        }
        for metric, estimate in _estimates(grid, cell, measured, counts):
            known = estimate is not None
            yield {
                **facts,
                "metric": metric,
                "value": estimate.value if known else None,
                "low": estimate.low if known else None,
                "high": estimate.high if known else None,
                "n": len(grid.pairs),
                "status": measured.status,
                "reason": measured.reason if known or measured.reason else NO_GAP,
            }


def _estimates(
    grid: Grid, cell: Cell, measured: Measured, counts: torch.Tensor
) -> Iterator[tuple[str, Estimate | None]]:
    effects = measured.effects
    values = {"likelihood": effects.likelihood, "accuracy": effects.accuracy, "logit": effects.logit}
    for metric, value in values.items():
        yield metric, None if measured.status == "invalid" else mean_estimate(value, counts)
    yield SHARE, None if measured.status == "invalid" else share_estimate(grid, cell, counts)
