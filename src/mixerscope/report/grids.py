"""What of a run's table of effects the page shows: one number a cell, without the documents behind it.

A table holds every document of every run with an edit; a page over a thousand runs cannot keep them all in memory.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixerscope.artifacts.effects import DIRECTIONS, JOINT, NO_GAP, ORIGINAL, SHARE, SWAP, Cell, EffectTable, corrupted

ABSENT = "absent"
STATUSES = ("measured", "no path", "same", "invalid", ABSENT)
"""As a cell's status is kept: by its place in this list. Absent ones were not asked for."""
MARKS = {"no path": "–", "same": "=", "invalid": "✕"}
"""What stands in a cell in place of a number that was not measured."""
UNDEFINED = "n/a"
"""What stands in a measured cell whose share has no value: there is no gap to restore."""
FEW = 64
"""Documents of which one is shown."""


@dataclass(frozen=True, eq=False)
class Grid:
    """The shares of one slot, by direction, site and role."""

    sites: tuple[str, ...]
    roles: tuple[str, ...]
    shares: np.ndarray
    """[2, sites, roles, 3]: value, low and high, restored first; not a number where there is none."""
    statuses: np.ndarray
    """[2, sites, roles] places in STATUSES."""
    reasons: Mapping[tuple[int, int, int], str]
    """Why a cell has no number."""
    documents: int

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row per cell that was asked for."""
        for at in np.ndindex(*self.statuses.shape):
            status = STATUSES[self.statuses[at]]
            if status != ABSENT:
                value, low, high = (float(v) if v == v else None for v in self.shares[at])
                where = {"direction": DIRECTIONS[at[0]], "site": self.sites[at[1]], "role": self.roles[at[2]]}
                why = self.reasons.get(at, "" if value is not None or status != "measured" else NO_GAP)
                told = {"value": value, "low": low, "high": high, "n": self.documents}
                yield {**where, **told, "status": status, "reason": why}


@dataclass(frozen=True)
class Printed:
    """Likelihoods of the answer as the paper prints them: nothing edited, and one role restored at one site."""

    original: float
    corrupted: float
    restored: Mapping[str, Mapping[str, float]]
    """Site between the blocks, then role."""


def grids_of(table: EffectTable, named: Mapping[str, set[str]]) -> dict[str, Grid]:
    """By patched slot. Columns are the roles that were edited at every site, and places that a verdict names."""
    chosen: dict[str, list[int]] = {slot: [] for slot in table.slots}
    for i, cell in enumerate(table.cells):
        plain = cell.edit == SWAP and cell.head < 0 and not cell.read and JOINT not in cell.role
        if plain and cell.slot in chosen:
            chosen[cell.slot].append(i)
    return {slot: _grid(table, cells, named.get(slot, set())) for slot, cells in chosen.items() if cells}


def _grid(table: EffectTable, chosen: list[int], named: set[str]) -> Grid:
    cells = [table.cells[i] for i in chosen]
    sites = list(dict.fromkeys(cell.site for cell in cells))
    edited: dict[str, set[str]] = {}
    for cell in cells:
        edited.setdefault(cell.role, set()).add(cell.site)
    roles = [role for role, at in edited.items() if len(at) == len(sites) or role in named]
    row, column = {site: i for i, site in enumerate(sites)}, {role: i for i, role in enumerate(roles)}
    shape = (len(DIRECTIONS), len(sites), len(roles))
    shares = np.full((*shape, 3), np.nan, dtype=np.float32)
    statuses = np.full(shape, STATUSES.index(ABSENT), dtype=np.uint8)
    reasons: dict[tuple[int, int, int], str] = {}
    values = table.summary[SHARE].numpy()
    for i, cell in zip(chosen, cells, strict=True):
        if cell.role in column:
            at = DIRECTIONS.index(cell.direction), row[cell.site], column[cell.role]
            shares[at] = values[i]
            statuses[at] = STATUSES.index(table.statuses[i])
            if table.reasons[i]:
                reasons[at] = table.reasons[i]
    return Grid(tuple(sites), tuple(roles), shares, statuses, reasons, table.facts.documents)


def printed_of(table: EffectTable) -> dict[str, Printed]:
    """By patched slot: the mean likelihoods, and those with one role restored between two blocks."""
    values = table.summary["likelihood"].numpy()
    found: dict[str, Printed] = {}
    for slot in table.slots:
        restored: dict[str, dict[str, float]] = {}
        for site in table.facts.stations:
            for role in table.facts.roles:
                at = table.index.get(Cell(slot, "restore", site, role))
                if at is not None and values[at][0] == values[at][0]:
                    restored.setdefault(site, {})[role] = float(values[at][0])
        unedited = [float(table.likelihood(name).mean()) for name in (ORIGINAL, corrupted(slot))]
        if all(value == value for value in unedited):
            found[slot] = Printed(unedited[0], unedited[1], restored)
    return found


def first_documents(table: EffectTable) -> dict[str, list[float]]:
    """Likelihoods of the answer in the first documents, nothing edited: by the name of the run."""
    return {name: table.likelihood(name)[:FEW].tolist() for name in table.unedited}
