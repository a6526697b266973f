"""How a mechanism comes about: the share of every role at the block boundaries, step by step."""

from collections.abc import Iterator
from typing import Any

import torch

from mixerscope.analysis.cells import share_estimate
from mixerscope.analysis.routes import MIN_GAP, boundary_sites
from mixerscope.analysis.stats import mean_estimate, resampling_counts
from mixerscope.errors import SelfTestFailed
from mixerscope.interventions import Cell, Grid, Pairs, interchange, plan_grid
from mixerscope.model import Model

NOT_YET = "corrupting changes too little for a share of it to be a number"


def emergence_plan(model: Model, pairs: Pairs) -> list[Cell]:
    """What is measured during training: restoring every role at every block boundary."""
    return plan_grid(model, pairs, boundary_sites(model), directions=["restore"])


def emergence_rows(step: int, grid: Grid) -> Iterator[dict[str, Any]]:
    """One row per slot, site and role. A share exists once the model reads the corrupted token at all."""
    counts = resampling_counts(len(grid.pairs))
    accuracy = grid.original.accuracy.double().mean().item()
    for cell, measured in grid.cells.items():
        gap = mean_estimate(grid.original.likelihood - grid.corrupted[cell.slot].likelihood, counts)
        share = share_estimate(grid, cell, counts) if gap.low > MIN_GAP and measured.status != "invalid" else None
        yield {
            "step": step,
            "slot": cell.slot,
            "site": cell.site,
            "role": cell.role,
            "share": None if share is None else share.value,
            "low": None if share is None else share.low,
            "high": None if share is None else share.high,
            "gap": gap.value,
            "accuracy": accuracy,
            "reason": "" if share is not None else measured.reason or NOT_YET,
        }


def observe(step: int, model: Model, pairs: Pairs, batch_documents: int) -> list[dict[str, Any]]:
    """The rows of one step; a model that cannot be measured gives one row that says why."""
    unfit = [name for name, weight in model.state_dict().items() if not bool(torch.isfinite(weight).all())]
    if unfit:
        return [_unmeasured(step, f"{unfit[0]} is not finite")]
    try:
        grid = interchange(model, pairs, emergence_plan(model, pairs), batch_documents)
    except SelfTestFailed as error:
        return [_unmeasured(step, str(error))]
    return list(emergence_rows(step, grid))


def _unmeasured(step: int, reason: str) -> dict[str, Any]:
    empty = dict.fromkeys(("slot", "site", "role", "share", "low", "high", "gap", "accuracy"))
    return {"step": step, **empty, "reason": reason}
