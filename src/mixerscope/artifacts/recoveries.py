"""How much of an answer comes back when parts of the unchanged document are put into a changed one, as it is kept."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from mixerscope.artifacts.base import Frames, JsonArtifact
from mixerscope.showing import counted


@dataclass(frozen=True)
class Recovered:
    """What one place brings back: 0 as changed, 1 as unchanged; None where the two tell no difference there."""

    site: str
    position: int | None
    """Where the unchanged document's activation is put; None for every position from the changed input on."""
    same: float | None
    """Read at that very position, or at the changed input: behind the last block this is 1 by construction."""
    later: float | None
    """Read at all positions behind it."""
    same_low: float | None = None
    """Intervals over documents; None too where they were not kept."""
    same_high: float | None = None
    later_low: float | None = None
    later_high: float | None = None


@dataclass(frozen=True)
class WithoutTaps:
    """Short convolutions of one block that see the current position alone."""

    block: int
    accuracy: float
    damage: float | None
    """1 where what is left is guessing; None where the model knows too little to lose."""


@dataclass(frozen=True, repr=False)
class Recoveries(Frames, JsonArtifact):
    """By boundary and position, and of short convolutions."""

    file: ClassVar[str] = "recoveries.json"
    position: int
    """The input that is changed."""
    pairs: int
    gap: float
    """Mean logit difference, over all positions behind the change, between the two documents."""
    cells: tuple[Recovered, ...]
    clean: float
    """Accuracy without an edit."""
    guessing: float
    without_taps: tuple[WithoutTaps, ...]
    """Empty for models without short convolutions."""

    def cell(self, site: str, position: int | None) -> Recovered | None:
        return next((one for one in self.cells if (one.site, one.position) == (site, position)), None)

    def sentence(self) -> str:
        """One line for people."""
        changed = f"input {self.position} changed in {counted(self.pairs, 'document')}"
        return f"{counted(len(self.cells), 'place')} put back, {changed}, accuracy unchanged {self.clean:.3f}"

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row per site and position."""
        return (dict(vars(one)) for one in self.cells)

    def more_tables(self) -> dict[str, Iterator[dict[str, Any]]]:
        return {"without_taps": (dict(vars(one)) for one in self.without_taps)}
