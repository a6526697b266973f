"""The table of path patching: one row per edge and metric, one column per fact."""

from collections.abc import Iterator
from typing import Any

import torch

from mixerscope.analysis.cells import COUNTED, NO_GAP, SHARE
from mixerscope.analysis.stats import Estimate, mean_estimate, proportion_estimate, ratio_estimate
from mixerscope.interventions import METRICS, Edge, PathGrid


def edge_rows(grid: PathGrid) -> Iterator[dict[str, Any]]:
    """All rows, edge by edge. An edge that is not a number has the reason and no value."""
    for edge, measured in grid.edges.items():
        invalid = measured.status == "invalid"
        for metric in (*METRICS, SHARE):
            estimate: Estimate | None = None
            if not invalid and metric == SHARE:
                estimate = _share(grid, edge, measured.effects.likelihood)
            elif not invalid:
                values = getattr(measured.effects, metric)
                estimate = proportion_estimate(values) if metric in COUNTED else mean_estimate(values)
            yield {
                "slot": edge.slot,
                "direction": edge.direction,
                "sender": edge.sender,
                "sender_role": edge.sender_role,
                "receiver": edge.receiver,
                "receiver_role": edge.receiver_role,
                "metric": metric,
                "value": None if estimate is None else estimate.value,
                "low": None if estimate is None else estimate.low,
                "high": None if estimate is None else estimate.high,
                "n": len(grid.pairs),
                "status": measured.status,
                "reason": measured.reason if estimate is not None or measured.reason else NO_GAP,
            }


def _share(grid: PathGrid, edge: Edge, edited: torch.Tensor) -> Estimate | None:
    """How much of the gap between original and corrupted passes along the edge."""
    original, corrupted = grid.original.likelihood.double(), grid.corrupted[edge.slot].likelihood.double()
    moved = edited.double() - corrupted if edge.direction == "restore" else original - edited.double()
    return ratio_estimate(moved, original - corrupted)
