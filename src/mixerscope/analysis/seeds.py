"""What several seeds say together. A seed is one model: its documents are no further evidence about other seeds."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from math import isfinite
from typing import Any

from mixerscope.analysis.quantiles import exact_interval
from mixerscope.analysis.stats import seeds_estimate
from mixerscope.artifacts.base import Frames
from mixerscope.artifacts.estimate import Estimate
from mixerscope.artifacts.verdicts import Verdict
from mixerscope.errors import UserError

MIN_SEEDS = 3
"""Fewer have no interval: with two, Student's t is 12.7 standard errors wide."""
VARIES = "varies by seed"
NO_VERDICT = "no verdict"

Way = tuple[str, tuple[str, ...], tuple[int, ...]]
"""What is compared: the mechanism, its route, and the block of each of its steps."""


@dataclass(frozen=True, repr=False)
class OverSeeds(Frames):
    """The verdicts, or shares, of models that differ in their seed alone."""

    seeds: int
    mechanism: str | None
    """The one all seeds have, by the same route and in the same blocks, or 'varies by seed'; None where only shares
    were given."""
    mechanisms: Mapping[str, int]
    """How many seeds have each, the commonest first; with its blocks or its route where these tell it from another."""
    value: float | None
    """Mean share; None where the seeds have no route in common, or no share."""
    share: Estimate | None
    """The same with its interval over seeds; None where fewer than three seeds have a share."""
    agreement: Estimate | None = None
    """Share of all seeds, not only these, that have the commonest; None under three seeds."""
    without_share: int = 0
    """Seeds that have the common route and no share, and are not in the mean."""
    note: str = ""
    """What a reader must know of the numbers; empty where there is nothing."""
    counts: str = field(default="", repr=False)
    """`induction in 3 of 5 seeds, undetermined in 2`"""

    def sentence(self) -> str:
        """One line for people."""
        said = [self.counts] if self.counts else []
        if self.share is not None:
            low, high = f"{self.share.low:.2f}", f"{self.share.high:.2f}"
            said.append(f"share {self.share.value:.2f} [{low}, {high}] over {self.share.n} seeds")
        elif self.value is not None:
            said.append(f"share {self.value:.2f}")
        return "; ".join([*said, *([self.note] if self.note else [])])

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row per mechanism, the commonest first."""
        return ({"mechanism": name, "seeds": count, "of": self.seeds} for name, count in self.mechanisms.items())

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def over_seeds(found: Sequence[Verdict | None] | Sequence[float]) -> OverSeeds:
    """One summary of models that differ in their seed alone, each counting once: of their verdicts on one slot (None
    for a seed without one), or of shares.

    Seeds agree if mechanism, route and blocks are the same. Their mean share has a 95% interval inside [0, 1] from
    three seeds on.
    """
    if not isinstance(found, Sequence) or not all(isinstance(item, Verdict | int | float | None) for item in found):
        raise UserError("over_seeds takes a list: the verdicts of several seeds, None for one without, or their shares")
    shares = [item for item in found if not isinstance(item, Verdict) and item is not None]
    verdicts = [item for item in found if isinstance(item, Verdict)]
    if not found or (shares and len(shares) < len(found)):
        raise UserError("over_seeds takes verdicts or shares, at least one, and not both")
    if shares:
        return _shares(shares)
    if len(slots := {verdict.slot for verdict in verdicts}) > 1:
        raise UserError(f"these verdicts are of the slots {', '.join(sorted(slots))}: put those of one slot together")
    return _verdicts(found)  # pyright: ignore[reportArgumentType] - there are no shares among them


def _shares(shares: Sequence[float]) -> OverSeeds:
    wrong = [share for share in shares if not (isfinite(share) and 0 <= share <= 1)]
    if wrong:
        raise UserError(f"shares of documents lie between 0 and 1, and {wrong[0]:g} does not")
    value = sum(shares) / len(shares)
    share = seeds_estimate(shares) if len(shares) >= MIN_SEEDS else None
    return OverSeeds(len(shares), None, {}, value, share, note=too_few(len(shares)))


def _verdicts(found: Sequence[Verdict | None]) -> OverSeeds:
    seeds = len(found)
    ways = Counter(_way(verdict) for verdict in found)
    names = _names(list(ways))
    mechanisms = {names[way]: count for way, count in ways.most_common()}
    common, most = ways.most_common(1)[0]
    agreement = Estimate(most / seeds, *exact_interval(most, seeds), seeds) if seeds >= MIN_SEEDS else None
    notes = [too_few(seeds)]
    shares: list[float] = []
    without = 0
    if most == seeds and common[1]:
        shares = [verdict.share.value for verdict in found if verdict is not None and verdict.share is not None]
        without = seeds - len(shares)
        if without:
            notes.append(f"{without} of {seeds} seeds {'has' if without == 1 else 'have'} no share")
    return OverSeeds(
        seeds=seeds,
        mechanism=common[0] if most == seeds else VARIES,
        mechanisms=mechanisms,
        value=sum(shares) / len(shares) if shares else None,
        share=seeds_estimate(shares) if len(shares) >= MIN_SEEDS else None,
        agreement=agreement,
        without_share=without,
        note="; ".join(filter(None, notes)),
        counts=_counts(mechanisms, seeds),
    )


def _way(verdict: Verdict | None) -> Way:
    """Parts of one block make one step together: what is compared is what happens between blocks."""
    if verdict is None:
        return NO_VERDICT, (), ()
    return verdict.mechanism, verdict.route, tuple(block for block, _ in groupby(move.block for move in verdict.moves))


def _names(ways: Sequence[Way]) -> dict[Way, str]:
    """What each is called: the mechanism, and as much more as tells it from the others."""
    found: dict[Way, str] = {}
    for mechanism, route, blocks in ways:
        alike = [way for way in ways if way[0] == mechanism]
        told = []
        if len({way[1] for way in alike}) > 1:
            told.append(" → ".join(route) or "no route")
        if len({way[2] for way in alike}) > 1:
            plural = "s" if len(blocks) > 1 else ""
            told.append(f"block{plural} {' and '.join(map(str, blocks))}" if blocks else "no block named")
        found[mechanism, route, blocks] = f"{mechanism} ({', '.join(told)})" if told else mechanism
    return found


def _counts(mechanisms: Mapping[str, int], seeds: int) -> str:
    (first, most), *others = mechanisms.items()
    of = f"{most} of {seeds} seeds" if seeds > 1 else "1 seed"
    return ", ".join([f"{first} in {of}", *(f"{name} in {count}" for name, count in others)])


def too_few(seeds: int) -> str:
    """What a reader must know of so few seeds; empty where there are enough."""
    return "" if seeds >= MIN_SEEDS else f"{seeds} seed{'s' if seeds > 1 else ''}: no interval under {MIN_SEEDS}"
