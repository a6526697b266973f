"""How well the state can be read at every site, as it is kept."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from mixerscope.artifacts.base import Frames, JsonArtifact
from mixerscope.showing import counted

KINDS = ("accuracy", "readability", "shuffled", "control", "untrained", "logistic", "penalty")
"""Of numbers that are kept for every label and site."""


@dataclass(frozen=True)
class ProbedLabel:
    """One thing that is true of the state, over some of the positions, and what is had of it without a probe."""

    name: str
    """`answer` is what the task asks."""
    positions: str
    """`every`, or `hard`: those where the last token alone does not say it."""
    classes: int
    chance: float
    position: float
    """Of the usual label at each position."""
    window: float
    """Of the usual label after the last four tokens."""
    ceiling: float
    """What the model itself gets right there; 1 for what is not asked."""
    judged: int
    """Vectors."""


@dataclass(frozen=True, repr=False)
class Probes(Frames, JsonArtifact):
    """Balanced accuracies of linear probes: a row for each label, a column for each site."""

    file: ClassVar[str] = "probes.json"
    sites: tuple[str, ...]
    boundaries: tuple[str, ...]
    """Those of them that are the stream between blocks, the embedding first."""
    labels: tuple[ProbedLabel, ...]
    accuracy: tuple[tuple[float, ...], ...]
    readability: tuple[tuple[float | None, ...], ...]
    """From 0, the best of chance, position and window, to 1, the model's own accuracy; None if they are too close."""
    shuffled: tuple[tuple[float, ...], ...]
    """The same probe for labels in random order."""
    control: tuple[tuple[float, ...], ...]
    """The same for a random function of the last tokens."""
    untrained: tuple[tuple[float, ...], ...]
    """The same labels, read from the network before training."""
    logistic: tuple[tuple[float | None, ...], ...]
    """Logistic regression in place of ridge; at the boundaries, every position only."""
    penalty: tuple[tuple[float, ...], ...]
    accuracy_low: tuple[tuple[float, ...], ...] = ()
    """The accuracy's interval over documents; empty where it was not kept."""
    accuracy_high: tuple[tuple[float, ...], ...] = ()

    def curve(self, label: str = "answer", positions: str = "every") -> list[float | None] | None:
        """Readability at the boundaries, first to last."""
        for row, found in enumerate(self.labels):
            if (found.name, found.positions) == (label, positions):
                return [self.readability[row][self.sites.index(site)] for site in self.boundaries]
        return None

    def sentence(self) -> str:
        """One line for people."""
        names = ", ".join(dict.fromkeys(label.name for label in self.labels))
        return f"{names} at {counted(len(self.sites), 'site')}"

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row per label and site."""
        for row, label in enumerate(self.labels):
            for column, site in enumerate(self.sites):
                numbers = {kind: getattr(self, kind)[row][column] for kind in KINDS}
                for end in ("accuracy_low", "accuracy_high"):
                    numbers[end] = getattr(self, end)[row][column] if getattr(self, end) else None
                said = dict(vars(label))
                yield {"site": site, "label": said.pop("name"), **said, **numbers}
