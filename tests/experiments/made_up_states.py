"""Models of the study of tracked states that are made up, and what its claims say of them."""

from mixerscope.experiments.task_flip.claims import TESTS, decided
from mixerscope.experiments.task_flip.evidence import Cells
from mixerscope.experiments.task_flip.models import Erasure, Model, best_of_seeds
from mixerscope.experiments.task_flip.study import (
    BRACKETS,
    PARITY,
    RECURRENT,
    S3,
    TRANSFORMER,
)

LATE, EARLY, GRADUAL = [0, 0, 0, 0.1, 1.0], [0, 0.9, 0.95, 1.0, 1.0], [0, 0.25, 0.5, 0.75, 1.0]
ALL = (TRANSFORMER, *RECURRENT)


def erased(
    method="leace", damage=0.8, residual=0.5, controls=0.1, peak=2, longer_left=False, refitted=None, by_rank=0.0
):
    """At the five boundaries, of which the third reads best; `peak` is hurt most."""
    reads = [0.5, 0.7, 0.9, 0.8, 1.0]
    return [
        Erasure(
            *(at, method, before, residual, residual <= 0.52, damage - 0.1 * abs(at - peak), damage),
            *(controls, controls, longer_left, refitted, by_rank, 0.7),
        )
        for at, before in enumerate(reads)
    ]


def model(task, name, curve, seed=0, verdict="carried", last=1.0, erasures=(), accuracy=1.0):
    cell = task, name, 4
    return Model(
        *(f"{task}-{name}-{seed}", cell, 1e-3, seed, accuracy, verdict, {}),
        accuracy={1: accuracy, 2: last, 4: last},
        last={1: accuracy, 2: last, 4: last},
        guessing={1: 0.5, 2: 0.5, 4: 0.5},
        curves={("answer", "every"): [value * (1 - 0.01 * seed) for value in curve]},
        erasures=list(erasures),
    )


def study(shapes, seeds=5, **more):
    """By (task, architecture) the curve; a model a seed."""
    return best_of_seeds([model(*cell, curve, seed, **more) for cell, curve in shapes.items() for seed in range(seeds)])


def as_published():
    shapes = {(PARITY, name): LATE for name in RECURRENT} | {(PARITY, TRANSFORMER): GRADUAL}
    shapes |= {(BRACKETS, name): EARLY for name in RECURRENT} | {(BRACKETS, TRANSFORMER): LATE}
    return shapes | {(S3, name): LATE if name in RECURRENT else GRADUAL for name in ALL}


def outcomes(best):
    return {claim.id: found for claim, found in decided(best)}


def found_of(claim, best):
    """Of one claim alone, which is sooner there than that of all."""
    return TESTS[claim](Cells(best))
