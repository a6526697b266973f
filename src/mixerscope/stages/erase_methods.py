"""The vectors of one site, ways of erasing a label from them, and what a fresh probe reads before and after."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mixerscope.artifacts import MOST_LEFT
from mixerscope.probing.controls import control_labels
from mixerscope.probing.erasure import Eraser, RandomSubspaces, iterated_projection, leace, residual, single_direction
from mixerscope.probing.ridge import Moments, Parts, Probe, fit_probes, moments
from mixerscope.randomness import stream
from mixerscope.stages.counting import rounded
from mixerscope.stages.vectors import Vectors

SINGLE, LEACE, ITERATED, IRRELEVANT = "single direction", "leace", "iterated projection", "irrelevant label"
METHODS = (SINGLE, LEACE, ITERATED, IRRELEVANT)
WHOLE = (LEACE, ITERATED)
"""Those that are to take all of the label, and that random subspaces are compared with."""


@dataclass(frozen=True)
class Known:
    """The vectors of one site, and what is to be erased of them."""

    found: Moments
    parts: Parts
    label: Tensor
    probe: Probe
    """Before anything is erased."""
    fresh: tuple[Moments, Parts] | None
    """Of vectors to which no erasure is fitted; None where there are too few."""

    @staticmethod
    def of(x: Tensor, drawn: Vectors, label: str) -> "Known":
        """Of vectors [k, n, p, d]; those that are not finite count as zero."""
        parts, wanted = drawn.parts.to(x.device), drawn.labels[label].to(x.device)
        vectors = torch.nan_to_num(x.flatten(1, 2).double(), 0.0, 0.0, 0.0)
        found, unseen = moments(vectors, parts), drawn.unseen.to(x.device)
        fresh = (moments(vectors, unseen), unseen) if unseen.usable else None
        return Known(found, parts, wanted, fit_probes(found, {"": wanted}, parts)[""], fresh)

    def eraser(self, method: str, irrelevant: Tensor) -> Eraser:
        """A way of erasing, given the labels that are irrelevant."""
        if method == SINGLE:
            return single_direction(self.found, self.probe)
        if method == ITERATED:
            return iterated_projection(self.found, self.label, self.parts, MOST_LEFT)
        return leace(self.found, irrelevant.to(self.label) if method == IRRELEVANT else self.label, self.parts)

    def residual(self, eraser: Eraser) -> list[float]:
        """By model: what a fresh probe reads of the label after an erasure."""
        return residual(eraser, self.found, self.label, self.parts).tolist()

    def unseen(self, eraser: Eraser) -> Sequence[float | None]:
        """The same of a probe that is fitted to documents which the erasure has not seen. On those that it has seen
        LEACE leaves a linear probe nothing by construction, whatever it leaves elsewhere."""
        if self.fresh is None:
            return [None] * len(self.found.gram)
        return rounded(residual(eraser, self.fresh[0], self.label, self.fresh[1]).tolist())


def irrelevant_label(drawn: Vectors, label: str, seed: int) -> Tensor:
    """[m] of the same frequencies as a label, a random function of the last few tokens."""
    return control_labels(drawn.batch.tokens, drawn.positions, drawn.labels[label], stream(seed, "irrelevant"))


def random_like(method: str, eraser: Eraser, known: Known, draws: int, rng: torch.Generator) -> RandomSubspaces:
    """What an erasure is compared with; nothing for those that are controls themselves."""
    return RandomSubspaces.like(eraser, known.found, draws if method in WHOLE else 0, rng)
