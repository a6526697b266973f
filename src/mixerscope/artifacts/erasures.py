"""What erasing the state at each site does to the answers, as it is kept."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from mixerscope.artifacts.base import Frames, JsonArtifact
from mixerscope.showing import counted

LEAST_READ, MOST_LEFT = 0.05, 0.02
"""Above chance: what a probe must read for there to be something to erase, and the most it may read afterwards."""
RECURRENT = ".mixer.state"
"""How the sites of recurrent states end; the others that a label is erased at are boundaries of blocks."""


@dataclass(frozen=True)
class Erased:
    """One erasure at one site, at all positions."""

    site: str
    method: str
    """`single direction`, `leace`, `iterated projection`, `irrelevant label`, `head`; in a recurrence `class means,
    every step`, and the same of the irrelevant label."""
    rank: int
    variance: float | None
    """Share of the vectors' variance that it takes away; not worked out inside recurrences."""
    before: float
    """Balanced accuracy of a probe without the erasure."""
    residual: float
    """The same of a fresh probe after it. The damage speaks of the state only where this is chance, and `unseen` is."""
    accuracy: tuple[float, ...]
    """Of the answers after it, for each length."""
    damage: tuple[float | None, ...]
    """1 where what is left is guessing, 0 where nothing is lost; None where the model knows too little to lose."""
    random_rank: tuple[float, ...] = ()
    """Accuracies, at the training length, after erasing random subspaces of the same rank."""
    random_variance: tuple[float, ...] = ()
    """The same of random subspaces that take the same variance."""
    random_longer: tuple[tuple[float, ...], ...] = ()
    """The same of these in longer documents, for each of the longer lengths."""
    damage_low: tuple[float | None, ...] = ()
    """The damage's interval over documents; empty where it was not kept."""
    damage_high: tuple[float | None, ...] = ()
    unseen: float | None = None
    """The same of one that was fitted to documents which the erasure was not found in; of those that it was found in
    LEACE leaves nothing by construction. None where it was not kept."""

    @property
    def percentile(self) -> float | None:
        """Share of the random subspaces of the same variance after which more was left."""
        drawn = self.random_variance
        return sum(value > self.accuracy[0] for value in drawn) / len(drawn) if drawn else None


@dataclass(frozen=True)
class ErasedOnce:
    """One erasure at one site and one position, the answer there and the ones behind it apart. A recurrent state is
    erased after the step there, so that answers behind it alone can miss it; what probes read is of all positions then.
    """

    site: str
    method: str
    rank: int
    chance: float
    """Balanced accuracy of a probe that reads nothing, at this position."""
    before: float
    """The same of one without the erasure."""
    residual: float
    """The same of a fresh probe after it."""
    now: float
    """Accuracy of the answer there, after the erasure."""
    later: float
    """Of the answers behind it."""
    damage_now: float | None
    damage_later: float | None
    random_now: tuple[float, ...] = ()
    """Accuracies after erasing random subspaces that take the same variance there."""
    random_later: tuple[float, ...] = ()
    unseen: float | None = None
    """As in `Erased`."""


@dataclass(frozen=True)
class Refitted:
    """One erasure found in longer documents, where the model still knows enough, beside the one that was found at the
    training length."""

    site: str
    method: str
    length: int
    rank: int
    chance: float
    """Balanced accuracy of a probe that reads nothing, in these documents."""
    before: float
    """The same of one without an erasure."""
    residual: float
    """The same of a fresh probe after the erasure that was found here."""
    kept_residual: float
    """The same after the erasure that was found at the training length."""
    accuracy: float
    """Of the answers, after the erasure that was found here."""
    damage: float | None
    cosines: tuple[float, ...]
    """Of the principal angles between what probes read here and at the training length, largest first."""
    unseen: float | None = None
    """As in `Erased`."""


