"""Which cells a grid has: slot x direction x site x role x edit, as data; the engine decides the order of work."""

from collections.abc import Iterable, Sequence
from itertools import combinations

import torch
from torch import nn

from mixerscope.artifacts.effects import DIRECTIONS, JOINT, SWAP, Cell, Direction, Part
from mixerscope.errors import UnknownName, UserError
from mixerscope.interventions.adapt import INSIDE, Adapted
from mixerscope.interventions.pairs import Pairs
from mixerscope.interventions.states import is_state, state_sites
from mixerscope.model import Model
from mixerscope.sites import find_site, named_sites

NOT_POSITIONAL = "logits"
"""The one site without a position axis of its own."""

OFFSETS = (-1, 1, 2, 3, 4)
"""Positions around the corrupted token that are tried beside the roles. Figure 5 looks at the two positions after the
value, which are +2 and +3 from the key; +1 is the value itself, unless something stands between."""
MOST_HEADS = 8
"""Heads are looked at one by one where there are no more than this; H3 has as many as half its width."""


def editable_sites(model: nn.Module) -> list[str]:
    """Every site of a model that an interchange can edit."""
    return [name for name in named_sites(model) if name != NOT_POSITIONAL and not name.startswith(INSIDE)]


def plan_grid(
    model: Model | Adapted,
    pairs: Pairs,
    sites: Iterable[str] | None = None,
    roles: Iterable[str] | None = None,
    directions: Iterable[Direction] = DIRECTIONS,
    edits: Iterable[str] = (SWAP,),
    slots: Iterable[str] | None = None,
) -> list[Cell]:
    """All combinations; by default every editable site and every role of the documents. Unknown names are refused.

    The states of mixers (`state_sites`) are taken up where they are named: reading them means running step by step.
    """
    sites = editable_sites(model) if sites is None else list(sites)
    roles = list(pairs.original.roles) if roles is None else list(roles)
    directions, edits = list(directions), list(edits)
    slots = pairs.patched if slots is None else list(slots)
    plan = [
        Cell(slot, direction, site, role, edit)
        for slot in slots
        for direction in directions
        for site in sites
        for role in roles
        for edit in edits
    ]
    check_plan(model, pairs, plan)
    return plan


def check_plan(model: Model | Adapted, pairs: Pairs, plan: Iterable[Cell]) -> None:
    """Refuses cells that name what the model or the documents do not have, before anything runs."""
    plan = list(plan)
    sites = [*editable_sites(model), *state_sites(model)]
    for site in {cell.site: None for cell in plan}:
        if site not in sites:
            raise UnknownName("site", site, sites)
    for role in {cell.role: None for cell in plan}:
        pairs.places(role)
    pairs.reads.demand_within(pairs.original)
    _demand_vocabulary(model, pairs)
    for cell in plan:
        if cell.read:
            raise UserError(
                f"a cell of a plan has no read, got {cell.read!r}: the pairs say where effects are measured"
            )
        if cell.head != -1:
            heads = 1 if is_state(cell.site) else find_site(model, cell.site).heads
            if heads == 1:  # or a channel would be taken for a head
                raise UserError(f"site {cell.site!r} is not divided into heads, so none of them can be edited alone")
            if not 0 <= cell.head < heads:
                raise UserError(f"site {cell.site!r} has the heads 0 to {heads - 1}, so none is number {cell.head}")
        if cell.slot not in pairs.corrupted:
            raise UnknownName("slot", cell.slot, pairs.corrupted)
        if cell.direction not in DIRECTIONS:
            raise UserError(f"direction must be one of {', '.join(DIRECTIONS)}, not {cell.direction!r}")


def _demand_vocabulary(model: Model | Adapted, pairs: Pairs) -> None:
    """Refuses documents of another task than the model was made for, as far as that shows."""
    size = model.vocabulary
    documents = [pairs.original.tokens, pairs.reads.targets, *(batch.tokens for batch in pairs.corrupted.values())]
    largest = max((int(tokens.max()) for tokens in documents if tokens.numel()), default=0)
    if size is not None and largest >= size:
        raise UserError(f"the documents hold the token {largest}, and the model knows {size}: they are of another task")


