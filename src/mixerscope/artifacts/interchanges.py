"""What becomes of answers when another state is written in the middle of a document, as it is kept."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from mixerscope.artifacts.base import Frames, JsonArtifact
from mixerscope.artifacts.estimate import Estimate
from mixerscope.showing import counted


@dataclass(frozen=True)
class Interchanged:
    """One way of writing the other state, at one place, after the input in the middle."""

    place: str
    """`stream`: all boundaries behind the first block; `inner`: without the last; `state`: all recurrent states;
    `both`; or a single site."""
    how: str
    """`shift`: by the difference between the means of the two states there; `moved`: by that difference as it is at
    another position; `swap`: all that the other document has there."""
    now: Estimate | None
    """Share of answers, at that very position, that are those of the other state; None where nothing can be told."""
    later: Estimate | None
    """The same behind it, where the automaton would go on from the other state over this document's inputs."""
    kept: float | None
    """Share of the later answers that are what they were."""
    by_distance: tuple[float | None, ...]
    """Share of answers that follow, so many inputs later, from 0 on."""
    told: tuple[int, ...] = ()
    """Of how many answers each of these is."""


@dataclass(frozen=True)
class Earlier:
    """Documents that got, late in them, what some document holds early: the nearest of what there is."""

    early: int
    late: int
    """After which inputs."""
    right: Estimate
    """Share of the later answers that are right all the same, in documents whose state was met early."""


@dataclass(frozen=True, repr=False)
class Interchanges(Frames, JsonArtifact):
    """Carried, or recomputed: what later answers do when the state in the middle is another one."""

    file: ClassVar[str] = "interchanges.json"
    position: int
    """The input after which the state is written."""
    other_position: int
    """Where the means of `moved` were taken."""
    pairs: int
    accuracy: float
    """Of the unedited answers from there on."""
    cells: tuple[Interchanged, ...]
    earlier: Earlier | None = None
    """None where nothing is held, or no state is met both early and late."""
    unwritten: tuple[str, ...] | None = None
    """Mixers of which something that they may hold from one position to the next could not be written; None where that
    was not asked."""

    def cell(self, place: str, how: str) -> Interchanged | None:
        """What was found for one way of writing."""
        return next((one for one in self.cells if (one.place, one.how) == (place, how)), None)

    def sentence(self) -> str:
        """One line for people."""
        ways = counted(len(self.cells), "way")
        return (
            f"{ways} of writing another state after input {self.position}, {counted(self.pairs, 'pair')} of documents"
        )

    def shown(self) -> Iterator[dict[str, Any]]:
        """The rows that a notebook shows."""
        for one in self.cells:
            yield {"place": one.place, "how": one.how, "now": one.now, "later": one.later, "kept": one.kept}

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row per place, way of writing, and how much later, with the number of answers where it was kept."""
        for one in self.cells:
            told = one.told or (None,) * len(one.by_distance)
            for distance, (value, n) in enumerate(zip(one.by_distance, told, strict=True)):
                where = {"place": one.place, "how": one.how, "distance": distance}
                yield {**where, "follows": value, "n": n, "kept": one.kept}

    def summary(self) -> Iterator[dict[str, Any]]:
        """A row per place and way of writing."""
        return (asdict(one) for one in self.cells)

    def more_tables(self) -> dict[str, Iterator[dict[str, Any]]]:
        earlier = [] if self.earlier is None else [self.earlier]
        held = ({"early": e.early, "late": e.late, "right": e.right.value, "n": e.right.n} for e in earlier)
        return {"interchanged": (_flat(row) for row in self.summary()), "held_earlier": held}


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """An interval as columns of its own; a row per distance says what `by_distance` does."""
    flat: dict[str, Any] = {"place": row["place"], "how": row["how"], "kept": row["kept"]}
    for name in ("now", "later"):
        ends = row[name] or {"value": None, "low": None, "high": None, "n": None}
        flat |= {name: ends["value"], **{f"{name}_{end}": ends[end] for end in ("low", "high", "n")}}
    return flat
