"""Is the state carried on, or worked out anew at every position? Another state is written in the middle: a stage."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from mixerscope.analysis import mean_estimate
from mixerscope.artifacts import Artifact, Estimate, Interchanged, Interchanges
from mixerscope.errors import UserError
from mixerscope.interventions.members import Members
from mixerscope.interventions.tagging import demand_states
from mixerscope.interventions.transplant import Means, answers_after, columns, held_states, written_boundaries
from mixerscope.randomness import stream
from mixerscope.spec import RunSpec
from mixerscope.stages.base import Done, Result, Stage, Trained
from mixerscope.tasks import UNSCORED, Batch, StateTask

LEAST_OFTEN = 8
"""Documents in a state before its mean is taken."""
SPARE = 8
"""Times as many documents as are wanted are drawn, as not every one can go on from another's state."""
ROUNDS = 50
"""How often partners are drawn again for documents that found none."""
STREAM, INNER, STATES, BOTH = "stream", "inner", "state", "both"


@dataclass(frozen=True)
class _Pairs:
    """Documents, and others whose state at the position is another one."""

    base: Batch
    source: Batch
    states: tuple[Tensor, Tensor]
    """[n] of base and source at the position."""
    follows: Tensor
    """[n, t] the answer that the automaton gives going on from the source's state."""
    usual: Tensor
    """[n, t] the answer without an edit."""
    differs: Tensor
    """[n, t] where these are asked for, and not the same."""


class InterchangeStates(Stage):
    """Where in the document the other state is written, and on how many pairs."""

    artifacts: ClassVar[tuple[type[Artifact], ...]] = (Interchanges,)

    documents: PositiveInt = 2048
    """From which the means of the states are taken."""
    pairs: PositiveInt = 256
    """Documents that get another one's state."""
    position: int | None = Field(default=None, ge=1)
    """After which input; left out, the one in the middle."""
    singly: bool = True
    """Whether every boundary and every recurrent state is written alone too."""

    def place(self, task: StateTask) -> int:
        """After which input states are written."""
        return task.length // 2 if self.position is None else self.position

    def check(self, spec: RunSpec) -> None:
        task = demand_states(spec.task)
        at = self.place(task)
        if not 2 <= at < task.length:
            raise UserError(f"position = {at} leaves no inputs before or behind it in documents of {task.length}")

    def run(self, trained: Trained) -> list[Result]:
        spec, members = trained.first, Members(trained.models)
        task = demand_states(spec.task).at_length(spec.task.length).changed(only_last=False)
        at = self.place(task)
        known = task.sample(self.documents, stream(spec.data_seed, "interchange means"), "test")
        states = task.states(known)["state"]
        count = task.automaton.num_states
        other, usable = _other_place(states, at, count)
        means = {
            how: Means.over(columns(members, known, place), states[:, place].to(_device(members)), count)
            for how, place in (("shift", at), ("moved", other))
        }
        pairs = _draw(task, self.pairs, at, usable, stream(spec.data_seed, "interchange pairs"))
        clean = answers_after(members, pairs.base, at)
        asked = (pairs.base.targets != UNSCORED) & (torch.arange(pairs.base.tokens.shape[1]) >= at)
        right = ((clean == pairs.base.targets) & asked).sum((1, 2)).double() / asked.sum()
        cells: list[list[Interchanged]] = [[] for _ in trained.models]
        todo = list(self._cells(members, pairs, means, at))
        for done, (place, how, written) in enumerate(todo):
            said = answers_after(members, pairs.base, at, written)
            for own, one in zip(cells, said, strict=True):
                own.append(_summary(place, how, one, pairs, at))
            trained.progress(done + 1, len(todo))
        sha = f"{known.sha256()} {pairs.base.sha256()} {pairs.source.sha256()}"
        return [
            Done((Interchanges(at, other, len(pairs.base), accuracy, tuple(own)),), documents=sha)
            for own, accuracy in zip(cells, right.tolist(), strict=True)
        ]

    def _cells(
        self, members: Members, pairs: _Pairs, means: Mapping[str, Means], at: int
    ) -> Iterator[tuple[str, str, dict[str, Tensor]]]:
        """Every place and way of writing, with what is written where."""
        model = members.first
        boundaries, states = written_boundaries(model), held_states(model)  # type: ignore[arg-type]
        places = {STREAM: boundaries, **({STATES: states, BOTH: [*boundaries, *states]} if states else {})}
        if len(boundaries) > 1:
            places[INNER] = boundaries[:-1]
        if self.singly:
            places |= {site: [site] for site in [*boundaries, *states]}
        base, source = columns(members, pairs.base, at), columns(members, pairs.source, at)
        for place, sites in places.items():
            for how, mean in means.items():
                yield place, how, {site: base[site] + mean.shift(site, *pairs.states) for site in sites}
            yield place, "swap", {site: source[site] for site in sites}