@dataclass(frozen=True)
class Ablated:
    """A component's output replaced, at all positions."""

    site: str
    edit: str
    """`zero`, `mean`, `resample`."""
    accuracy: float
    damage: float | None
    turned: tuple[float, ...] = ()
    """Accuracies after changes of the same size everywhere, turned into random directions."""

    @property
    def percentile(self) -> float | None:
        """Share of the turned changes after which more was left."""
        return sum(value > self.accuracy for value in self.turned) / len(self.turned) if self.turned else None


@dataclass(frozen=True, repr=False)
class Erasures(Frames, JsonArtifact):
    """Damage beside what a refit still reads, by site and method."""

    file: ClassVar[str] = "erasures.json"
    label: str
    lengths: tuple[int, ...]
    clean: tuple[float, ...]
    """Accuracy without an edit, for each length."""
    guessing: tuple[float, ...]
    """Accuracy of the most frequent answer, for each length."""
    chance: float
    """Balanced accuracy of a probe that reads nothing."""
    erased: tuple[Erased, ...]
    ablated: tuple[Ablated, ...]
    tolerance: float = MOST_LEFT
    """Above chance: a residual up to there is chance, and iterated projection ends there."""
    judged: int | None = None
    """Vectors by which probes were judged."""
    position: int | None = None
    """Of what is erased once."""
    once: tuple[ErasedOnce, ...] = ()
    refitted: tuple[Refitted, ...] = ()

    def speaks(self, one: Erased | ErasedOnce | Refitted) -> bool:
        """Whether the damage says something about the label: it could be read before, and fresh probes read nothing
        after, neither of documents that the erasure was found in nor of others."""
        chance = self.chance if isinstance(one, Erased) else one.chance
        most = chance + self.tolerance
        if one.unseen is None:
            return False  # not known
        return one.before > chance + LEAST_READ and one.residual <= most and one.unseen <= most

    def share_read(self, accuracy: float) -> float | None:
        """What a probe reads, from 0, chance, to 1, all of it; None where chance is all of it."""
        return (accuracy - self.chance) / (1 - self.chance) if self.chance < 1 else None

    @property
    def boundaries(self) -> list[str]:
        """The boundaries of blocks, the input of the first one before all others."""
        return list(dict.fromkeys(one.site for one in self.erased if not one.site.endswith(RECURRENT)))

    def between_blocks(self) -> list[Erased]:
        """The erasures in the stream that can say something of the state: before the first block there is the token
        alone, and behind the last one the head reads whatever is there."""
        between = self.boundaries[1:-1]
        return [one for one in self.erased if one.site in between]

    def inside(self) -> list[Erased]:
        """The erasures in recurrent states."""
        return [one for one in self.erased if one.site.endswith(RECURRENT)]

    def sentence(self) -> str:
        """One line for people."""
        sites = len({one.site for one in self.erased})
        said = f"{counted(len(self.erased), 'erasure')} of the {self.label} at {counted(sites, 'site')}"
        return f"{said}, accuracy without one {self.clean[0]:.3f}" if self.clean else said

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row per site, method and length."""
        for one in self.erased:
            shared = {k: v for k, v in vars(one).items() if k != "accuracy" and not k.startswith("damage")}
            shared["speaks"] = self.speaks(one)
            missing = (None,) * len(self.lengths)
            each = (one.accuracy, one.damage, one.damage_low or missing, one.damage_high or missing)
            for length, accuracy, damage, low, high in zip(self.lengths, *each, strict=True):
                ends = {"damage_low": low, "damage_high": high}
                yield {**shared, "length": length, "accuracy": accuracy, "damage": damage, **ends}

    def more_tables(self) -> dict[str, Iterator[dict[str, Any]]]:
        return {
            "ablations": (dict(vars(one)) for one in self.ablated),
            "erased_once": ({**vars(one), "speaks": self.speaks(one)} for one in self.once),
            "refitted": ({**vars(one), "speaks": self.speaks(one)} for one in self.refitted),
        }
