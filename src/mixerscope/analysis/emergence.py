"""How a mechanism comes about: the share of every role at the block boundaries, step by step."""

from collections.abc import Iterator, Sequence
from typing import Any

from mixerscope.analysis.cells import NO_GAP, share_estimates
from mixerscope.analysis.routes import boundary_sites
from mixerscope.analysis.rules import MIN_GAP
from mixerscope.analysis.stats import Estimate, mean_estimate
from mixerscope.errors import SelfTestFailed
from mixerscope.interventions import Cell, Grid, Pairs, grids_or_failures, plan_grid
from mixerscope.model import Model


def emergence_plan(model: Model, pairs: Pairs) -> list[Cell]:
    """What is measured during training: restoring every role at every block boundary."""
    return plan_grid(model, pairs, boundary_sites(model), directions=["restore"])


def emergence_rows(step: int, grid: Grid) -> Iterator[dict[str, Any]]:
    """One row per slot, site and role. A share exists once the model reads the corrupted token at all."""
    accuracy = grid.original.accuracy.double().mean().item()
    shares: dict[Cell, Estimate | None] = {}
    gaps: dict[str, Estimate] = {}
    for slot, effects in grid.corrupted.items():
        gaps[slot] = mean_estimate(grid.original.likelihood.double() - effects.likelihood.double())
        if gaps[slot].low > MIN_GAP:
            valid = [cell for cell, m in grid.cells.items() if cell.slot == slot and m.status != "invalid"]
            shares |= dict(zip(valid, share_estimates(grid, valid), strict=True))
    for cell, measured in grid.cells.items():
        share = shares.get(cell)
        yield {
            "step": step,
            "slot": cell.slot,
            "site": cell.site,
            "role": cell.role,
            "share": None if share is None else share.value,
            "low": None if share is None else share.low,
            "high": None if share is None else share.high,
            "gap": gaps[cell.slot].value,
            "accuracy": accuracy,
            "reason": "" if share is not None else measured.reason or NO_GAP,
        }


def observe(step: int, models: Sequence[Model], pairs: Pairs, batch_documents: int) -> list[list[dict[str, Any]]]:
    """The rows of one step for models of one shape; one that cannot be measured gives a single row that says why."""
    unfit = [_not_finite(model) for model in models]
    sound = [model for model, name in zip(models, unfit, strict=True) if name is None]
    plan = emergence_plan(models[0], pairs)
    grids = iter(grids_or_failures(sound, pairs, plan, batch_documents))
    found: list[list[dict[str, Any]]] = []
    for name in unfit:
        if name is not None:
            found.append([_unmeasured(step, f"{name} is not finite")])
            continue
        grid = next(grids)
        failed = isinstance(grid, SelfTestFailed)
        found.append([_unmeasured(step, str(grid))] if failed else list(emergence_rows(step, grid)))
    return found


def _not_finite(model: Model) -> str | None:
    """The first weight that is not a number, by name."""
    return next((name for name, weight in model.state_dict().items() if not bool(weight.isfinite().all())), None)


def _unmeasured(step: int, reason: str) -> dict[str, Any]:
    empty = dict.fromkeys(("slot", "site", "role", "share", "low", "high", "gap", "accuracy"))
    return {"step": step, **empty, "reason": reason}
