"""The intervention table: one row per cell and metric, one column per fact."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch

from mixerscope.analysis.stats import Estimate, mean_estimate, ratio_estimate, resampling_counts
from mixerscope.interventions import METRICS, Cell, Grid, Measured
from mixerscope.interventions.pairs import JOINT
from mixerscope.interventions.resume import split_site

SHARE = "share"
"""(edited - unedited) / (target - unedited) of the mean likelihood: 1 is full restoration, or full damage."""

BEST = "best"
"""Share of documents for which the edit at this role moves the likelihood most, among the single roles of the same
slot, direction, site and edit, and moves it towards the target at all; ties go to the role that the plan has first."""

NO_GAP = "corrupting changes too little for a share of it to be a number"


def share_estimate(grid: Grid, cell: Cell, counts: torch.Tensor) -> Estimate | None:
    """How much of the gap between original and corrupted the edit closes, as a ratio of means over documents.

    None where corrupting changes so little that the gap of some resample is exactly zero.
    """
    gap = grid.original.likelihood - grid.corrupted[cell.slot].likelihood
    return ratio_estimate(_moved(grid, cell), gap, counts)


def _moved(grid: Grid, cell: Cell) -> torch.Tensor:
    """[n] how far the edit moves the likelihood towards that of the source."""
    edited = grid.cells[cell].effects.likelihood
    if cell.direction == "restore":
        return edited - grid.corrupted[cell.slot].likelihood
    return grid.original.likelihood - edited


Group = tuple[str, str, str, str]


def _group(cell: Cell) -> Group:
    return cell.slot, cell.direction, cell.site, cell.edit


def best_roles(grid: Grid) -> dict[Cell, torch.Tensor]:
    """Per cell with a single role: [n] whether it is the best one of its group for each document."""
    groups: dict[Group, list[Cell]] = defaultdict(list)
    for cell, measured in grid.cells.items():
        if JOINT not in cell.role and measured.status != "invalid":
            groups[_group(cell)].append(cell)
    best: dict[Cell, torch.Tensor] = {}
    for cells in groups.values():
        most, which = torch.stack([_moved(grid, cell) for cell in cells]).max(0)
        best |= {cell: (which == i) & (most > 0) for i, cell in enumerate(cells)}
    return best


def cell_rows(grid: Grid) -> Iterator[dict[str, Any]]:
    """All rows of the table. A cell that is not a number has the reason and no value."""
    counts = resampling_counts(len(grid.pairs))
    best = best_roles(grid)
    for cell, measured in grid.cells.items():
        layer, component = split_site(cell.site) if cell.site != "embed" else (0, "embed")
        facts = {
            "site": cell.site,
            "layer": layer,
            "component": component,
            "slot": cell.slot,
            "role": cell.role,
            "direction": cell.direction,
            "edit": cell.edit,
        }
        for metric, estimate in _estimates(grid, cell, measured, best.get(cell), counts):
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
    grid: Grid, cell: Cell, measured: Measured, best: torch.Tensor | None, counts: torch.Tensor
) -> Iterator[tuple[str, Estimate | None]]:
    invalid = measured.status == "invalid"
    for metric in METRICS:
        yield metric, None if invalid else mean_estimate(getattr(measured.effects, metric), counts)
    yield SHARE, None if invalid else share_estimate(grid, cell, counts)
    if JOINT not in cell.role:
        yield BEST, None if best is None else mean_estimate(best, counts)
