"""Which runs are trained as one stack. Depends on the runs alone, so that every call stacks them alike."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mixerscope.errors import UserError
from mixerscope.spec import RunSpec, digest, labels
from mixerscope.training.trainer import stack_shape

LARGEST = 35
"""Models in one cohort unless asked otherwise: five seeds of seven learning rates. Of 7, 14 and 35, four cohorts at a
time, the last made the most steps of models a second in three architectures at three widths
(`benchmarks/results/stacks.json`), so that one number does for all. More end too late: what a lease cannot finish waits
for the next."""
MEMBERS_DIFFER = ("seed", "train.lr", "train.weight_decay")
"""Settings that say nothing about a cohort."""
ALWAYS_SHOWN = ("model.width",)


@dataclass(frozen=True)
class Cohort:
    """Runs of one shape, trained together and then taken through their stages together."""

    runs: tuple[RunSpec, ...]
    label: str = ""
    """What tells it from the other cohorts of its sweep: `mamba d=32 d_conv=2`."""
    trained: bool = False
    """Whether all of its models are trained already, and only stages are missing."""

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
        return in_words(self.label or self.first.model.architecture, len(self), self.trained)


def in_words(label: str, members: int, trained: bool) -> str:
    """A cohort as lines name it: `mamba d=32 d_conv=2 x7`."""
    return f"{label} x{members}{', trained before' if trained else ''}"


def group(runs: Sequence[RunSpec], largest: int = LARGEST) -> list[Cohort]:
    """Cohorts of at most `largest` runs, as equal in size as can be, in the order of their first runs."""
    if largest < 1:
        raise UserError(f"the largest cohort has at least 1 model, got {largest}")
    shapes: dict[str, list[RunSpec]] = {}
    for run in runs:
        # Stages are no part of a run's id, but all of a stack goes through the same ones.
        key = digest([stack_shape(run).run_id, {name: run.stage_id(name) for name in run.stages}])
        shapes.setdefault(key, []).append(run)
    cohorts: list[Cohort] = []
    for members in shapes.values():
        parts = math.ceil(len(members) / largest)
        bounds = [len(members) * part // parts for part in range(parts + 1)]
        cohorts += [Cohort(tuple(members[a:b])) for a, b in itertools.pairwise(bounds)]
    return _labelled(cohorts)


def _labelled(cohorts: list[Cohort]) -> list[Cohort]:
    """Each with the settings in which cohorts differ; those that differ in none, parts of one shape, are numbered."""
    found = labels([cohort.first.training() for cohort in cohorts], ALWAYS_SHOWN, MEMBERS_DIFFER)
    numbers = [found[: index + 1].count(label) for index, label in enumerate(found)]
    return [
        replace(cohort, label=f"{label} part={number}/{count}" if (count := found.count(label)) > 1 else label)
        for cohort, label, number in zip(cohorts, found, numbers, strict=True)
    ]
