"""Which activation brings an answer back: a map over boundaries and positions, and short convolutions, as a stage."""

from typing import ClassVar

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from mixerscope.artifacts import Artifact
from mixerscope.artifacts.recoveries import Recovered, Recoveries, WithoutTaps
from mixerscope.errors import UserError
from mixerscope.interventions.members import Members
from mixerscope.interventions.recovery import Place, change_inputs, convolved_blocks, differences, without_taps
from mixerscope.interventions.tagging import demand_states, run_on
from mixerscope.model import Model
from mixerscope.randomness import stream
from mixerscope.sites import named_sites
from mixerscope.spec import RunSpec
from mixerscope.stages.base import Done, Impossible, Result, Stage, Trained
from mixerscope.tasks import UNSCORED, Batch
from mixerscope.training.objective import answer_correct

LEAST_GAP = 0.1
"""Mean logit difference between the documents: with less there is nothing to bring back."""
LEAST_KNOWN = 0.2
"""Accuracy above guessing that a model must have for damage to mean anything."""
CONVOLVED = ("conv_out",)
"""Names of the sites behind short convolutions."""
DIGITS = 4


class RecoverAnswers(Stage):
    """Which input is changed, and on how many documents."""

    artifacts: ClassVar[tuple[type[Artifact], ...]] = (Recoveries,)

    pairs: PositiveInt = 256
    """Documents, each also with one input changed."""
    position: int | None = Field(default=None, ge=1)
    """Which input is changed; left out, the one in the middle."""

    def check(self, spec: RunSpec) -> None:
        task = demand_states(spec.task)
        if self.position is not None and self.position >= task.length:
            raise UserError(f"position = {self.position} leaves no inputs behind it in documents of {task.length}")

    def run(self, trained: Trained) -> list[Result]:
        spec, members = trained.first, Members(trained.models)
        task = demand_states(spec.task).at_length(spec.task.length).changed(only_last=False)
        at = task.length // 2 if self.position is None else self.position
        pairs = change_inputs(task, self.pairs, at, stream(spec.data_seed, "recover"))
        model, length = trained.models[0], pairs.clean.tokens.shape[1]
        places: list[Place] = [(site, t) for site in model.boundaries() for t in range(at, length)]
        behind = [name for name in named_sites(model) if name.endswith(CONVOLVED)]
        places += [(site, None) for site in behind]
        unedited, edited = differences(members, pairs, at, places)
        trained.progress(1, 2)
        clean, guessing = _right(members, pairs.clean), _most_frequent(pairs.clean)
        off = {i: _right(members, pairs.clean, i) for i in convolved_blocks(model)}
        trained.progress(2, 2)
        found: list[Result] = []
        documents = f"{pairs.clean.sha256()}"
        for k in range(len(trained)):
            if not bool(unedited[k].isfinite().all() & edited[k].isfinite().all()):
                found.append(Impossible("some logit is not finite", documents=documents))
                continue
            cells = tuple(
                Recovered(site, t, *_shares(unedited[k], one, pairs.differs, at if t is None else t))
                for (site, t), one in zip(places, edited[k], strict=True)
            )
            behind_it = pairs.differs & (torch.arange(length) >= at)
            gap = (unedited[k, 0] - unedited[k, 1])[behind_it].mean().item()
            taps = tuple(
                WithoutTaps(block, round(right[k], DIGITS), _damage(clean[k], right[k], guessing))
                for block, right in off.items()
            )
            said = (at, len(pairs.clean), round(gap, DIGITS), cells, round(clean[k], DIGITS), round(guessing, DIGITS))
            found.append(Done((Recoveries(*said, taps),), documents=documents))
        return found


def _shares(unedited: Tensor, edited: Tensor, differs: Tensor, t: int) -> tuple[float | None, float | None]:
    """Of the difference that the change makes, what one edit [n, t] takes back: at a position, and behind it."""
    found: list[float | None] = []
    for columns in (slice(t, t + 1), slice(t + 1, None)):
        here = differs[:, columns]
        if not bool(here.any()):
            found.append(None)
            continue
        clean, changed, now = (x[:, columns][here].double().mean().item() for x in (*unedited, edited))
        found.append(round((now - changed) / (clean - changed), DIGITS) if clean - changed >= LEAST_GAP else None)
    return found[0], found[1]


def _right(members: Members, batch: Batch, block: int | None = None) -> list[float]:
    """Accuracy of each model, with the convolutions of one block seeing the current position alone."""

    def program(model: Model, tokens: Tensor, targets: Tensor) -> Tensor:
        if block is None:
            return answer_correct(model(tokens), targets.clamp(min=0)) & (targets >= 0)
        with without_taps(model, block):
            return answer_correct(model(tokens), targets.clamp(min=0)) & (targets >= 0)

    right = run_on(members, batch, program).sum((1, 2)).double()
    return (right / (batch.targets != UNSCORED).sum()).tolist()


def _most_frequent(batch: Batch) -> float:
    asked = batch.targets[batch.targets != UNSCORED]
    return float((asked == asked.mode().values).double().mean())


def _damage(clean: float, left: float, guessing: float) -> float | None:
    return None if clean - guessing < LEAST_KNOWN else round((clean - left) / (clean - guessing), DIGITS)
