"""Verdicts: the route by which information about the corrupted token reaches the answer.

At every block boundary, the roles are restored one at a time. The role that brings back more than half of what the
corruption took away *carries* the information there. The carriers, boundary by boundary, are the route:

    key -> value -> query      induction: the association is stored at the value, then retrieved
    key -> query               direct retrieval: one block goes from key to query
    key -> next_key -> query   association one step later: stored at the position after the value
    value -> query             value copy: with the value corrupted; says nothing about how it was found

Inside a block where the carrier changes, the same is read at the sites behind each part of the block that can move
information (`Block.moves`), which names the part responsible. Where no role carries the information, positions around
the corrupted token are tried, and several roles at once. Names and thresholds are in `rules.py`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from math import isfinite
from typing import Any

import torch

from mixerscope.analysis.cells import share_estimates
from mixerscope.analysis.followups import FollowUps, distinct_roles
from mixerscope.analysis.rules import (
    CARRIES,
    MIN_DOCUMENTS,
    MIN_GAP,
    NOT_LEARNED,
    NOT_RETRIEVAL,
    SOLVES,
    UNDETERMINED,
    mechanism_of,
)
from mixerscope.analysis.stats import Estimate, mean_estimate, proportion_estimate
from mixerscope.errors import UnknownName, UserError
from mixerscope.interventions import DIRECTIONS, Cell, Grid
from mixerscope.mixers import Mixer, Move
from mixerscope.model import Model

PAIR = ("key", "value")
"""Slots that both matter to a model that retrieves, whichever of them is being judged."""
HEADS = "heads_out"
"""Sites of this name are [b, t, h, d_h] in every mixer, so that a head can be edited alone."""


@dataclass(frozen=True)
class Boundary:
    """Who carries the information at a site: `carrier`, or None with the reason."""

    site: str
    carrier: str | None
    share: Estimate | None
    """Of the carrier, restoring."""
    broken: Estimate | None
    """Of the carrier, breaking."""
    reason: str = ""
    restored: Mapping[str, Estimate] = field(default_factory=dict)
    """By role, offset (`key+3`) or several at once (`key&value`), whatever was tried."""


@dataclass(frozen=True)
class RouteMove:
    """One step of the route: a block, the part of its mixer that made the move, from where to where."""

    block: int
    component: str
    source: str
    target: str
    share: Estimate | None = None
    """What restoring the output of that part, at the target, brings back."""


@dataclass(frozen=True)
class Verdict:
    """What was found. `mechanism` is a name from the rules, or says why there is none."""

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
    accuracy: Estimate | None = None
    """On the original documents."""

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


def verdict(grid: Grid, model: Model, slot: str | None = None) -> Verdict:
    """The verdict of a grid that holds, for this slot (default: its first), every boundary, role and direction.

    Who reads the key but not its value, or the value but not its key, does not retrieve. So the other one of the pair
    is corrupted too: as the grid did it or, where it did not, with tokens of other documents.
    """
    slot = next(iter(grid.corrupted)) if slot is None else slot
    if slot not in grid.corrupted:
        raise UnknownName("slot in this grid", slot, grid.corrupted)
    gaps = {
        name: mean_estimate(grid.original.likelihood.double() - effects.likelihood.double())
        for name, effects in grid.corrupted.items()
    }
    gap, accuracy = gaps[slot], proportion_estimate(grid.original.accuracy)
    reader = _Reader(grid, model, slot)

    def unnamed(mechanism: str, reason: str, boundaries: tuple[Boundary, ...] = ()) -> Verdict:
        return Verdict(mechanism, (), (), None, gap, boundaries, reason, slot, accuracy)

    if not isfinite(gap.value):
        return unnamed(UNDETERMINED, "the likelihood of some answer is not finite, though nothing was edited")
    reads, solves = gap.low > MIN_GAP, accuracy.low > SOLVES
    if not reads:
        return unnamed(NOT_RETRIEVAL if solves else NOT_LEARNED, _why_unread(slot, gap, accuracy, solves))
    if len(grid.pairs) < MIN_DOCUMENTS:
        return unnamed(UNDETERMINED, f"{len(grid.pairs)} documents are too few (needed: {MIN_DOCUMENTS})")
    for other in PAIR if solves else ():
        found = gaps[other] if other in gaps else reader.follow_ups.gap(other)
        if found is not None and found.high < MIN_GAP:
            return unnamed(NOT_RETRIEVAL, _why_unread(other, found, accuracy, solves))

    boundaries = tuple(reader.boundary(site) for site in boundary_sites(model))
    unclear = [b for b in boundaries if b.carrier is None]
    if unclear:
        return unnamed(UNDETERMINED, f"at {unclear[0].site}, {unclear[0].reason}", boundaries)
    carriers = [b.carrier for b in boundaries if b.carrier is not None]
    if carriers[0] != slot or not torch.equal(grid.pairs.positions(carriers[-1]), grid.pairs.original.answers()[0]):
        reason = f"the information should go from the {slot} to where the answer is read, not {' → '.join(carriers)}"
        return unnamed(UNDETERMINED, reason, boundaries)

    route = tuple(c for i, c in enumerate(carriers) if i == 0 or c != carriers[i - 1])
    moves: list[RouteMove] = []
    for block, (source, target) in enumerate(pairwise(carriers)):
        if source != target:
            moves += reader.moves_inside(block, source, target)
    weakest = min((b.share for b in boundaries if b.share is not None), key=lambda s: s.value)
    return Verdict(mechanism_of(route, slot), route, tuple(moves), weakest, gap, boundaries, "", slot, accuracy)


def plain(value: float, digits: int = 2) -> str:
    """A rounded number that is never -0.00."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def _why_unread(slot: str, gap: Estimate, accuracy: Estimate, solves: bool) -> str:
    lowers = f"corrupting the {slot} lowers the likelihood by {plain(gap.value, 3)} only (needed: {MIN_GAP})"
    return f"{accuracy.value:.0%} of the documents are answered, but {lowers}" if solves else lowers


