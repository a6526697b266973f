"""How a model tracks its state, as a verdict that is kept."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from mixerscope.artifacts.base import Frames, JsonArtifact

StateName = Literal["carried", "recomputed", "length-specific", "not learned", "undetermined"]


@dataclass(frozen=True)
class StateTest:
    """One question, and what was found; None where it could not be asked."""

    name: str
    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, repr=False)
class StateVerdict(Frames, JsonArtifact):
    """`carried`: held and moved forward. `recomputed`: worked out from the inputs at each position. `length-specific`:
    by position. `not learned`, or `undetermined`."""

    file: ClassVar[str] = "state_verdict.json"
    name: StateName
    reason: str
    tests: tuple[StateTest, ...]
    rests_on: tuple[str, ...] = ()
    """Names of the tests that decided; empty in verdicts from before that was kept."""

    def sentence(self) -> str:
        """The verdict in words."""
        return f"{self.name}: {self.reason}"

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row."""
        yield {"mechanism": self.name, "reason": self.reason}

    def more_tables(self) -> dict[str, Iterator[dict[str, Any]]]:
        tests = ({"test": t.name, "value": t.value, "low": t.low, "high": t.high} for t in self.tests)
        return {"state_tests": tests}

    def shown(self) -> Iterator[dict[str, Any]]:
        """The rows that a notebook shows: the tests."""
        return self.more_tables()["state_tests"]
