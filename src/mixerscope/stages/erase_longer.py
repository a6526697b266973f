"""Erasures found again in longer documents, beside those of the training length: is it the same that is read there?"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from mixerscope.artifacts import Refitted
from mixerscope.interventions.members import Members
from mixerscope.interventions.tagging import site_vectors
from mixerscope.probing.erasure import Eraser, chance_of, cosines
from mixerscope.stages.counting import DIGITS, Counting, rounded
from mixerscope.stages.erase_methods import WHOLE, Known
from mixerscope.stages.vectors import Vectors


@dataclass(frozen=True)
class Kept:
    """What was found at one site at the training length."""

    read: torch.Tensor
    """[k, d, r] directions that a probe reads."""
    erasers: Mapping[str, Eraser]
    """Those that are to take all of the label."""


def refitted(
    members: Members,
    drawn: Vectors,
    label: str,
    kept: Mapping[str, Kept],
    counting: Counting,
    at: int,
    length: int,
    found: list[list[Refitted]],
) -> None:
    """Adds, by model, every boundary and way of erasing at one of the longer lengths; nothing of models that know too
    little there for damage to mean anything."""
    able = [k for k in range(len(members)) if counting.known(k, at)]
    if not able:
        return
    chance = round(chance_of(drawn.labels[label][drawn.parts.judge]), DIGITS)
    for site in kept:
        known = Known.of(site_vectors(members, drawn.batch, [site], drawn.positions)[site], drawn, label)
        alike = [tuple(rounded(row)) for row in cosines(kept[site].read, known.probe.directions()).tolist()]
        before = rounded(known.probe.accuracy.tolist())
        for method in WHOLE:
            eraser, short = known.eraser(method, known.label), kept[site].erasers[method]
            left, kept_left = rounded(known.residual(eraser)), rounded(known.residual(short))
            unseen = known.unseen(eraser)
            accuracy = counting.accuracies(at, counting.erasing(at, site, known.found.mean, eraser.matrix[:, None]))
            rank = eraser.rank.tolist()
            for k in able:
                damage = counting.damage(k, at, accuracy[k][0])
                said = (site, method, length, rank[k], chance, before[k], left[k], kept_left[k])
                found[k].append(Refitted(*said, accuracy[k][0], damage, alike[k], unseen[k]))
