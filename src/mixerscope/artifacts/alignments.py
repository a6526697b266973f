"""What becomes of answers when part of what a document holds is exchanged along a subspace, as it is kept."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from mixerscope.artifacts.base import Frames, JsonArtifact
from mixerscope.artifacts.estimate import Estimate
from mixerscope.showing import counted

ALONE = "state"
"""The place that is all of the memory, and nothing else."""


@dataclass(frozen=True)
class SpanOf:
    """The directions within which subspaces of a place are looked for."""

    place: str
    """A site, `state`: all recurrent states at once, or `both`: the stream and these."""
    axes: int
    """Leading principal axes of what is held there."""
    variance: float
    """Share of the variance along them."""


@dataclass(frozen=True)
class Aligned:
    """One subspace, along which documents got what another one holds."""

    place: str
    how: str
    """`das`: learned on other pairs; `random`: a random one; `probe`: what a probe of the label reads; `leace`: what
    erasing the label would take; `span`: everything within the span; `swap`: everything."""
    rank: int | None
    """Of the subspace; None where everything is exchanged."""
    now: Estimate | None
    """Share of answers, at that very position, that are those of the other state; None where nothing can be told."""
    later: Estimate | None
    """The same behind it, where the automaton would go on from the other state over this document's inputs."""
    kept: float | None
    """Share of the later answers that are what they were."""
    alike: float | None
    """Mean squared cosine of the angles to what the probe reads: 1 the same, 0 at right angles."""
    moved: Estimate | None = None
    """As `later`, exchanged along the same directions late in documents; None where that was not asked."""
    earlier: Estimate | None = None
    """Share of right answers where late documents got, along a learned subspace, the nearest of what is held early
    there; None where that was not asked."""
    by_distance: tuple[float | None, ...] = ()
    """Share of answers that follow, so many inputs later, from 0 on."""
    told: tuple[int, ...] = ()
    """Of how many answers each of these is."""


@dataclass(frozen=True, repr=False)
class Alignments(Frames, JsonArtifact):
    """By place and subspace; shares are of pairs that no subspace was learned on."""

    file: ClassVar[str] = "alignments.json"
    position: int
    """The input after which parts are exchanged."""
    label: str
    """What probes and erasures are of."""
    learned_on: int
    """Pairs."""
    pairs: int
    """Those that judge."""
    accuracy: float
    """Of the unedited answers from there on."""
    spans: tuple[SpanOf, ...]
    cells: tuple[Aligned, ...]

    def cell(self, place: str, how: str, rank: int | None = None) -> Aligned | None:
        """What was found for one subspace; without a rank, the first of that kind."""
        found = (one for one in self.cells if (one.place, one.how) == (place, how) and rank in (None, one.rank))
        return next(found, None)

    def learned(self) -> list[Aligned]:
        """Those learned in all of the memory, and in it alone. Beside the stream, which has answers in it, a subspace
        can write these into a memory that holds something else."""
        return [one for one in self.cells if (one.place, one.how) == (ALONE, "das")]

    def sentence(self) -> str:
        """One line for people."""
        ways = counted(len(self.cells), "subspace")
        return f"{ways} exchanged after input {self.position}, {counted(self.pairs, 'pair')} of documents"

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row per place and subspace."""
        for one in self.cells:
            row = asdict(one)
            del row["by_distance"], row["told"]
            for name in ("now", "later", "moved", "earlier"):
                value = row.pop(name)
                row |= {name: value and value["value"], f"{name}_low": value and value["low"]}
                row[f"{name}_high"] = value and value["high"]
            yield row

    def more_tables(self) -> dict[str, Iterator[dict[str, Any]]]:
        return {"spans": (dict(vars(one)) for one in self.spans)}
