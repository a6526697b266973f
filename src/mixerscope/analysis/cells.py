"""The intervention table: one row per cell and metric, one column per fact."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from mixerscope.analysis.stats import Estimate, mean_estimates, proportion_estimates, ratio_estimates
from mixerscope.interventions import METRICS, Cell, Grid
from mixerscope.interventions.pairs import JOINT
from mixerscope.interventions.resume import split_site

SHARE = "share"
"""(edited - unedited) / (target - unedited) of the mean likelihood: 1 is full restoration, or full damage."""

BEST = "best"
"""Share of documents for which the edit at this role moves the likelihood most, among the single roles of the same
slot, direction, site and edit, and moves it towards the target at all; ties go to the role that the plan has first."""

NO_GAP = "corrupting changes too little for a share of it to be a number"


COUNTED = ("accuracy",)
"""Metrics that are yes or no for each document."""


def share_estimates(grid: Grid, cells: Sequence[Cell]) -> Sequence[Estimate | None]:
    """How much of the gap between original and corrupted each edit closes, as a ratio of means over documents.

    All cells of one slot. None where corrupting changes so little that the gap cannot be told from zero.
    """
    if not cells:
        return []
    [slot] = {cell.slot for cell in cells}
    original, corrupted = grid.original.likelihood.double(), grid.corrupted[slot].likelihood.double()
    edited = torch.stack([grid.cells[cell].effects.likelihood for cell in cells]).double()
    restores = torch.tensor([cell.direction == "restore" for cell in cells], device=edited.device)[:, None]
    return ratio_estimates((edited - corrupted).where(restores, original - edited), original - corrupted)


def best_roles(grid: Grid) -> dict[Cell, torch.Tensor]:
    """Per valid cell with a single role: [n] whether it is the best one of its group for each document."""
    groups: dict[tuple[str, str, str, str], list[Cell]] = defaultdict(list)
    for cell, measured in grid.cells.items():
        if JOINT not in cell.role and measured.status != "invalid":
            groups[cell.slot, cell.direction, cell.site, cell.edit].append(cell)
    best: dict[Cell, torch.Tensor] = {}
    for (slot, direction, _, _), cells in groups.items():
        edited = torch.stack([grid.cells[cell].effects.likelihood for cell in cells])
        restoring = direction == "restore"
        moved = edited - grid.corrupted[slot].likelihood if restoring else grid.original.likelihood - edited
        most, which = moved.max(0)
        best |= {cell: (which == i) & (most > 0) for i, cell in enumerate(cells)}
    return best


def cell_rows(grid: Grid) -> Iterator[dict[str, Any]]:
    """All rows of the table, cell by cell. A cell that is not a number has the reason and no value."""
    estimates: dict[tuple[Cell, str], Estimate | None] = {}
    valid = [cell for cell, measured in grid.cells.items() if measured.status != "invalid"]
    for metric in METRICS if valid else ():
        values = torch.stack([getattr(grid.cells[cell].effects, metric) for cell in valid])
        found = proportion_estimates(values) if metric in COUNTED else mean_estimates(values)
        estimates |= {(cell, metric): e for cell, e in zip(valid, found, strict=True)}
    best = best_roles(grid)
    if best:
        found = proportion_estimates(torch.stack(list(best.values())).double())
        estimates |= {(cell, BEST): e for cell, e in zip(best, found, strict=True)}
    for slot in grid.corrupted:
        cells = [cell for cell in valid if cell.slot == slot]
        estimates |= {(cell, SHARE): e for cell, e in zip(cells, share_estimates(grid, cells), strict=True)}
    for cell, measured in grid.cells.items():
        layer, component = split_site(cell.site) if cell.site != "embed" else (0, "embed")
        for metric in (*METRICS, SHARE, *([] if JOINT in cell.role else [BEST])):
            estimate = estimates.get((cell, metric))
            known = estimate is not None
            yield {
                "site": cell.site,
                "layer": layer,
                "component": component,
                "slot": cell.slot,
                "role": cell.role,
                "direction": cell.direction,
                "edit": cell.edit,
                "metric": metric,
                "value": estimate.value if known else None,
                "low": estimate.low if known else None,
                "high": estimate.high if known else None,
                "n": len(grid.pairs),
                "status": measured.status,
                "reason": measured.reason if known or measured.reason else NO_GAP,
            }
