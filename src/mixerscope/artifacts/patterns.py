"""What heads attend to and how large states are, as it is kept: in one document, and between roles over many."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from mixerscope.artifacts.base import Frames, JsonArtifact
from mixerscope.artifacts.estimate import Estimate


@dataclass(frozen=True)
class Attended:
    """One head of one block."""

    block: int
    head: int
    example: tuple[tuple[float, ...], ...]
    """Of each position that looks (`Patterns.looking`): the weight it gives to every position up to itself."""
    between: dict[str, dict[str, Estimate]]
    """Looking role, then seen role: the mean weight over documents in which the one does not stand before the other."""


@dataclass(frozen=True)
class Held:
    """The state of one block's mixer: all numbers that cross from one position to the next, as one vector."""

    block: int
    size: int
    """Numbers in it, after the last position of the example."""
    example: tuple[float, ...]
    """Its Euclidean norm after each position."""
    at: dict[str, Estimate]
    """Role: the mean norm over documents after that position."""


@dataclass(frozen=True)
class Patterns(Frames, JsonArtifact):
    """Attention patterns and state norms, of the blocks that have them; a cache of all that was read is no state."""

    file: ClassVar[str] = "patterns.json"
    tokens: tuple[str, ...]
    """The example, up to where its answer is read."""
    roles: dict[str, int]
    """Where they stand in it."""
    looking: tuple[int, ...]
    """Positions of the example whose weights are kept: all, or in a long document those that have a role."""
    documents: int
    attention: tuple[Attended, ...]
    states: tuple[Held, ...]

    def to_bytes(self) -> bytes:
        # A line for each number, as other artifacts have them, would be most of the file.
        return (json.dumps(asdict(self), separators=(",", ":"), allow_nan=False) + "\n").encode()

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row per head and pair of roles, and per state and role, over documents."""
        for one in self.attention:
            for looking, seen in one.between.items():
                for role, weight in seen.items():
                    where = {"block": one.block, "head": one.head, "role": looking, "attends_to": role}
                    yield {**where, "what": "weight", **asdict(weight)}
        for state in self.states:
            for role, norm in state.at.items():
                where = {"block": state.block, "head": None, "role": role, "attends_to": None}
                yield {**where, "what": "state norm", **asdict(norm)}