class _Reader:
    """Reads off one slot of a grid who carries the information where, and measures what the grid does not have."""

    def __init__(self, grid: Grid, model: Model, slot: str) -> None:
        self.grid, self.model, self.slot = grid, model, slot
        self.roles = distinct_roles(grid.pairs)
        self.follow_ups = FollowUps(grid, model, slot)

    def boundary(self, site: str) -> Boundary:
        """The one role that carries the information at a site, restoring and breaking alike; else an offset."""
        for direction in DIRECTIONS:
            for role in self.roles:
                if Cell(self.slot, direction, site, role) not in self.grid.cells:
                    raise UserError(f"a verdict needs the cell {self.slot} / {direction} / {site} / {role} of the grid")
        return self._located(site)

    def _located(self, site: str) -> Boundary:
        """The carrier among the roles that the grid has there, else an offset, else what was tried."""
        found = self._carrier(site)
        if found.carrier is not None or not found.restored or found.broken is not None:
            return found
        restored = dict(found.restored)
        carriers = [role for role, share in restored.items() if share.low > CARRIES]
        if not carriers:
            restored |= {place: self.follow_ups.share(site, [place]) for place in self.follow_ups.offsets()}
            carriers = [place for place in restored if restored[place].low > CARRIES]
            if len(carriers) == 1:
                return self._both_ways(site, carriers[0], restored, self.follow_ups.share(site, carriers, "break"))
        best = sorted(restored, key=lambda place: -restored[place].value)[:2]
        together = "&".join(sorted(best, key=list(restored).index))
        restored[together] = self.follow_ups.share(site, best)
        restored["all roles"] = everywhere = self.follow_ups.share(site, self.roles)
        if carriers:
            reason = f"more than one role carries the information: {', '.join(carriers)}"
        else:
            reason = (
                f"no role alone carries the information; the best is {best[0]} with {plain(restored[best[0]].value)},"
                f" {together} together bring back {plain(restored[together].value)},"
                f" all roles {plain(everywhere.value)}"
            )
        return Boundary(site, None, None, None, reason, restored)

    def _carrier(self, site: str) -> Boundary:
        """The same from the cells of the grid alone."""
        cells = [Cell(self.slot, "restore", site, role) for role in self.roles]
        cells = [cell for cell in cells if cell in self.grid.cells]
        for cell in cells:
            for either_way in (cell, replace(cell, direction="break")):
                measured = self.grid.cells[either_way]
                if measured.status == "invalid":
                    reason = f"the {either_way.direction} cell of role {cell.role!r} is invalid: {measured.reason}"
                    return Boundary(site, None, None, None, reason)
        restored = {cell.role: share for cell, share in zip(cells, self._shares(cells), strict=True)}
        carriers = [role for role, share in restored.items() if share.low > CARRIES]
        if len(carriers) != 1:
            return Boundary(site, None, None, None, "", restored)
        [broken] = self._shares([Cell(self.slot, "break", site, carriers[0])])
        return self._both_ways(site, carriers[0], restored, broken)

    def _both_ways(self, site: str, place: str, restored: Mapping[str, Estimate], broken: Estimate) -> Boundary:
        share = restored[place]
        if broken.low > CARRIES:
            return Boundary(site, place, share, broken, "", restored)
        reason = (
            f"restoring the {place} brings back {plain(share.value)} but breaking it takes {plain(broken.value)} only"
        )
        return Boundary(site, None, share, broken, reason, restored)

    def _shares(self, cells: list[Cell]) -> list[Estimate]:
        found = [share for share in share_estimates(self.grid, cells) if share is not None]
        assert len(found) == len(cells), "routes are read only where the gap is large enough for shares to exist"
        return found

    def moves_inside(self, block: int, source: str, target: str) -> list[RouteMove]:
        """Which part of the block moved the information. The last part takes what no earlier one is shown to do."""
        layer = self.model.layers()[block]
        parts = layer.moves()
        if not layer.mixer.moves:  # the mixer names no part of its own, so it stands for itself
            parts = (*parts, Move(type(layer.mixer).__name__, "mixer_out"))
        moves: list[RouteMove] = []
        at = source
        unread: list[str] = []
        for i, part in enumerate(parts):
            last = i == len(parts) - 1
            site = f"blocks.{block}.{part.site}"
            here = target if last else self._located(site).carrier
            if here is None:  # this site does not single out a place, so the next one speaks for both parts
                unread.append(part.component)
            elif here != at:
                component = " + ".join([*unread, part.component]) + self._head(site, layer.mixer, here)
                moves.append(RouteMove(block, component, at, here, self._restored(site, here)))
                at, unread = here, []
        return moves

    def _restored(self, site: str, place: str) -> Estimate:
        """From the grid where it has the cell."""
        cell = Cell(self.slot, "restore", site, place)
        measured = self.grid.cells.get(cell)
        if measured is None or measured.status == "invalid":
            return self.follow_ups.share(site, [place])
        return self._shares([cell])[0]

    def _head(self, site: str, mixer: Mixer, place: str) -> str:
        """` head 2` where a mixer has several and restoring that one alone is enough."""
        heads = getattr(mixer, "heads", 1)
        if heads == 1 or not site.endswith(f".{HEADS}"):
            return ""
        enough = [h for h in range(heads) if self.follow_ups.share(site, [place], head=h).low > CARRIES]
        return f" head {enough[0]}" if len(enough) == 1 else ""
