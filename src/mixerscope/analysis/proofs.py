"""From a proof to the routes that documents take."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mixerscope.analysis.documents import Path, surest
from mixerscope.artifacts.proof import Proof, TestedRoute

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


def taken_by(tried: dict[Path, TestedRoute], carries: float) -> list[Path | None]:
    """The path that each document takes. How far each goes decides between them; whether the answer goes with it
    decides whether it is taken: half of a logit difference may be less than an answer, or more than one."""
    paths, routes = list(tried), tried.values()
    shares = [torch.minimum(r.sufficient, r.necessary)[r.gap].double() for r in routes]
    holds = [r.brings_back(carries) & r.takes_away(carries) for r in routes]
    which = surest(torch.stack(shares), carries, torch.stack(holds))
    return [paths[i] if i >= 0 else None for i in which.tolist()]


def passed_by(route: TestedRoute, carries: float) -> dict[str, Tensor]:
    one, other = route.brings_back(carries), route.takes_away(carries)
    return {SUFFICIENT: one, NECESSARY: other, TAKES: one & other}


def arrival(carriers: Sequence[str]) -> int:
    """The block that brings the information to where it is read; 0 where it stands there from the beginning."""
    moved = [block for block in range(len(carriers) - 1) if carriers[block] != carriers[block + 1]]
    return moved[-1] if moved else 0
