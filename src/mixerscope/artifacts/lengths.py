"""How well a state is tracked in documents of several lengths, as it is kept."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from mixerscope.artifacts.base import Frames, JsonArtifact
from mixerscope.artifacts.estimate import Estimate


@dataclass(frozen=True)
class AtLength:
    """What a model gets right in documents of one length."""

    length: int
    """Inputs of a document."""
    times: int
    """The same in lengths of training."""
    accuracy: Estimate
    """Share of questions that are answered rightly, as a mean over documents."""
    last: Estimate
    """The same of the last question of each document."""
    whole: Estimate
    """Share of documents in which every answer is right."""
    guessing: float
    """What the best rule gets of the last questions that reads the last few tokens, or nothing."""
    by_position: tuple[float | None, ...]
    """Accuracy after each input; None where no document asks."""
    guessing_all: float | None = None
    """What the best such rule, which may also know the position, gets of all questions, as a mean over documents; None
    where that was not asked."""


@dataclass(frozen=True, repr=False)
class Lengths(Frames, JsonArtifact):
    """Accuracy by length and position."""

    file: ClassVar[str] = "lengths.json"
    lengths: tuple[AtLength, ...]

    def at(self, times: int) -> AtLength | None:
        """What was found in documents so many times as long as those of training."""
        return next((found for found in self.lengths if found.times == times), None)

    def sentence(self) -> str:
        """One line for people."""
        return "; ".join(f"length {found.length}: accuracy {found.accuracy}" for found in self.lengths) or "no lengths"

    def shown(self) -> Iterator[dict[str, Any]]:
        """The rows that a notebook shows."""
        for found in self.lengths:
            said = {name: getattr(found, name) for name in ("accuracy", "last", "whole", "guessing", "guessing_all")}
            yield {"length": found.length, "times": found.times, **said}

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row per length and position, and one per length over all positions."""
        for found in self.lengths:
            known = {"guessing": found.guessing, "guessing_all": found.guessing_all}
            shared = {"length": found.length, "times": found.times, **known}
            for name in ("accuracy", "last", "whole"):
                yield {**shared, "position": None, "metric": name, **vars(getattr(found, name))}
            for position, value in enumerate(found.by_position, 1):
                nothing = {"low": None, "high": None, "n": None}
                yield {**shared, "position": position, "metric": "accuracy", "value": value, **nothing}
