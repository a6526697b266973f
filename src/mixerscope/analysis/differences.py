"""Whether two models differ: paired differences with an interval, over documents or over seeds."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, Literal

import torch
from torch import Tensor

from mixerscope.analysis.seeds import MIN_SEEDS, too_few
from mixerscope.analysis.stats import likelihood_difference, proportion_difference, ratio_difference, seeds_difference
from mixerscope.artifacts.base import Frames
from mixerscope.artifacts.estimate import Estimate
from mixerscope.errors import UserError

NAMES = ("the first", "the second")


@dataclass(frozen=True, eq=False)
class Numbers:
    """What is compared of one model, document by document."""

    what: str
    """In words."""
    documents: str
    """The hash of the documents: numbers of others cannot be paired."""
    top: Tensor
    """[n]"""
    bottom: Tensor | None = None
    """[n] what `top` is a part of; None where the mean of `top` itself is meant."""
    counted: bool = False
    """Whether both are yes or no: then `bottom` says which documents count."""

    @property
    def value(self) -> float:
        below = 1.0 if self.bottom is None else self.bottom.double().mean().item()
        return self.top.double().mean().item() / below if below else float("nan")


@dataclass(frozen=True, repr=False)
class Comparison(Frames):
    """The difference between two models, or between two lists of seeds."""

    what: str
    a: float
    b: float
    """Of the second; means over the seeds where there are several."""
    difference: Estimate | None
    """a - b with its 95% interval; None under three seeds."""
    paired_by: Literal["document", "seed"]
    n: int
    """Documents, or seeds."""
    names: tuple[str, str] = NAMES
    note: str = ""

    @property
    def noise(self) -> bool:
        """Whether the difference cannot be told from none."""
        return self.difference is None or self.difference.low <= 0 <= self.difference.high

    def sentence(self) -> str:
        """One line for people: both numbers, the difference, and whether it is noise."""
        of = "of one seed each" if self.paired_by == "document" else ""
        over = f"{self.n} {self.paired_by}{'s' if self.n > 1 else ''}{of and ' ' + of}"
        said = f"{self.what}: {self.names[0]} {self.a:.3f}, {self.names[1]} {self.b:.3f}, over {over}"
        if self.difference is None:
            return f"{said}; {self.note}, so it cannot be told from noise"
        found = self.difference
        said += f"; difference {found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"
        end = "noise: the interval holds zero" if self.noise else "more than noise: the interval does not hold zero"
        return "; ".join(filter(None, [said, end, self.note]))

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row."""
        said = {"what": self.what, self.names[0]: self.a, self.names[1]: self.b}
        found = self.difference
        told = {"difference": found.value, "low": found.low, "high": found.high} if found else {"difference": None}
        yield {**said, **told, "n": self.n, "paired_by": self.paired_by, "noise": self.noise, "note": self.note}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def over_documents(a: Numbers, b: Numbers, names: tuple[str, str] = NAMES) -> Comparison:
    """Two models measured on the same documents: what one document adds to the difference is one number."""
    if a.what != b.what:
        raise UserError(f"{a.what} and {b.what} are not the same thing; compare one of them in both models")
    if a.documents != b.documents or len(a.top) != len(b.top):
        raise UserError(
            "these were measured on different documents, so they cannot be paired; measure both with the same task,"
            " data_seed and pairs"
        )
    for numbers in (a, b):
        if not all(bool(part.isfinite().all()) for part in (numbers.top, numbers.bottom) if part is not None):
            raise UserError(f"the {a.what} of some document is not finite, so there is no mean to compare")
    if a.counted:
        return _counted(a, b, names)
    if a.bottom is not None and b.bottom is not None:
        found = ratio_difference((a.top, a.bottom), (b.top, b.bottom))
        if found is None:
            raise UserError("corrupting changes too little in one of the models for a share of it to be a number")
    else:
        found = likelihood_difference(a.top, b.top)
    return Comparison(a.what, a.value, b.value, found, "document", found.n, names)


def _counted(a: Numbers, b: Numbers, names: tuple[str, str]) -> Comparison:
    both = torch.ones(len(a.top), dtype=torch.bool)
    for counts in (a.bottom, b.bottom):
        both &= True if counts is None else counts.bool()
    if not bool(both.any()):
        raise UserError("no document counts in both models: the corruption changes no right answer of both")
    left, right = a.top[both].bool(), b.top[both].bool()
    found = proportion_difference(left, right)
    means = left.double().mean().item(), right.double().mean().item()
    return Comparison(a.what, *means, found, "document", found.n, names)


def over_paired_seeds(
    what: str, a: Sequence[float], b: Sequence[float], names: tuple[str, str] = NAMES, within: float | None = 1.0
) -> Comparison:
    """Numbers of models that differ in their seed, the seeds of both sides in the same order; no difference can be
    further from zero than `within`."""
    if not a or len(a) != len(b):
        raise UserError(f"{len(a)} seeds against {len(b)}: a paired difference takes as many of both, at least one")
    if not all(map(isfinite, (*a, *b))):
        raise UserError(f"the {what} of some seed is not a finite number, so there is no mean to compare")
    found = seeds_difference(a, b, within) if len(a) >= MIN_SEEDS else None
    means = sum(a) / len(a), sum(b) / len(b)
    return Comparison(what, *means, found, "seed", len(a), names, too_few(len(a)))
