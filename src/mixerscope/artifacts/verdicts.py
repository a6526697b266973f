"""Verdicts as they are kept: who carries the information where, which part moved it, and what that is called."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from mixerscope.artifacts.base import Frames, JsonArtifact
from mixerscope.artifacts.estimate import Estimate, as_columns
from mixerscope.errors import UnknownName


@dataclass(frozen=True)
class Boundary:
    """Who carries the information at a site: `carrier`, or None with the reason."""

    site: str
    carrier: str | None
    share: Estimate | None
    """Documents in which restoring the carrier is enough. None where only one place can matter."""
    broken: Estimate | None
    """Documents in which breaking it is."""
    reason: str = ""
    restored: Mapping[str, Estimate] = field(default_factory=dict)
    """The same by role, offset (`key+3`) or several at once (`key&value`), whatever was tried."""


@dataclass(frozen=True)
class RouteMove:
    """One step of the route: a block, the part of its mixer that made the move, from where to where."""

    block: int
    component: str
    source: str
    target: str
    share: Estimate | None = None
    """Documents in which restoring the output of that part, at the target, is enough."""

    def __str__(self) -> str:
        return f"block {self.block} {self.component}: {self.source} → {self.target}"


@dataclass(frozen=True)
class Test:
    """One question that could have refuted a name."""

    name: str
    passed: bool | None
    """None where the question cannot be asked of this model."""
    value: Estimate | None = None
    needed: float | None = None
    """All of the interval must lie above it."""
    about: str = ""
    """What was asked, or why it could not be."""

    @property
    def margin(self) -> float:
        """How far above its threshold the interval begins, as a share of the way there is."""
        if self.value is None or self.needed is None or self.needed >= 1:
            return 1.0
        return (self.value.low - self.needed) / (1 - self.needed)


@dataclass(frozen=True, repr=False)
class Verdict(Frames):
    """What was found. `mechanism` is a name that passed every test, or says why there is none."""

    mechanism: str
    route: tuple[str, ...]
    moves: tuple[RouteMove, ...]
    share: Estimate | None
    """Documents that take the route, it alone sufficient and necessary; of those in which the corruption matters."""
    gap: Estimate | None
    """Likelihood of the answer, original minus corrupted; None where it is not finite."""
    boundaries: tuple[Boundary, ...]
    reason: str = ""
    slot: str = "key"
    accuracy: Estimate | None = None
    """On the original documents."""
    guessing: float | None = None
    """The accuracy that is had without solving the task."""
    tests: tuple[Test, ...] = ()
    found: Mapping[str, float] = field(default_factory=dict)
    """Share of the documents that take each route that was tried, and of those that take none."""
    published: str = ""
    """What the published reading calls it."""

    @property
    def weakest(self) -> Test | None:
        """The test that came closest to refuting the name, or the first that did."""
        asked = [test for test in self.tests if test.passed is not None and test.value is not None]
        return min(asked, key=lambda test: (test.passed, test.margin), default=None)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def sentence(self) -> str:
        """One line for people: what was found, how well the model does, and what came closest to refuting it."""
        what = f"{self.mechanism} ({' → '.join(self.route)})" if self.route else f"{self.mechanism}: {self.reason}"
        said = [what, *map(str, self.moves)]
        if self.accuracy is not None:
            guess = "" if self.guessing is None else f" (guessing {self.guessing:.0%})"
            said.append(f"accuracy {self.accuracy.value:.0%}{guess}")
        if self.gap is not None:
            said.append(f"gap {self.gap.value:.2f}")
        test = self.weakest
        if test is not None and test.value is not None:
            said.append(f"weakest test: {test.name} {test.value.value:.2f}")
            if not test.passed and test.needed is not None and test.value.value > test.needed:
                low = f"{test.value.low:.2f} to {test.value.high:.2f}"
                said[-1] += f" of {test.value.n} documents, {low}, of which all should lie above {test.needed:g}"
        return "; ".join(said)

    def __repr__(self) -> str:
        return f"<Verdict of {self.slot}: {self.sentence()}>"

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row per test, in the order they were asked."""
        for test in self.tests:
            asked = as_columns("value", test.value)
            n = test.value.n if test.value else None
            said = {"test": test.name, "passed": test.passed, **asked, "n": n, "needed": test.needed}
            yield {**said, "about": test.about}

    @property
    def steps(self) -> list[tuple[str, RouteMove | None]]:
        """The route as drawn: each place, with the move that leaves it. Places inside a block are among them."""
        if not self.moves:
            return [(role, None) for role in self.route]
        return [*((move.source, move) for move in self.moves), (self.moves[-1].target, None)]


@dataclass(frozen=True, repr=False)
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

    def sentence(self) -> str:
        """One line for people."""
        return "; ".join(f"{verdict.slot}: {verdict.mechanism}" for verdict in self.verdicts) or "none"

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row per slot."""
        for verdict in self.verdicts:
            yield {
                "slot": verdict.slot,
                "mechanism": verdict.mechanism,
                "route": " → ".join(verdict.route),
                "moves": "; ".join(map(str, verdict.moves)),
                **as_columns("share", verdict.share),
                **as_columns("gap", verdict.gap),
                **as_columns("accuracy", verdict.accuracy),
                "guessing": verdict.guessing,
                "weakest_test": verdict.weakest.name if verdict.weakest else None,
                "published": verdict.published,
                "reason": verdict.reason,
            }

    def more_tables(self) -> dict[str, Iterator[dict[str, Any]]]:
        return {"tests": self.tests()}

    def tests(self) -> Iterator[dict[str, Any]]:
        """A row per slot and test."""
        for verdict in self.verdicts:
            yield from ({"slot": verdict.slot, **row} for row in verdict.rows())
