"""Attribution patching: a whole grid of swaps estimated from one gradient, and how wrong that is.

To first order, writing value v over activation a moves the likelihood by (v - a) . d likelihood / d a. One forward and
one backward pass per slot and direction give that for every site and role. It misleads where the model is far from
linear between the two (a saturated softmax above all), so the estimate comes with its error against an exact grid.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mixerscope.artifacts.base import Frames
from mixerscope.artifacts.effects import SWAP, Cell
from mixerscope.errors import UserError
from mixerscope.interventions.batching import device_of
from mixerscope.interventions.cache import evaluating
from mixerscope.interventions.engine import Grid
from mixerscope.interventions.pairs import Pairs
from mixerscope.interventions.plan import check_plan, plan_grid
from mixerscope.interventions.resume import pick
from mixerscope.interventions.states import is_state
from mixerscope.model import Model
from mixerscope.showing import counted
from mixerscope.sites import Tap, edit
from mixerscope.training.objective import answer_likelihood


@dataclass(frozen=True)
class ApproximationError:
    """How far estimated effects (means over documents) are from measured ones, over all cells of both."""

    cells: int
    mean_absolute: float
    worst: float
    worst_cell: Cell
    correlation: float | None
    """None where either side is the same for every cell."""


@dataclass(frozen=True, repr=False)
class Attribution(Frames):
    """Per cell: [n] estimated change of the answer's likelihood, edited minus unedited."""

    cells: Mapping[Cell, Tensor]

    def sentence(self) -> str:
        """One line for people."""
        return f"{counted(len(self.cells), 'cell')}, estimated from gradients"

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row per cell, with its mean over documents."""
        for cell, change in self.cells.items():
            where = {"slot": cell.slot, "direction": cell.direction, "site": cell.site, "role": cell.role}
            yield {**where, "edit": cell.edit, "change": change.double().mean().item(), "n": len(change)}

    def error_against(self, grid: Grid) -> ApproximationError:
        """The error on the cells that an exact grid measured too."""
        shared = [cell for cell in self.cells if cell in grid.cells and grid.cells[cell].status != "invalid"]
        if not shared:
            raise UserError("the grid holds no valid cell of this estimate, so its error cannot be said")
        exact = torch.stack([measured_change(grid, cell).double().mean() for cell in shared])
        guess = torch.stack([self.cells[cell].double().mean() for cell in shared])
        apart = (guess - exact).abs()
        varies = len(shared) > 1 and bool(guess.std() > 0) and bool(exact.std() > 0)
        return ApproximationError(
            len(shared),
            apart.mean().item(),
            apart.max().item(),
            shared[int(apart.argmax())],
            torch.corrcoef(torch.stack([guess, exact]))[0, 1].item() if varies else None,
        )


def measured_change(grid: Grid, cell: Cell) -> Tensor:
    """[n] likelihood of the answer, edited minus unedited, as an exact grid has it."""
    unedited = grid.corrupted[cell.slot] if cell.direction == "restore" else grid.original
    return grid.cells[cell].effects.likelihood - unedited.likelihood


def attribution_patching(
    model: Model, pairs: Pairs, plan: list[Cell] | None = None, batch_documents: int = 64
) -> Attribution:
    """The estimate of every cell of a plan of swaps (default: all slots, directions, sites and roles)."""
    plan = plan_grid(model, pairs) if plan is None else plan
    check_plan(model, pairs, plan)
    for cell in plan:
        if cell.edit != SWAP or is_state(cell.site) or cell.head >= 0:
            raise UserError(f"attribution patching estimates swaps at whole sites, not {cell.edit} at {cell.site!r}")
    parts: dict[Cell, list[Tensor]] = defaultdict(list)
    sites = sorted({cell.site for cell in plan})
    with evaluating(model), torch.enable_grad():
        for chunk in pairs.to(device_of(model)).chunks(batch_documents):
            original = _with_gradients(model, chunk, chunk.original.tokens, sites)
            for slot, batch in chunk.corrupted.items():
                corrupted = _with_gradients(model, chunk, batch.tokens, sites)
                for cell in plan:
                    if cell.slot != slot:
                        continue
                    base, source = (corrupted, original) if cell.direction == "restore" else (original, corrupted)
                    places = chunk.places(cell.role)
                    change = pick(source[cell.site][0] - base[cell.site][0], places)
                    gradient = pick(base[cell.site][1], places)
                    parts[cell].append((change * gradient).flatten(1).sum(1))
    return Attribution({cell: torch.cat(parts[cell]).cpu() for cell in plan})


def _with_gradients(model: Model, pairs: Pairs, tokens: Tensor, sites: list[str]) -> dict[str, tuple[Tensor, Tensor]]:
    """Per site: the activation, and the gradient of each document's likelihood with respect to it."""
    reads = pairs.reads
    if len(reads) > 1:
        raise UserError(f"attribution patching estimates the effect at one read, not {', '.join(reads.names)}")
    read, answers = reads.positions[:, 0], reads.targets[:, 0]
    seen: dict[str, Tensor] = {}

    def keep(name: str) -> Tap:
        def tap(x: Tensor) -> Tensor:
            # The first site starts the graph, so that frozen weights make no difference.
            seen[name] = x.detach().requires_grad_() if name == "embed" else x.contiguous()
            return seen[name]

        return tap

    with edit(model, {name: keep(name) for name in {*sites, "embed"}}):
        logits = model(tokens, read[:, None])[:, 0]
    likelihood = answer_likelihood(logits, answers)
    # A site that nothing reads (the last mixer at other positions is still read) has no gradient: that is a zero.
    gradients = torch.autograd.grad(likelihood.sum(), [seen[site] for site in sites], materialize_grads=True)
    return {site: (seen[site].detach(), gradient) for site, gradient in zip(sites, gradients, strict=True)}
