"""Which activation brings an answer back: a map over boundaries and positions, and short convolutions, as a stage."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from mixerscope.analysis.stats import ratio_estimates
from mixerscope.artifacts import Artifact, Estimate
from mixerscope.artifacts.recoveries import Recovered, Recoveries, WithoutTaps
from mixerscope.errors import UserError
from mixerscope.interventions.members import Members
from mixerscope.interventions.recovery import Changed, Place, change_inputs, convolved_blocks, differences, without_taps
from mixerscope.interventions.tagging import demand_states, run_on
from mixerscope.model import Model
from mixerscope.randomness import stream
from mixerscope.sites import named_sites
from mixerscope.spec import RunSpec
from mixerscope.stages.base import Done, Impossible, Result, Stage, Trained
from mixerscope.stages.counting import DIGITS, Counting
from mixerscope.stages.state_pairs import equally_long, middle
from mixerscope.tasks import Batch
from mixerscope.training.objective import answer_correct

LEAST_GAP = 0.1
"""Mean logit difference between the documents: with less there is nothing to bring back."""
CONVOLVED = ("conv_out",)
"""Names of the sites behind short convolutions."""


class RecoverAnswers(Stage):
    """Which input is changed, and on how many documents."""

    revision: ClassVar[int] = 2
    """2: intervals; accuracies to five digits, as in other stages; no share where the difference may be none."""
    artifacts: ClassVar[tuple[type[Artifact], ...]] = (Recoveries,)

    pairs: PositiveInt = 256
    """Documents, each also with one input changed."""
    position: int | None = Field(default=None, ge=1)
    """Which input is changed; left out, the one in the middle."""

    def check(self, spec: RunSpec) -> None:
        task = demand_states(spec.task)
        if self.position is not None and self.position >= task.length:
            raise UserError(f"position = {self.position} leaves no inputs behind it in documents of {task.length}")

    def draw(self, spec: RunSpec) -> Changed | None:
        """None where no input of the task can be another one."""
        task = equally_long(demand_states(spec.task))
        if not task.counterfactuals:
            return None
        return change_inputs(task, self.pairs, middle(task, self.position), stream(spec.data_seed, "recover"))

    def run(self, trained: Trained) -> list[Result]:
        spec, members = trained.first, Members(trained.models)
        pairs, at = self.draw(spec), middle(demand_states(spec.task), self.position)
        if pairs is None:
            return [Impossible("no answer of this task would be another one after another input")] * len(trained)
        model, length = trained.models[0], pairs.clean.tokens.shape[1]
        places: list[Place] = [(site, t) for site in model.boundaries() for t in range(at, length)]
        behind = [name for name in named_sites(model) if name.endswith(CONVOLVED)]
        places += [(site, None) for site in behind]
        unedited, edited = differences(members, pairs, at, places)
        trained.progress(1, 2)
        counting = Counting(members, [pairs.clean])
        off = {
            i: counting.accuracies(0, counting.right(0, lambda batch, i=i: _without_taps(members, batch, i)))
            for i in convolved_blocks(model)
        }
        trained.progress(2, 2)
        found: list[Result] = []
        documents = f"{pairs.clean.sha256()}"
        for k in range(len(trained)):
            if not bool(unedited[k].isfinite().all() & edited[k].isfinite().all()):
                found.append(Impossible("some logit is not finite", documents=documents))
                continue
            cells = _cells(places, unedited[k], edited[k], pairs.differs, at)
            behind_it = pairs.differs & (torch.arange(length) >= at)
            gap = (unedited[k, 0] - unedited[k, 1])[behind_it].mean().item()
            taps = tuple(WithoutTaps(i, right[k][0], counting.damage(k, 0, right[k][0])) for i, right in off.items())
            said = (at, len(pairs.clean), round(gap, DIGITS), cells, counting.clean[k][0])
            said = (*said, round(counting.guessing[0], DIGITS))
            found.append(Done((Recoveries(*said, taps),), documents=documents))
        return found


def _cells(
    places: Sequence[Place], unedited: Tensor, edited: Tensor, differs: Tensor, at: int
) -> tuple[Recovered, ...]:
    """Of one model, in the order of the places; those of one position are worked out together."""
    found: dict[Place, Recovered] = {}
    for position in dict.fromkeys(t for _, t in places):
        rows = [i for i, (_, t) in enumerate(places) if t == position]
        here = at if position is None else position
        shares = zip(rows, *_shares(unedited, edited[rows], differs, here), strict=True)
        for i, same, later in shares:
            values = (None if one is None else round(one.value, DIGITS) for one in (same, later))
            found[places[i]] = Recovered(*places[i], *values, *_ends(same), *_ends(later))
    return tuple(found[place] for place in places)


def _shares(unedited: Tensor, edited: Tensor, differs: Tensor, t: int) -> Iterator[Sequence[Estimate | None]]:
    """Of the difference that the change makes, what each of the edits [c, n, t] takes back: at a position, and behind
    it."""
    for columns in (slice(t, t + 1), slice(t + 1, None)):
        here = differs[:, columns]
        asked = here.any(1)
        clean, changed, *now = ((x[:, columns] * here).sum(1)[asked].double() for x in (*unedited, *edited))
        if not bool(asked.any()) or (clean - changed).sum() < LEAST_GAP * here.sum():
            yield [None] * len(edited)
        else:
            yield ratio_estimates(torch.stack(now) - changed, clean - changed)


def _ends(one: Estimate | None) -> tuple[float | None, ...]:
    return (None, None) if one is None else (round(one.low, DIGITS), round(one.high, DIGITS))


def _without_taps(members: Members, batch: Batch, block: int) -> Tensor:
    """[k, n, t] whether answers are right with the convolutions of one block seeing the current position alone."""

    def program(model: Model, tokens: Tensor, targets: Tensor) -> Tensor:
        with without_taps(model, block):
            return answer_correct(model(tokens), targets.clamp(min=0)) & (targets >= 0)

    return run_on(members, batch, program)