def boundary_sites(model: Model | Adapted) -> list[str]:
    """Where the residual stream is read: before each block, and after the last; none where a foreign map names none."""
    return list(model.boundaries())


def parts_of(model: Model | Adapted) -> tuple[tuple[Part, ...], ...]:
    """Per block, the parts that move information between positions."""
    return model.parts()


def distinct_roles(pairs: Pairs) -> list[str]:
    """Roles without those that stand where an earlier one stands in every document."""
    kept: list[str] = []
    for role, at in pairs.original.roles.items():
        if not any(torch.equal(at, pairs.original.roles[other]) for other in kept):
            kept.append(role)
    return kept


def judging_cells(model: Model | Adapted, pairs: Pairs, slots: Sequence[str] | None = None) -> list[Cell]:
    """What a verdict looks at beyond the grid, so that judging needs no model: positions around the corrupted token
    and several roles at once between the blocks and inside them, and single heads."""
    roles, blocks = distinct_roles(pairs), parts_of(model)
    # What enters the first block and what leaves the last are no question: only one position can matter there.
    inside = [*boundary_sites(model)[1:-1], *(part.site for parts in blocks for part in parts[:-1])]
    # The part that makes the last move of a block is found by elimination; its own share may be beside the roles, too.
    last = [parts[-1].site for parts in blocks[:-1]]
    together = [JOINT.join(pair) for pair in combinations(roles, 2)]
    if len(roles) > 2:
        together.append(JOINT.join(roles))
    cells: list[Cell] = []
    for slot in pairs.patched if slots is None else slots:
        offsets = _offsets(pairs, slot)
        for site in dict.fromkeys(inside):
            cells += [Cell(slot, direction, site, place) for direction in DIRECTIONS for place in offsets]
            cells += [Cell(slot, "restore", site, place) for place in together]
        cells += [Cell(slot, "restore", site, place) for site in last for place in offsets]
        for part in (part for parts in blocks for part in parts if 1 < part.heads <= MOST_HEADS):
            places = [*roles, *(offsets if part.site in (*inside, *last) else [])]
            cells += [Cell(slot, "restore", part.site, p, head=h) for p in places for h in range(part.heads)]
    for slot in pairs.corrupted if slots is None else ():
        if slot not in pairs.patched:  # not in the grid, but its route must agree with those that are
            for site in dict.fromkeys(inside):
                places = [*roles, *_offsets(pairs, slot)]
                cells += [Cell(slot, direction, site, place) for direction in DIRECTIONS for place in places]
    return cells


def full_plan(model: Model | Adapted, pairs: Pairs) -> list[Cell]:
    """Every slot, direction, site and role, and what a verdict looks at beyond them."""
    return list(dict.fromkeys([*plan_grid(model, pairs), *judging_cells(model, pairs)]))


def verdict_plan(model: Model | Adapted, pairs: Pairs) -> list[Cell]:
    """Only what a verdict looks at: the boundaries, the parts that move information, and what is beyond the grid."""
    sites = [*boundary_sites(model), *(part.site for parts in parts_of(model) for part in parts)]
    plan = [*plan_grid(model, pairs, sites=list(dict.fromkeys(sites))), *judging_cells(model, pairs)]
    return list(dict.fromkeys(plan))


def _offsets(pairs: Pairs, slot: str) -> list[str]:
    """Positions around the corrupted token that every document has and that are not a role under another name."""
    roles = pairs.original.roles
    start, length = roles[slot], pairs.original.tokens.shape[1]
    return [
        f"{slot}{offset:+d}"
        for offset in OFFSETS
        if bool(((start + offset >= 0) & (start + offset < length)).all())
        and not any(torch.equal(start + offset, at) for at in roles.values())
    ]
