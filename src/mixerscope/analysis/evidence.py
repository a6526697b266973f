"""What a verdict shows beside its name: who carries the information where, and which part of a block moved it."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor

from mixerscope.analysis.documents import Path, SlotDocuments
from mixerscope.analysis.rules import Rules
from mixerscope.analysis.stats import proportion_estimate
from mixerscope.artifacts.effects import JOINT, SHARE, SWAP, Cell, Facts, Part
from mixerscope.artifacts.estimate import Estimate
from mixerscope.artifacts.verdicts import Boundary, RouteMove

MOST = 0.5
"""A place is shown as the carrier of a site when more than half of the documents have it so, interval included."""


NO_ROUTE = "each station has its carrier, but they do not make one route"


def boundaries(documents: SlotDocuments, facts: Facts, rules: Rules) -> tuple[Boundary, ...]:
    """Between the blocks; and inside the only one, where there is but one."""
    sites = [*facts.boundaries[:1], *facts.stations, *facts.boundaries[-1:]]
    ends = {facts.boundaries[0]: documents.slot, facts.boundaries[-1]: facts.read[0] if facts.read else None}
    why = "only one position can matter here"
    return tuple(
        Boundary(site, ends[site], None, None, why) if site in ends else _boundary(documents, site) for site in sites
    )


def _boundary(documents: SlotDocuments, site: str) -> Boundary:
    places, which = documents.carriers(site)
    restored = {place: estimate for place in places if (estimate := _restored(documents, site, place)) is not None}
    if not places:
        return Boundary(site, None, None, None, "no place was restored and broken here")
    counts = {place: int((which == number).sum()) for number, place in enumerate(places)}
    best = max(places, key=counts.__getitem__)
    carrier = proportion_estimate(which == places.index(best))
    share, broken = restored.get(best), _share(documents.goes(site, best, "break"))
    if carrier.low > MOST:
        return Boundary(site, best, share, broken, "", restored)
    for place in joint_places(documents, site):
        found = _restored(documents, site, place)
        if found is not None:
            restored[place] = found
    reason = f"no place carries the information in most documents; {best} in {carrier.value:.0%}"
    return Boundary(site, None, share, broken, reason, restored)


def together_text(documents: SlotDocuments, sites: Sequence[str], rules: Rules) -> str:
    """Where no single place carries the information: what does, as far as it was tried."""
    for site in sites:
        places, which = documents.carriers(site)
        if places and float((which >= 0).double().mean()) > rules.names:
            continue
        single = {p: e.value for p in places if (e := _restored(documents, site, p)) is not None}
        joint = {p: e.value for p in joint_places(documents, site) if (e := _restored(documents, site, p)) is not None}
        best = max(single, key=single.__getitem__, default=None)
        said = f"at {site} no single place carries the information"
        if best is not None:
            said += f": restoring the {best} alone is enough in {single[best]:.0%} of the documents"
        pairs = {place: value for place, value in joint.items() if place.count(JOINT) == 1}
        if pairs:
            most = max(pairs, key=pairs.__getitem__)
            said += f", {most.replace(JOINT, ' and ')} together in {pairs[most]:.0%}"
        everywhere = [value for place, value in joint.items() if place.count(JOINT) > 1]
        if everywhere:
            said += f", all roles in {max(everywhere):.0%}"
        return said + "".join(f"; {reason}" for reason in _invalid(documents, site)[:1])
    return NO_ROUTE


def _invalid(documents: SlotDocuments, site: str) -> list[str]:
    """Cells of a site that say nothing, and why."""
    table = documents.table
    return [
        f"the {cell.direction} cell of role {cell.role!r} is invalid: {reason}"
        for cell, status, reason in zip(table.cells, table.statuses, table.reasons, strict=True)
        if status == "invalid" and (cell.slot, cell.site, cell.edit, cell.head) == (documents.slot, site, SWAP, -1)
    ]


def joint_places(documents: SlotDocuments, site: str) -> list[str]:
    """Several places that were restored at once at a site."""
    return [
        cell.role
        for cell in documents.table.cells
        if (cell.slot, cell.direction, cell.site, cell.head, cell.read) == (documents.slot, "restore", site, -1, "")
        and JOINT in cell.role
    ]


def moves(
    documents: SlotDocuments, facts: Facts, carriers: Sequence[str], path: Path, rules: Rules
) -> tuple[RouteMove, ...]:
    """Which part of each block moved the information. The last part takes what no earlier one is shown to do."""
    found: list[RouteMove] = []
    for block, (source, target) in enumerate(pairwise(carriers)):
        if source != target and block < len(facts.blocks):
            found += _inside(documents, facts.blocks[block], block, (source, target), rules.names)
    return tuple(found)


def _inside(
    documents: SlotDocuments, parts: Sequence[Part], block: int, ends: tuple[str, str], names: float
) -> list[RouteMove]:
    found: list[RouteMove] = []
    at, target = ends
    unread: list[str] = []
    for i, part in enumerate(parts):
        here = target if i == len(parts) - 1 else _carrier(documents, part.site)
        if here is None:  # this site does not single out a place, so the next one speaks for both parts
            unread.append(part.component)
        elif here != at:
            component = " + ".join([*unread, part.component]) + _head(documents, part, here, names)
            found.append(RouteMove(block, component, at, here, _restored(documents, part.site, here)))
            at, unread = here, []
    return found


def _carrier(documents: SlotDocuments, site: str) -> str | None:
    places, which = documents.carriers(site)
    for number, place in enumerate(places):
        if proportion_estimate(which == number).low > MOST:
            return place
    return None


def _head(documents: SlotDocuments, part: Part, place: str, names: float) -> str:
    """` head 2` where there are several and that one alone is enough, in as many documents as a name needs."""
    heads = range(part.heads if part.heads > 1 else 0)
    shares = {head: _enough(documents, Cell(documents.slot, "restore", part.site, place, SWAP, head)) for head in heads}
    enough = [head for head, share in shares.items() if share is not None and share.low > names]
    return f" head {enough[0]}" if len(enough) == 1 else ""


def _enough(documents: SlotDocuments, cell: Cell) -> Estimate | None:
    """In which share of the documents an edit is; how far it goes on average, where single documents were not kept."""
    known = _share(documents.goes(cell.site, cell.role, cell.direction, cell.head))
    if known is not None or cell not in documents.table.index:
        return known
    return documents.table.estimate(cell, SHARE)


def _restored(documents: SlotDocuments, site: str, place: str) -> Estimate | None:
    return _share(documents.goes(site, place, "restore"))


def _share(passed: Tensor | None) -> Estimate | None:
    return None if passed is None or not len(passed) else proportion_estimate(passed)
