"""Verdicts: the route by which information about the corrupted token reaches the answer, read off stored effects.

At every block boundary, the roles are restored one at a time. The role that brings back more than half of what the
corruption took away *carries* the information there. The carriers, boundary by boundary, are the route:

    key -> value -> query      induction: the association is stored at the value, then retrieved
    key -> query               direct retrieval: one block goes from key to query
    key -> next_key -> query   association one step later: stored at the position after the value
    value -> query             value copy: with the value corrupted; says nothing about how it was found

Inside a block where the carrier changes, the same is read at the sites behind each part of the block that can move
information, which names the part responsible. Where no role carries the information, positions around the corrupted
token are looked at, and several roles at once. Everything is a pure function of the table of effects and the rules.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from math import isfinite

from mixerscope.analysis.rules import NOT_LEARNED, NOT_RETRIEVAL, UNDETERMINED, Rules, mechanism_of
from mixerscope.analysis.stats import mean_estimate, proportion_estimate
from mixerscope.artifacts.effects import DIRECTIONS, JOINT, ORIGINAL, SHARE, Cell, EffectTable, Part, corrupted
from mixerscope.artifacts.estimate import Estimate
from mixerscope.artifacts.verdicts import Boundary, RouteMove, Verdict, Verdicts
from mixerscope.errors import UnknownName, UserError

_OFFSET = re.compile(r"[+-]\d+")


def judge(table: EffectTable, rules: Rules | None = None) -> Verdicts:
    """The verdict of every slot that was patched."""
    return Verdicts(tuple(judge_slot(table, slot, rules) for slot in table.slots))


def judge_slot(table: EffectTable, slot: str, rules: Rules | None = None) -> Verdict:
    """The verdict of a table that holds, for this slot, every boundary, role and direction.

    Who reads the key but not its value, or the value but not its key, does not retrieve: slots that belong together
    are all corrupted, also those that were not patched.
    """
    rules = Rules() if rules is None else rules
    if slot not in table.slots:
        raise UnknownName("slot in this grid", slot, table.slots)
    if not table.facts.boundaries:
        raise UserError("a verdict is read off at the boundaries of blocks, and this foreign model has none by name")
    gaps = {name: _gap(table, name) for name in dict.fromkeys([slot, *table.facts.together]) if _has(table, name)}
    gap, accuracy = gaps[slot], proportion_estimate(table.correct(ORIGINAL))
    reader = _Reader(table, slot, rules)

    def unnamed(mechanism: str, reason: str, boundaries: tuple[Boundary, ...] = ()) -> Verdict:
        return Verdict(mechanism, (), (), None, gap, boundaries, reason, slot, accuracy)

    if gap is None:
        return unnamed(UNDETERMINED, "the likelihood of some answer is not finite, though nothing was edited")
    reads, solves = gap.low > rules.min_gap, accuracy.low > rules.solves
    if not reads:
        reason = _why_unread(slot, gap, accuracy, solves, rules)
        return unnamed(NOT_RETRIEVAL if solves else NOT_LEARNED, reason)
    if table.facts.documents < rules.min_documents:
        return unnamed(UNDETERMINED, f"{table.facts.documents} documents are too few (needed: {rules.min_documents})")
    for other in table.facts.together if solves else ():
        found = gaps.get(other)
        if found is not None and found.high < rules.min_gap:
            return unnamed(NOT_RETRIEVAL, _why_unread(other, found, accuracy, solves, rules))
    if not reader.has_shares:
        return unnamed(UNDETERMINED, "the gap varies too much between the documents for a share of it to be a number")

    boundaries = tuple(reader.boundary(site) for site in table.facts.boundaries)
    unclear = [b for b in boundaries if b.carrier is None]
    if unclear:
        return unnamed(UNDETERMINED, f"at {unclear[0].site}, {unclear[0].reason}", boundaries)
    carriers = [b.carrier for b in boundaries if b.carrier is not None]
    if carriers[0] != slot or carriers[-1] not in table.facts.read:
        reason = f"the information should go from the {slot} to where the answer is read, not {' → '.join(carriers)}"
        return unnamed(UNDETERMINED, reason, boundaries)

    route = tuple(c for i, c in enumerate(carriers) if i == 0 or c != carriers[i - 1])
    moves: list[RouteMove] = []
    for block, (source, target) in enumerate(pairwise(carriers)):
        if source != target:
            moves += reader.moves_inside(block, source, target)
    weakest = min((b.share for b in boundaries if b.share is not None), key=lambda s: s.value)
    name = mechanism_of(route, slot, table.facts.mechanisms)
    return Verdict(name, route, tuple(moves), weakest, gap, boundaries, "", slot, accuracy)


def plain(value: float, digits: int = 2) -> str:
    """A rounded number that is never -0.00."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def interval(estimate: Estimate, digits: int = 2) -> str:
    """`0.57 [0.46, 0.68]`"""
    value, low, high = (plain(number, digits) for number in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}]"


