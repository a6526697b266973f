"""Which cells a grid has: slot x direction x site x role, as data; the engine decides the order of work."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from torch import nn

from mixerscope.errors import UnknownName, UserError
from mixerscope.interventions.pairs import Pairs
from mixerscope.sites import named_sites

Direction = Literal["restore", "break"]
DIRECTIONS: tuple[Direction, ...] = ("restore", "break")

NOT_POSITIONAL = "logits"
"""The one site without a position axis of its own."""


@dataclass(frozen=True, order=True)
class Cell:
    """One intervention: swap, at one site and one role, the activation of one document for that of its twin.

    restore: the corrupted document runs and receives the original's activation. break: the reverse.
    """

    slot: str
    direction: Direction
    site: str
    role: str


def editable_sites(model: nn.Module) -> list[str]:
    """Every site of a model that an interchange can edit."""
    return [name for name in named_sites(model) if name != NOT_POSITIONAL]


def plan_grid(
    model: nn.Module,
    pairs: Pairs,
    sites: Iterable[str] | None = None,
    roles: Iterable[str] | None = None,
    directions: Iterable[Direction] = DIRECTIONS,
) -> list[Cell]:
    """All combinations; by default every editable site and every role of the documents. Unknown names are refused."""
    known = editable_sites(model)
    sites = known if sites is None else list(sites)
    roles = list(pairs.original.roles) if roles is None else list(roles)
    for site in sites:
        if site not in known:
            raise UnknownName("site", site, known)
    for role in roles:
        pairs.positions(role)
    for direction in directions:
        if direction not in DIRECTIONS:
            raise UserError(f"direction must be one of {', '.join(DIRECTIONS)}, not {direction!r}")
    return [
        Cell(slot, direction, site, role)
        for slot in pairs.corrupted
        for direction in directions
        for site in sites
        for role in roles
    ]
