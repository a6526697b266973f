"""Does it hold in longer documents? Accuracy by length and position, as a stage, for tasks that track a state."""

from typing import ClassVar

import torch
from pydantic import PositiveInt, field_validator
from torch import Tensor

from mixerscope.analysis import mean_estimate
from mixerscope.analysis.stats import proportion_estimate
from mixerscope.artifacts import Artifact, AtLength, Lengths
from mixerscope.interventions.members import Members
from mixerscope.interventions.tagging import demand_states, right_answers
from mixerscope.randomness import stream
from mixerscope.spec import RunSpec
from mixerscope.stages.base import Done, Result, Stage, Trained
from mixerscope.stages.vectors import demand_places
from mixerscope.tasks import UNSCORED, Batch, Task
from mixerscope.tasks.baselines import best_guess_of_all


class EvaluateLengths(Stage):
    """How long the documents are, in lengths of training, and how many measure each."""

    revision: ClassVar[int] = 2
    """2: what guessing gets of all questions."""
    artifacts: ClassVar[tuple[type[Artifact], ...]] = (Lengths,)

    times: tuple[PositiveInt, ...] = (1, 2, 4, 8)
    """How many times as long as the documents of training."""
    documents: PositiveInt = 1024
    """Of each length."""

    @field_validator("times")
    @classmethod
    def _each_once(cls, times: tuple[int, ...]) -> tuple[int, ...]:
        if not times or len(set(times)) < len(times):
            raise ValueError(f"give at least one length, and none twice, got {list(times)}")
        return tuple(sorted(times))

    def check(self, spec: RunSpec) -> None:
        demand_places(spec, max(self.times), "stages.lengths.times")

    def draw(self, spec: RunSpec) -> Batch:
        """The shortest: there are always enough longer ones."""
        return self.batch(spec, self.times[0])

    def batch(self, spec: RunSpec, times: int) -> Batch:
        """The documents of one length, the same for all members of a cohort."""
        task = demand_states(spec.task).at_length(times * spec.task.length)
        return task.sample(self.documents, stream(spec.data_seed, "lengths", str(times)), "test")

    def run(self, trained: Trained) -> list[Result]:
        spec, members = trained.first, Members(trained.models)
        found: list[list[AtLength]] = [[] for _ in range(len(trained))]
        hashes: list[str] = []
        for done, times in enumerate(self.times):
            batch = self.batch(spec, times)
            task = demand_states(spec.task).at_length(times * spec.task.length)
            hashes.append(batch.sha256())
            for own, right in zip(found, right_answers(members, batch), strict=True):
                own.append(_summary(batch, right, times, task))
            trained.progress(done + 1, len(self.times))
        return [Done((Lengths(tuple(own)),), documents=" ".join(hashes)) for own in found]


def _summary(batch: Batch, right: Tensor, times: int, task: Task) -> AtLength:
    """Of right [n, t]: whether each answer is right in documents of the task."""
    asked = batch.targets != UNSCORED
    right = (right & asked).double()
    share = right.sum(1) / asked.sum(1)
    last = right.gather(1, batch.role("query")[:, None])[:, 0]
    often = asked.sum(0)
    by_position = (right.sum(0) / often).tolist()
    return AtLength(
        length=int(batch.labels["length"].max()),
        times=times,
        accuracy=mean_estimate(share),
        last=proportion_estimate(last),
        whole=proportion_estimate((share == 1).to(torch.float64)),
        guessing=task.guessing(),
        by_position=tuple(a if n else None for a, n in zip(by_position[1:], often.tolist()[1:], strict=True)),
        guessing_all=best_guess_of_all(task),
    )