def _has(table: EffectTable, slot: str) -> bool:
    return corrupted(slot) in table.unedited


def _gap(table: EffectTable, slot: str) -> Estimate | None:
    found = mean_estimate(table.likelihood(ORIGINAL) - table.likelihood(corrupted(slot)))
    return found if isfinite(found.value) else None


def _why_unread(slot: str, gap: Estimate, accuracy: Estimate, solves: bool, rules: Rules) -> str:
    needed = f"needed: all of the interval above {rules.min_gap:g}"
    lowers = f"corrupting the {slot} lowers the likelihood by {interval(gap, 3)} only ({needed})"
    return f"{accuracy.value:.0%} of the documents are answered, but {lowers}" if solves else lowers


class _Reader:
    """Reads off one slot of a table who carries the information where."""

    def __init__(self, table: EffectTable, slot: str, rules: Rules) -> None:
        self.table, self.slot, self.rules = table, slot, rules
        self.roles = table.facts.roles
        known = (c for c, s in zip(table.cells, table.statuses, strict=True) if c.slot == slot and s != "invalid")
        first = next((cell for cell in known if not cell.read), None)
        # Whether there are shares is a question of the gap, so one cell speaks for all.
        self.has_shares = first is None or table.estimate(first, SHARE) is not None
        self.places: dict[str, list[str]] = {}
        """By site: offsets and joint roles that were restored there."""
        for cell in table.cells:
            if (cell.slot, cell.direction, cell.edit, cell.head, cell.read) == (slot, "restore", "swap", -1, ""):
                self.places.setdefault(cell.site, []).append(cell.role)

    def boundary(self, site: str) -> Boundary:
        """The one role that carries the information at a site, restoring and breaking alike; else an offset."""
        for direction in DIRECTIONS:
            for role in self.roles:
                if Cell(self.slot, direction, site, role) not in self.table.index:
                    raise UserError(f"a verdict needs the cell {self.slot} / {direction} / {site} / {role} of the grid")
        return self._located(site)

    def moves_inside(self, block: int, source: str, target: str) -> list[RouteMove]:
        """Which part of the block moved the information. The last part takes what no earlier one is shown to do."""
        parts = self.table.facts.blocks[block]
        moves: list[RouteMove] = []
        at = source
        unread: list[str] = []
        for i, part in enumerate(parts):
            here = target if i == len(parts) - 1 else self._located(part.site).carrier
            if here is None:  # this site does not single out a place, so the next one speaks for both parts
                unread.append(part.component)
            elif here != at:
                component = " + ".join([*unread, part.component]) + self._head(part, here)
                share = self._shares([Cell(self.slot, "restore", part.site, here)])
                moves.append(RouteMove(block, component, at, here, share.get(here)))
                at, unread = here, []
        return moves

    def _located(self, site: str) -> Boundary:
        """The carrier among the roles that the grid has there, else an offset, else what was tried."""
        found = self._carrier(site)
        if found.carrier is not None or not found.restored or found.broken is not None:
            return found
        restored = dict(found.restored)
        carriers = self._carriers(restored)
        if not carriers:
            offsets = [place for place in self.places.get(site, []) if self._is_offset(place)]
            restored |= self._restored(site, offsets)
            carriers = self._carriers(restored)
            if len(carriers) == 1:
                [place] = carriers
                broken = self._shares([Cell(self.slot, "break", site, place)]).get(place)
                if broken is not None:
                    return self._both_ways(site, place, restored, broken)
                share = restored[place]
                reason = f"restoring the {place} brings back {plain(share.value)}, what breaking it takes is not known"
                return Boundary(site, None, share, None, reason, restored)
        best = max(restored, key=lambda place: restored[place].value)
        several = self._restored(site, [place for place in self.places.get(site, []) if JOINT in place])
        everywhere = several.pop(JOINT.join(self.roles), None)
        pairs = {place: share for place, share in several.items() if set(place.split(JOINT)) <= set(self.roles)}
        tried = ""
        if pairs:
            together = max(pairs, key=lambda place: pairs[place].value)
            restored[together] = pairs[together]
            tried = f", {together} together bring back {plain(pairs[together].value)}"
        if everywhere is not None:
            restored["all roles"] = everywhere
            tried += f", all roles {plain(everywhere.value)}"
        if carriers:
            reason = f"more than one role carries the information: {', '.join(carriers)}"
        else:
            share, needed = interval(restored[best]), f"needed: all of the interval above {self.rules.carries:g}"
            reason = f"no role alone carries the information; the best is {best} with {share} ({needed}){tried}"
        return Boundary(site, None, None, None, reason, restored)

    def _carrier(self, site: str) -> Boundary:
        """The same from single roles alone."""
        cells = [Cell(self.slot, "restore", site, role) for role in self.roles]
        cells = [cell for cell in cells if {cell, replace(cell, direction="break")} <= self.table.index.keys()]
        for cell in cells:
            for either_way in (cell, replace(cell, direction="break")):
                at = self.table.index[either_way]
                if self.table.statuses[at] == "invalid":
                    why = self.table.reasons[at]
                    reason = f"the {either_way.direction} cell of role {cell.role!r} is invalid: {why}"
                    return Boundary(site, None, None, None, reason)
        restored = self._shares(cells)
        carriers = self._carriers(restored)
        if len(carriers) != 1:
            return Boundary(site, None, None, None, "", restored)
        broken = self._shares([Cell(self.slot, "break", site, carriers[0])])
        return self._both_ways(site, carriers[0], restored, broken[carriers[0]])

    def _both_ways(self, site: str, place: str, restored: Mapping[str, Estimate], broken: Estimate) -> Boundary:
        share = restored[place]
        if broken.low > self.rules.carries:
            return Boundary(site, place, share, broken, "", restored)
        reason = (
            f"restoring the {place} brings back {interval(share)} but breaking it takes {interval(broken)} only"
            f" (needed: all of both intervals above {self.rules.carries:g})"
        )
        return Boundary(site, None, share, broken, reason, restored)

    def _carriers(self, restored: Mapping[str, Estimate]) -> list[str]:
        return [place for place, share in restored.items() if share.low > self.rules.carries]

    def _is_offset(self, place: str) -> bool:
        return place.startswith(self.slot) and _OFFSET.fullmatch(place.removeprefix(self.slot)) is not None

    def _restored(self, site: str, places: list[str]) -> dict[str, Estimate]:
        return self._shares([Cell(self.slot, "restore", site, place) for place in places])

    def _shares(self, cells: list[Cell]) -> dict[str, Estimate]:
        """By place: how much of the gap each cell closes, or opens. Cells without numbers are left out."""
        # Those of the table, from exact likelihoods: rounded ones look alike where the runs were not.
        found = {cell.role: self.table.estimate(cell, SHARE) for cell in cells if cell in self.table.index}
        return {place: share for place, share in found.items() if share is not None}

    def _head(self, part: Part, place: str) -> str:
        """` head 2` where there are several and restoring that one alone is enough."""
        enough: list[int] = []
        for head in range(part.heads if part.heads > 1 else 0):
            share = self._shares([Cell(self.slot, "restore", part.site, place, head=head)]).get(place)
            if share is not None and share.low > self.rules.carries:
                enough.append(head)
        return f" head {enough[0]}" if len(enough) == 1 else ""
