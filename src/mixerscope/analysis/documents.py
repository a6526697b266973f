"""One slot of a table, document by document: which place carries the information there, and which routes that makes.

A document counts when it is answered rightly and corrupting the slot makes the answer wrong. How far an edit goes is
measured in the logit difference between the answer and what it is compared with, which does not depend on how sure of
itself the model is: 0 is where the run started, 1 is the other document's. A place carries the information where
restoring it goes more than half-way up and breaking it more than half-way down, and clearly further than elsewhere.
"""

from collections import Counter
from functools import cached_property

import torch
from torch import Tensor

from mixerscope.artifacts.effects import (
    ANYWHERE,
    DIRECTIONS,
    JOINT,
    ORIGINAL,
    SWAP,
    Cell,
    Direction,
    EffectTable,
    against,
    corrupted,
)

Path = tuple[str, ...]
"""A place at each station."""
SAME_PLACE = 1e-3
"""Where nobody kept the positions: shares that differ by less, at one station and in one document, are taken for those
of one position with two names."""
AHEAD = 0.2
"""By how much a share must exceed those of all other places: with 0.51 here and 0.49 there it takes both."""


class SlotDocuments:
    """One slot of a table."""

    def __init__(self, table: EffectTable, slot: str, halfway: float) -> None:
        self.table, self.slot, self.halfway = table, slot, halfway
        right, fooled = table.correct(ORIGINAL), table.correct(corrupted(slot))
        # Tables from before the difference was kept have likelihoods alone.
        self._values = table.logit_difference if against(slot) in table.unedited else table.likelihood
        self.high = self._values(against(slot) if against(slot) in table.unedited else ORIGINAL)
        self.low = self._values(corrupted(slot))
        self.right = right
        self.lost = right & ~fooled
        """[n] the right answers that the corruption takes away."""
        self.counts = self.lost & (self.high > self.low)
        """[n] the documents that count."""
        self._carriers: dict[str, tuple[list[str], Tensor]] = {}
        """By site, once somebody asked: several questions of a verdict do."""

    @cached_property
    def number(self) -> int:
        return int(self.counts.sum())

    def share(self, cell: Cell) -> Tensor | None:
        """[counting] how far the edit of a cell goes; None where that is not known."""
        if not self.table.has_documents(cell):
            return None
        high, low = self._ends
        edited = self._values(cell)[self.counts]
        moved = edited - low if cell.direction == "restore" else high - edited
        return moved / (high - low)

    @cached_property
    def _ends(self) -> tuple[Tensor, Tensor]:
        return self.high[self.counts], self.low[self.counts]

    def goes(self, site: str, place: str, direction: Direction, head: int = -1) -> Tensor | None:
        """[counting] whether the edit there is enough: it goes more than half-way, and the answer goes with it."""
        cell = Cell(self.slot, direction, site, place, SWAP, head)
        share = self.share(cell)
        if share is None:
            return None
        right = self.table.correct(cell)[self.counts]
        return (share > self.halfway) & (right if direction == "restore" else ~right)

    def carries(self, site: str, place: str) -> Tensor | None:
        """[counting] how surely a place carries the information: the smaller of both shares."""
        both = [self.share(Cell(self.slot, direction, site, place)) for direction in DIRECTIONS]
        known = [share for share in both if share is not None]
        return torch.minimum(*known) if len(known) == 2 else None

    def places(self, site: str) -> dict[str, Tensor]:
        """Single places that were restored and broken at a site, and how surely each carries the information."""
        found = {
            cell.role: self.carries(site, cell.role)
            for cell in self.table.cells
            if (cell.slot, cell.direction, cell.site, cell.edit, cell.head, cell.read)
            == (self.slot, "break", site, SWAP, -1, "")
            and JOINT not in cell.role
        }
        return {place: share for place, share in found.items() if share is not None}

    def carriers(self, site: str) -> tuple[list[str], Tensor]:
        """The places of a site, and [counting] which of them carries the information, -1 where none does."""
        if site not in self._carriers:
            self._carriers[site] = self._carriers_of(self.places(site))
        return self._carriers[site]

    def _carriers_of(self, shares: dict[str, Tensor]) -> tuple[list[str], Tensor]:
        places = list(shares)
        if not places or not self.number:
            return places, torch.full((self.number,), -1)
        where = [self.table.positions[place][self.counts] for place in places if place in self.table.positions]
        at = torch.stack(where) if len(where) == len(places) else None
        return places, surest(torch.stack(list(shares.values())), self.halfway, where=at)

    def paths(self, arrived: bool = False) -> list[Path | None]:
        """Of every document that counts: who carries the information at each station; None where one has nobody. Where
        a place is the one that the answer is read at, it is called that if it has `arrived`."""
        columns: list[list[str | None]] = []
        for site in self.table.facts.stations:
            places, which = self.carriers(site)
            found = [places[i] if i >= 0 else None for i in which.tolist()]
            if arrived:
                found = [self._as_read(place, i) for i, place in enumerate(found)]
            if self.table.facts.one_block and found.count(None) * 2 > len(found):
                found = [ANYWHERE] * len(found)  # it passes by
            columns.append(found)
        if not columns:
            return [()] * self.number
        return [tuple(p for p in path if p is not None) if None not in path else None for path in zip(*columns)]

    def _as_read(self, place: str | None, document: int) -> str | None:
        """What a place is called in one of the documents that count, if what stands there has arrived."""
        if place not in self._at_read:
            return place
        return self.table.facts.read[0] if self._at_read[place][document] else place

    @cached_property
    def _at_read(self) -> dict[str | None, list[bool]]:
        """By place: in which of the documents that count it is where the answer is read."""
        at, read = self.table.positions, self.table.facts.read[:1]
        known = at[read[0]][self.counts] if read and read[0] in at else None
        return {} if known is None else {place: (of[self.counts] == known).tolist() for place, of in at.items()}


def surest(shares: Tensor, least: float, holds: Tensor | None = None, where: Tensor | None = None) -> Tensor:
    """[n] the row of shares [rows, n] with the largest, -1 where none is above `least` and ahead of all others, or it
    does not hold [rows, n]. Rows that are at the same positions, `where` [rows, n, ...], are one with several names, of
    which the one counts that is surest in most documents."""
    best, row = shares.max(0)
    if where is None:
        same = shares >= best - SAME_PLACE
    else:
        same = (where == where[row, torch.arange(len(row))]).view(*shares.shape, -1).all(2)
    contested = (~same & (shares > best - AHEAD)).any(0)
    good = (shares > least) & same & ~contested
    good = good if holds is None else good & holds
    order = good.sum(1).argsort(descending=True, stable=True)
    first = order[good[order].to(torch.int8).argmax(0)]
    return first.where(good.any(0), torch.full_like(first, -1))


def candidate_paths(documents: SlotDocuments, most: int, least: float) -> list[Path]:
    """Paths worth a proof, the commonest first: those that enough documents take by single stations, by either name of
    a place that is the one where the answer is read, and the one that most of them take at each station alone."""
    sites = documents.table.facts.stations
    common: list[Path] = []
    for arrived in (False, True):
        counted = Counter(path for path in documents.paths(arrived) if path is not None)
        common += [path for path, count in counted.most_common(most) if count >= least * max(1, documents.number)]
    common = list(dict.fromkeys(common))
    if documents.table.facts.one_block:
        return common
    usual: list[str] = []
    for site in sites:
        places, which = documents.carriers(site)
        taken = Counter(which[which >= 0].tolist())
        if not taken:
            return common
        usual.append(places[taken.most_common(1)[0][0]])
    return list(dict.fromkeys([*common, tuple(usual)]))
