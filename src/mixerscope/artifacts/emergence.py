"""How a mechanism came about, as it is kept."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from mixerscope.artifacts.base import Frames, JsonArtifact
from mixerscope.showing import counted


@dataclass(frozen=True)
class EmergencePoint:
    """The share of one role at one block boundary at one step; None with the reason where there is no number."""

    step: int
    slot: str | None
    site: str | None
    role: str | None
    share: float | None
    low: float | None
    high: float | None
    gap: float | None
    accuracy: float | None
    reason: str


@dataclass(frozen=True, repr=False)
class Emergence(Frames, JsonArtifact):
    """Shares at the block boundaries during training."""

    file: ClassVar[str] = "emergence.json"
    points: tuple[EmergencePoint, ...]

    def sentence(self) -> str:
        """One line for people."""
        steps = sorted({point.step for point in self.points})
        return f"{counted(len(steps), 'look')} into training{f', steps {steps[0]} to {steps[-1]}' if steps else ''}"

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row per step, slot, site and role."""
        return (dict(vars(point)) for point in self.points)
