"""Which runs are trained as one stack. Depends on the runs alone, so that every call stacks them alike."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from mixerscope.errors import UserError
from mixerscope.spec import RunSpec, digest
from mixerscope.training.cohort import stack_shape

LARGEST = 32
"""Models in one cohort unless asked otherwise: enough to fill a GPU, few enough to end within a lease."""


@dataclass(frozen=True)
class Cohort:
    """Runs of one shape, trained together."""

    runs: tuple[RunSpec, ...]

    @property
    def id(self) -> str:
        return digest([run.run_id for run in self.runs])[:12]

    @property
    def first(self) -> RunSpec:
        """What all members have in common can be read off any of them."""
        return self.runs[0]

    @property
    def precision(self) -> str:
        return self.first.train.precision

    def __len__(self) -> int:
        return len(self.runs)

    def __str__(self) -> str:
        return f"{self.first.model.architecture} d={self.first.model.width} x{len(self)}"


def group(runs: Sequence[RunSpec], largest: int = LARGEST) -> list[Cohort]:
    """Cohorts of at most `largest` runs, as equal in size as can be, in the order of their first runs."""
    if largest < 1:
        raise UserError(f"the largest cohort has at least 1 model, got {largest}")
    shapes: dict[str, list[RunSpec]] = {}
    for run in runs:
        shapes.setdefault(stack_shape(run).run_id, []).append(run)
    cohorts: list[Cohort] = []
    for members in shapes.values():
        parts = math.ceil(len(members) / largest)
        bounds = [len(members) * part // parts for part in range(parts + 1)]
        cohorts += [Cohort(tuple(members[a:b])) for a, b in itertools.pairwise(bounds)]
    return cohorts
