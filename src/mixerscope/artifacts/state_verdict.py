"""How a model tracks its state, as a verdict that is kept."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from mixerscope.artifacts.base import JsonArtifact

StateName = Literal["carried", "recomputed", "length-specific", "not learned", "undetermined"]


@dataclass(frozen=True)
class StateTest:
    """One question, and what was found; None where it could not be asked."""

    name: str
    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class StateVerdict(JsonArtifact):
    """`carried`: held and moved forward. `recomputed`: worked out from the inputs at each position. `length-specific`:
    by position. `not learned`, or `undetermined`."""

    file: ClassVar[str] = "state_verdict.json"
    name: StateName
    reason: str
    tests: tuple[StateTest, ...]

    def sentence(self) -> str:
        """The verdict in words."""
        return f"{self.name}: {self.reason}"
