"""What a model scores on fresh documents, and on the same documents with a token changed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from mixerscope.artifacts.base import Frames, JsonArtifact
from mixerscope.artifacts.estimate import Estimate


@dataclass(frozen=True, repr=False)
class Scores(Frames, JsonArtifact):
    """Estimates by `original.accuracy`, `corrupted.key.likelihood` and the like; nothing was edited for them."""

    file: ClassVar[str] = "evaluation.json"
    estimates: dict[str, Estimate]

    @property
    def accuracy(self) -> Estimate:
        return self.estimates["original.accuracy"]

    @property
    def likelihood(self) -> Estimate:
        return self.estimates["original.likelihood"]

    def sentence(self) -> str:
        """One line for people."""
        return f"accuracy {self.accuracy}, likelihood {self.likelihood}, {self.accuracy.n} documents"

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row per kind of document and metric."""
        for name, estimate in self.estimates.items():
            documents, _, metric = name.rpartition(".")
            yield {"documents": documents, "metric": metric, **vars(estimate)}
