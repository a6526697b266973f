"""Verdicts as they are kept: who carries the information where, which part moved it, and what that is called."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from mixerscope.artifacts.base import Frames, JsonArtifact
from mixerscope.artifacts.estimate import Estimate
from mixerscope.errors import UnknownName


@dataclass(frozen=True)
class Boundary:
    """Who carries the information at a site: `carrier`, or None with the reason."""

    site: str
    carrier: str | None
    share: Estimate | None
    """Of the carrier, restoring."""
    broken: Estimate | None
    """Of the carrier, breaking."""
    reason: str = ""
    restored: Mapping[str, Estimate] = field(default_factory=dict)
    """By role, offset (`key+3`) or several at once (`key&value`), whatever was tried."""


@dataclass(frozen=True)
class RouteMove:
    """One step of the route: a block, the part of its mixer that made the move, from where to where."""

    block: int
    component: str
    source: str
    target: str
    share: Estimate | None = None
    """What restoring the output of that part, at the target, brings back."""

    def __str__(self) -> str:
        return f"block {self.block} {self.component}: {self.source} → {self.target}"


@dataclass(frozen=True)
class Verdict:
    """What was found. `mechanism` is a name, or says why there is none."""

    mechanism: str
    route: tuple[str, ...]
    moves: tuple[RouteMove, ...]
    share: Estimate | None
    """The weakest link: the smallest share among the carriers of all boundaries."""
    gap: Estimate | None
    """Likelihood of the answer, original minus corrupted; None where it is not finite."""
    boundaries: tuple[Boundary, ...]
    reason: str = ""
    slot: str = "key"
    accuracy: Estimate | None = None
    """On the original documents."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def sentence(self) -> str:
        """One line for people."""
        if not self.route:
            return f"{self.mechanism}: {self.reason}"
        moves = "; ".join(map(str, self.moves))
        return f"{self.mechanism} ({' → '.join(self.route)}){'; ' + moves if moves else ''}"

    def __repr__(self) -> str:
        return f"<Verdict of {self.slot}: {self.sentence()}>"

    @property
    def steps(self) -> list[tuple[str, RouteMove | None]]:
        """The route as drawn: each place, with the move that leaves it. Places inside a block are among them."""
        if not self.moves:
            return [(role, None) for role in self.route]
        return [*((move.source, move) for move in self.moves), (self.moves[-1].target, None)]


@dataclass(frozen=True)
class Verdicts(Frames, JsonArtifact):
    """One for each slot that was corrupted and patched, the first being the one that headlines speak of."""

    file: ClassVar[str] = "verdicts.json"
    verdicts: tuple[Verdict, ...]

    def __iter__(self) -> Iterator[Verdict]:
        return iter(self.verdicts)

    def __len__(self) -> int:
        return len(self.verdicts)

    def __getitem__(self, slot: str) -> Verdict:
        if slot not in self.by_slot:
            raise UnknownName("slot among these verdicts", slot, self.by_slot)
        return self.by_slot[slot]

    @property
    def by_slot(self) -> dict[str, Verdict]:
        return {verdict.slot: verdict for verdict in self.verdicts}

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row per slot."""
        for verdict in self.verdicts:
            yield {
                "slot": verdict.slot,
                "mechanism": verdict.mechanism,
                "route": " → ".join(verdict.route),
                "moves": "; ".join(map(str, verdict.moves)),
                **_columns("share", verdict.share),
                **_columns("gap", verdict.gap),
                **_columns("accuracy", verdict.accuracy),
                "reason": verdict.reason,
            }


def _columns(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    return {
        name: None if estimate is None else estimate.value,
        f"{name}_low": None if estimate is None else estimate.low,
        f"{name}_high": None if estimate is None else estimate.high,
    }
