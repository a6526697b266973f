"""Verdicts: the route by which information about the corrupted token reaches the answer.

At every block boundary, the roles are restored one at a time. The role that brings back more than half of what the
corruption took away *carries* the information there. The carriers, boundary by boundary, are the route:

    key -> value -> query      induction: the association is stored at the value, then retrieved
    key -> query               direct retrieval: one block goes from key to query
    key -> next_key -> query   association one step later: stored at the position after the value

Inside a block where the carrier changes, the same is read at the sites behind each part of the block that can move
information (`Block.moves`), which names the part responsible.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch

from mixerscope.analysis.cells import share_estimate
from mixerscope.analysis.stats import Estimate, mean_estimate, resampling_counts
from mixerscope.interventions import Cell, Grid
from mixerscope.mixers import Move
from mixerscope.model import Model

MIN_GAP = 0.01
"""Smallest difference in likelihood between original and corrupted documents that counts as having learned the task;
the published filter for associative recall. The lower end of the interval must exceed it."""
CARRIES = 0.5
"""A role carries the information when the interval of its share lies above this, restoring and breaking alike."""

MECHANISMS = {
    ("key", "value", "query"): "induction",
    ("key", "query"): "direct retrieval",
    ("key", "next_key", "query"): "association one step later",
}


@dataclass(frozen=True)
class Boundary:
    """Who carries the information between two blocks: `carrier`, or None with the reason."""

    site: str
    carrier: str | None
    share: Estimate | None
    """Of the carrier, restoring."""
    broken: Estimate | None
    """Of the carrier, breaking."""
    reason: str = ""


@dataclass(frozen=True)
class RouteMove:
    """One step of the route: a block, the part of its mixer that made the move, from where to where."""

    block: int
    component: str
    source: str
    target: str


@dataclass(frozen=True)
class Verdict:
    """What was found. `mechanism` is a name from the table, 'other', 'undetermined' or 'not learned'."""

    mechanism: str
    route: tuple[str, ...]
    moves: tuple[RouteMove, ...]
    share: Estimate | None
    """The weakest link: the smallest share among the carriers of all boundaries."""
    gap: Estimate
    """Likelihood of the answer, original minus corrupted."""
    boundaries: tuple[Boundary, ...]
    reason: str = ""
    slot: str = "key"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def sentence(self) -> str:
        """One line for people."""
        if not self.route:
            return f"{self.mechanism}: {self.reason}"
        route = " → ".join(self.route)
        moves = "; ".join(f"block {m.block} {m.component}: {m.source} → {m.target}" for m in self.moves)
        return f"{self.mechanism} ({route}){'; ' + moves if moves else ''}"


def boundary_sites(model: Model) -> list[str]:
    """Where the residual stream is read: before each block, and after the last."""
    count = len(model.blocks)
    return [*(f"blocks.{i}.resid_pre" for i in range(count)), f"blocks.{count - 1}.resid_post"]


def verdict(grid: Grid, model: Model, slot: str = "key") -> Verdict:
    """The verdict of a grid that holds, for this slot, every boundary, every role and both directions."""
    counts = resampling_counts(len(grid.pairs))
    gap = mean_estimate(grid.original.likelihood - grid.corrupted[slot].likelihood, counts)
    if not gap.low > MIN_GAP:
        reason = f"corrupting the {slot} lowers the likelihood by {gap.value:.3f} only (needed: {MIN_GAP})"
        return Verdict("not learned", (), (), None, gap, (), reason, slot)

    boundaries = tuple(_carrier(grid, site, slot, counts) for site in boundary_sites(model))
    unclear = [b for b in boundaries if b.carrier is None]
    if unclear:
        reason = f"at {unclear[0].site}, {unclear[0].reason}"
        return Verdict("undetermined", (), (), None, gap, boundaries, reason, slot)
    carriers = [b.carrier for b in boundaries if b.carrier is not None]
    if carriers[0] != slot or carriers[-1] != "query":
        reason = f"the information should enter at the {slot} and leave at the query, not go {' → '.join(carriers)}"
        return Verdict("undetermined", (), (), None, gap, boundaries, reason, slot)

    route = tuple(c for i, c in enumerate(carriers) if i == 0 or c != carriers[i - 1])
    moves: list[RouteMove] = []
    for block, (source, target) in enumerate(pairwise(carriers)):
        if source != target:
            moves += _moves_inside(grid, model, block, source, target, slot, counts)
    weakest = min((b.share for b in boundaries if b.share is not None), key=lambda s: s.value)
    return Verdict(MECHANISMS.get(route, "other"), route, tuple(moves), weakest, gap, boundaries, "", slot)


def _carrier(grid: Grid, site: str, slot: str, counts: torch.Tensor) -> Boundary:
    """The one role that carries the information at a site, restoring and breaking alike."""
    shares: dict[str, Estimate] = {}
    for cell, measured in grid.cells.items():
        if (cell.slot, cell.direction, cell.site) != (slot, "restore", site):
            continue
        if measured.status == "invalid":
            return Boundary(site, None, None, None, f"the cell of role {cell.role!r} is invalid: {measured.reason}")
        shares[cell.role] = _share(grid, cell, counts)
    carriers = [role for role, share in shares.items() if share.low > CARRIES]
    if len(carriers) != 1:
        return Boundary(site, None, None, None, _why_not_one(carriers, shares))
    role = carriers[0]
    broken = _share(grid, Cell(slot, "break", site, role), counts)
    if not broken.low > CARRIES:
        reason = f"restoring the {role} brings back {shares[role].value:.2f} but breaking it takes {broken.value:.2f}"
        return Boundary(site, None, shares[role], broken, reason)
    return Boundary(site, role, shares[role], broken)


def _share(grid: Grid, cell: Cell, counts: torch.Tensor) -> Estimate:
    share = share_estimate(grid, cell, counts)
    assert share is not None, "routes are read only where the gap is large enough for shares to exist"
    return share


def _why_not_one(carriers: Sequence[str], shares: dict[str, Estimate]) -> str:
    if carriers:
        return f"more than one role carries the information: {', '.join(carriers)}"
    best = max(shares, key=lambda role: shares[role].value)
    return f"no role alone carries the information; the best is {best} with {shares[best].value:.2f}"


def _moves_inside(
    grid: Grid, model: Model, block: int, source: str, target: str, slot: str, counts: torch.Tensor
) -> list[RouteMove]:
    """Which part of the block moved the information. The last part takes what no earlier one is shown to do."""
    layer = model.layers()[block]
    parts = layer.moves()
    if not layer.mixer.moves:  # the mixer names no part of its own, so it stands for itself
        parts = (*parts, Move(type(layer.mixer).__name__, "mixer_out"))
    moves: list[RouteMove] = []
    at = source
    unread: list[str] = []
    for i, part in enumerate(parts):
        last = i == len(parts) - 1
        here = target if last else _carrier(grid, f"blocks.{block}.{part.site}", slot, counts).carrier
        if here is None:  # this site does not single out a role, so the next one speaks for both parts
            unread.append(part.component)
        elif here != at:
            moves.append(RouteMove(block, " + ".join([*unread, part.component]), at, here))
            at, unread = here, []
    return moves
