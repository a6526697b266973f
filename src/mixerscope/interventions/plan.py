"""Which cells a grid has: slot x direction x site x role x edit, as data; the engine decides the order of work."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from torch import nn

from mixerscope.errors import UnknownName, UserError
from mixerscope.interventions.edits import SWAP
from mixerscope.interventions.pairs import Pairs
from mixerscope.interventions.states import state_sites
from mixerscope.model import Model
from mixerscope.sites import named_sites

Direction = Literal["restore", "break"]
DIRECTIONS: tuple[Direction, ...] = ("restore", "break")

NOT_POSITIONAL = "logits"
"""The one site without a position axis of its own."""


@dataclass(frozen=True, order=True)
class Cell:
    """One intervention: an edit of the activation at one site and one role.

    restore: the corrupted document runs and receives (swap) the original's activation. break: the reverse. A role is
    a name (`key`), an offset (`key+2`), a position (`pos:7`), or several of them edited together (`key&value`).
    """

    slot: str
    direction: Direction
    site: str
    role: str
    edit: str = SWAP


def editable_sites(model: nn.Module) -> list[str]:
    """Every site of a model that an interchange can edit."""
    return [name for name in named_sites(model) if name != NOT_POSITIONAL]


def plan_grid(
    model: nn.Module,
    pairs: Pairs,
    sites: Iterable[str] | None = None,
    roles: Iterable[str] | None = None,
    directions: Iterable[Direction] = DIRECTIONS,
    edits: Iterable[str] = (SWAP,),
) -> list[Cell]:
    """All combinations; by default every editable site and every role of the documents. Unknown names are refused.

    The states of mixers (`state_sites`) are taken up where they are named: reading them means running step by step.
    """
    sites = editable_sites(model) if sites is None else list(sites)
    roles = list(pairs.original.roles) if roles is None else list(roles)
    directions, edits = list(directions), list(edits)
    plan = [
        Cell(slot, direction, site, role, edit)
        for slot in pairs.corrupted
        for direction in directions
        for site in sites
        for role in roles
        for edit in edits
    ]
    check_plan(model, pairs, plan)
    return plan


def check_plan(model: nn.Module, pairs: Pairs, plan: Iterable[Cell]) -> None:
    """Refuses cells that name what the model or the documents do not have, before anything runs."""
    plan = list(plan)
    sites = [*editable_sites(model), *(state_sites(model) if isinstance(model, Model) else ())]
    for site in {cell.site: None for cell in plan}:
        if site not in sites:
            raise UnknownName("site", site, sites)
    for role in {cell.role: None for cell in plan}:
        pairs.places(role)
    for cell in plan:
        if cell.slot not in pairs.corrupted:
            raise UnknownName("slot", cell.slot, pairs.corrupted)
        if cell.direction not in DIRECTIONS:
            raise UserError(f"direction must be one of {', '.join(DIRECTIONS)}, not {cell.direction!r}")
