"""From a proof to the routes that documents take."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mixerscope.analysis.documents import Path, surest
from mixerscope.artifacts.effects import EffectTable
from mixerscope.artifacts.proof import Proof, TestedRoute, Unasked

SUFFICIENT, NECESSARY, TAKES = "sufficient", "necessary", "takes the route"
ABOUT = {
    SUFFICIENT: "documents in which the route alone, all else corrupted, brings the answer back",
    NECESSARY: "documents in which corrupting the route alone takes the answer away",
    TAKES: "documents in which both hold",
}


def tested(proof: Proof | None, slot: str, paths: Sequence[Path]) -> dict[Path, TestedRoute]:
    """The paths that were tried, with what became of them."""
    routes = [route for path in paths if proof and (route := proof.route(slot, path)) is not None]
    return {route.carriers: route for route in routes}


def taken_by(
    tried: dict[Path, TestedRoute], carries: float, table: EffectTable, unasked: Sequence[Unasked] = ()
) -> list[Path | None]:
    """The path that each document takes. How far each goes decides between them; whether the answer goes with it
    decides whether it is taken: half of a logit difference may be less than an answer, or more than one."""
    paths, routes = list(tried), list(tried.values())
    shares = [torch.minimum(r.sufficient, r.necessary)[r.gap].double() for r in routes]
    holds = torch.stack([r.brings_back(carries) & r.takes_away(carries) for r in routes])
    where = None
    if all(path and table.positions.keys() >= set(path) for path in paths):
        at = {place: of[routes[0].gap] for place, of in table.positions.items()}
        where = torch.stack([torch.stack([at[place] for place in path], 1) for path in paths])
        picked = {each.block: each.keeps_out(carries)[routes[0].gap] for each in unasked}
        holds &= ~torch.stack([_has_arrived(path, at, table.facts.read[0], picked) for path in paths])
    which = surest(torch.stack(shares), carries, holds, where)
    return [paths[i] if i >= 0 else None for i in which.tolist()]


def _has_arrived(path: Path, at: Mapping[str, Tensor], read: str, picked: Mapping[int, Tensor]) -> Tensor:
    """[n] whether a path gives another name to the place where the answer is read, though the block before it brings
    there only what is asked: that is no store, which somebody asks later, but the arrival."""
    found = torch.zeros_like(at[read], dtype=torch.bool)
    for block, place in enumerate(path):
        if place != read and block in picked:
            found |= (at[place] == at[read]) & picked[block]
    return found


def passed_by(route: TestedRoute, carries: float) -> dict[str, Tensor]:
    one, other = route.brings_back(carries), route.takes_away(carries)
    return {SUFFICIENT: one, NECESSARY: other, TAKES: one & other}


def arrival(carriers: Sequence[str]) -> int:
    """The block that brings the information to where it is read; 0 where it stands there from the beginning."""
    moved = [block for block in range(len(carriers) - 1) if carriers[block] != carriers[block + 1]]
    return moved[-1] if moved else 0
