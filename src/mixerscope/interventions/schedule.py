"""What a grid runs, worked out before it runs and outside of any model.

A schedule follows from the names of sites, from where positions lie, and from what the documents of a pair have in
common. It is one for all models of a grid: what differs between them is only which cells write what is there anyway.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from mixerscope.artifacts.effects import DIRECTIONS, SWAP, Cell, CellStatus, Direction
from mixerscope.interventions.edits import Edit, Swap
from mixerscope.interventions.runner import OTHER, Runner, Standing

SAME = "the edit writes what is already there"

Spot = tuple[str, str]
"""Site and role."""


@dataclass(frozen=True)
class Run:
    """One edit that is run: at one site and role, for all cells that are this edit."""

    site: str
    cell: Cell
    """One of those it is run for; says the role, and what is written where that is no swap."""
    cells: tuple[tuple[Cell, str], ...]
    """All of them, with the reason why it is their edit too."""


@dataclass(frozen=True)
class Schedule:
    """What becomes of some cells of one slot and direction, for some documents."""

    proven: tuple[tuple[Cell, CellStatus, str], ...]
    """Cells whose effects are those of the unedited run, for every model."""
    other: tuple[tuple[Cell, str], ...]
    """Cells whose effects are those of the other document's run, with the reason."""
    passes: tuple[tuple[Run, ...], ...]
    """Runs that go together: at one site, in as many positions."""


class Scheduler:
    """The cells of a grid in the order of work, and the sites it needs."""

    def __init__(self, runner: Runner, cells: Sequence[Cell], edits: Mapping[str, Edit]) -> None:
        self.runner, self.edits, self.cells = runner, edits, list(dict.fromkeys(cells))
        swapped = {cell.site for cell in self.cells if cell.edit == SWAP}
        self.sites = sorted({cell.site for cell in self.cells} | runner.stand_ins(swapped))
        by_site: dict[tuple[str, str], dict[str, list[Cell]]] = defaultdict(lambda: defaultdict(list))
        for cell in self.cells:
            by_site[cell.slot, cell.direction][cell.site].append(cell)
        self._ordered = {key: [cell for at in sites.values() for cell in at] for key, sites in by_site.items()}

    @property
    def roles(self) -> list[str]:
        return list({cell.role: None for cell in self.cells})

    def of(self, slot: str, direction: str) -> list[Cell]:
        """Cells of one slot and direction, those of a site together."""
        return self._ordered.get((slot, direction), [])

    def directions(self, slot: str) -> list[Direction]:
        """Those in which the slot is patched."""
        return [direction for direction in DIRECTIONS if (slot, direction) in self._ordered]

    def others(self, cells: Iterable[Cell]) -> list[Cell]:
        """Those that are more than a swap: what they write must be computed."""
        return [cell for cell in cells if not self.is_swap(cell)]

    def is_swap(self, cell: Cell) -> bool:
        """Whether the cell writes all that the other document has there: then names alone say what it does."""
        return cell.edit == SWAP and cell.head < 0 and isinstance(self.edits[cell.edit], Swap)

    def compared(self, slot: str, standings: Mapping[str, Standing]) -> dict[str, list[str]]:
        """By site, the roles where it matters to the cells of a slot whether both documents of a pair hold the same."""
        spots: dict[Spot, None] = {}
        for cell in (cell for direction in DIRECTIONS for cell in self.of(slot, direction)):
            if self.is_swap(cell) and self.runner.no_path(cell.site, standings[cell.role]) is None:
                spots[cell.site, cell.role] = None
                stream = self.runner.added_to(cell.site)
                if stream is not None:
                    spots[stream, cell.role] = None
        found: dict[str, list[str]] = defaultdict(list)
        for site, role in spots:
            found[site].append(role)
        return found

    def schedule(
        self,
        cells: Sequence[Cell],
        standings: Mapping[str, Standing],
        agreed: AbstractSet[Spot],
        idle: AbstractSet[Cell],
        per_pass: int,
    ) -> Schedule:
        """Of cells of one slot and direction, in passes of at most so many edits.

        `agreed`: where both documents of a pair hold the same, `idle`: cells that write what is there; in all models.
        """
        proven: list[tuple[Cell, CellStatus, str]] = []
        other: list[tuple[Cell, str]] = []
        runs: dict[tuple[str, str, str, int], list[tuple[Cell, str]]] = defaultdict(list)
        for cell in cells:
            reason = self.runner.no_path(cell.site, standings[cell.role])
            if reason is not None:
                proven.append((cell, "no path", reason))
            elif cell in idle:
                proven.append((cell, "same", SAME))
            else:
                site = self._site(cell, agreed)
                if self.is_swap(cell) and self.runner.is_other(site, standings[cell.role]):
                    other.append((cell, OTHER))
                    continue
                reason = "" if site == cell.site else f"same edit as at {site}"
                runs[site, cell.role, cell.edit, cell.head].append((cell, reason))
        together: dict[tuple[str, int], list[Run]] = defaultdict(list)
        for (site, *_), shared in runs.items():
            cell = shared[0][0]
            together[site, standings[cell.role].positions].append(Run(site, cell, tuple(shared)))
        passes = [
            tuple(group[start : start + per_pass])
            for group in together.values()
            for start in range(0, len(group), per_pass)
        ]
        return Schedule(tuple(proven), tuple(other), tuple(passes))

    def _site(self, cell: Cell, agreed: AbstractSet[Spot]) -> str:
        """Where the cell's edit is run."""
        if not self.is_swap(cell):
            return cell.site
        return self.runner.stand_in(cell.site, (self.runner.added_to(cell.site), cell.role) in agreed)