def _other_place(states: Tensor, at: int, count: int) -> tuple[int, Tensor]:
    """Another position, and [s] the states that are frequent at both. An odd distance is better, as it tells what
    changes its sign from one position to the next; where no state is met at even and odd positions, an even one."""
    often = torch.stack([torch.bincount(states[:, place], minlength=count) for place in range(states.shape[1])])
    frequent = often >= LEAST_OFTEN
    distance = max(1, (states.shape[1] - 1) // 4)
    for other in (at + (distance | 1), at + 1, at - 1, at + 2, at - 2):
        if 0 < other < states.shape[1] and int((frequent[at] & frequent[other]).sum()) > 1:
            return other, frequent[at] & frequent[other]
    raise UserError(f"no two states are met {LEAST_OFTEN} times around input {at}; take more documents")


def _device(members: Members) -> torch.device:
    return next(iter(members.first.parameters())).device


def _draw(task: StateTask, n: int, at: int, usable: Tensor, rng: torch.Generator) -> _Pairs:
    """Pairs of documents in different states, such that the first can go on from the second's state."""
    base, automaton = task.sample(SPARE * n, rng, "test"), task.automaton
    pool = task.sample(SPARE * n, rng, "test")
    inputs = task.inputs_of(base.tokens)
    own, theirs = (task.states(batch)["state"][:, at] for batch in (base, pool))
    partner = torch.full((len(base),), -1)
    for _ in range(ROUNDS):
        drawn = torch.randint(len(pool), (len(base),), generator=rng)
        there = theirs[drawn]
        fits = (there != own) & usable[there] & usable[own] & automaton.possible(inputs[:, at + 1 :], there)
        partner = torch.where((partner < 0) & fits, drawn, partner)
    kept = partner >= 0
    if not bool(kept.any()):
        raise UserError(f"no document of {task.length} inputs can go on from another one's state after input {at}")
    base, source = base[kept], pool[partner[kept]]
    states = own[kept], theirs[partner[kept]]
    asked = base.targets != UNSCORED
    later = automaton.run(inputs[kept][:, at + 1 :], states[1])
    follows = torch.cat([base.targets[:, :at], task.answer_tokens(torch.cat([states[1][:, None], later], 1))], 1)
    differs = asked & (follows != base.targets) & (torch.arange(base.tokens.shape[1]) >= at)
    # Those first in which some later answer would be another one: brackets that are closed leave nothing behind.
    first = (~differs[:, at + 1 :].any(1)).long().argsort(stable=True)[:n]
    states = states[0][first], states[1][first]
    return _Pairs(base[first], source[first], states, follows[first], base.targets[first], differs[first])


def _summary(place: str, how: str, said: Tensor, pairs: _Pairs, at: int) -> Interchanged:
    """Of the answers [n, t] of one model."""
    follows, differs = (said == pairs.follows) & pairs.differs, pairs.differs
    often = differs.sum(0).tolist()
    shares = (follows.sum(0).double() / differs.sum(0)).tolist()
    after = differs[:, at + 1 :].sum()
    kept = ((said == pairs.usual) & differs)[:, at + 1 :].sum().double() / after
    return Interchanged(
        *(place, how),
        _share(follows[:, at : at + 1], differs[:, at : at + 1]),
        _share(follows[:, at + 1 :], differs[:, at + 1 :]),
        kept.item() if after else None,
        tuple(share if n else None for share, n in zip(shares[at:], often[at:], strict=True)),
    )


def _share(follows: Tensor, differs: Tensor) -> Estimate | None:
    """Mean over documents of the share of answers that follow; None where too few documents have any."""
    some = differs.any(1)
    if int(some.sum()) < 2:
        return None
    return mean_estimate(follows[some].sum(1).double() / differs[some].sum(1))
