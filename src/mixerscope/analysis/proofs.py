"""From a proof to the routes that documents take."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mixerscope.analysis.documents import Path, surest
from mixerscope.artifacts.proof import Proof

SUFFICIENT, NECESSARY, TAKES = "sufficient", "necessary", "takes the route"
ABOUT = {
    SUFFICIENT: "documents in which the route alone, all else corrupted, brings the answer back",
    NECESSARY: "documents in which corrupting the route alone takes the answer away",
    TAKES: "documents in which both hold",
}


def tested(proof: Proof | None, slot: str, paths: Sequence[Path]) -> dict[Path, tuple[Tensor, Tensor]]:
    """By path that was tried: how far it is sufficient and necessary, in the documents that count."""
    routes = [route for path in paths if proof and (route := proof.route(slot, path)) is not None]
    return {r.carriers: (r.sufficient[r.gap].double(), r.necessary[r.gap].double()) for r in routes}


def taken_by(both: dict[Path, tuple[Tensor, Tensor]], carries: float) -> list[Path | None]:
    paths = list(both)
    which = surest(torch.stack([torch.minimum(*both[path]) for path in paths]), carries)
    return [paths[i] if i >= 0 else None for i in which.tolist()]


def passed_by(sufficient: Tensor, necessary: Tensor, carries: float) -> dict[str, Tensor]:
    one, other = sufficient > carries, necessary > carries
    return {SUFFICIENT: one, NECESSARY: other, TAKES: one & other}


def arrival(carriers: Sequence[str]) -> int:
    """The block that brings the information to where it is read; 0 where it stands there from the beginning."""
    moved = [block for block in range(len(carriers) - 1) if carriers[block] != carriers[block + 1]]
    return moved[-1] if moved else 0
