"""Pairs of documents in different states, and how many answers follow the state that one gets from the other."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mixerscope.analysis import mean_estimate
from mixerscope.artifacts import Estimate
from mixerscope.errors import UserError
from mixerscope.tasks import UNSCORED, Batch, StateTask
from mixerscope.tasks.base import Split

STREAM, STATES, BOTH = "stream", "state", "both"
"""Places: all boundaries at once, all recurrent states at once, and all of these."""
FIRST = 2
"""The first input behind which a state is ever written."""
LEAST_OFTEN = 8
"""Documents in a state before its mean is taken."""
SPARE = 8
"""Times as many documents as are wanted are drawn, as not every one can go on from another's state."""
ROUNDS = 50
"""How often partners are drawn again for documents that found none."""


def equally_long(task: StateTask) -> StateTask:
    """The task with all documents of the length of the longest, and asked everywhere."""
    return task.at_length(task.length).changed(only_last=False)


def middle(task: StateTask, position: int | None) -> int:
    """After which input states are written."""
    return task.length // 2 if position is None else position


def earliest(task: StateTask, position: int | None) -> int:
    """The first input behind which what is held is put in place of what is held elsewhere."""
    return min(max(FIRST, middle(task, position) - 2), _early(task))


def _early(task: StateTask) -> int:
    return max(FIRST, task.length // 4)


def demand_middle(task: StateTask, position: int | None) -> None:
    """Refuses a position that has no inputs before or behind it."""
    at = middle(task, position)
    if not FIRST <= at < task.length:
        raise UserError(f"position = {at} leaves no inputs before or behind it in documents of {task.length}")


def other_place(states: Tensor, at: int, count: int) -> tuple[int, Tensor]:
    """Another position, and [s] the states that are frequent at both. An odd distance is better, as it tells what
    changes its sign from one position to the next; where no state is met at even and odd positions, an even one."""
    often = torch.stack([torch.bincount(states[:, place], minlength=count) for place in range(states.shape[1])])
    frequent = often >= LEAST_OFTEN
    distance = max(1, (states.shape[1] - 1) // 4)
    for other in (at + (distance | 1), at + 1, at - 1, at + 2, at - 2):
        if FIRST <= other < states.shape[1] and int((frequent[at] & frequent[other]).sum()) > 1:
            return other, frequent[at] & frequent[other]
    raise UserError(f"no two states are met {LEAST_OFTEN} times around input {at}; take more documents")


@dataclass(frozen=True)
class StatePairs:
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


def draw_pairs(
    task: StateTask, n: int, at: int, usable: Tensor, rng: torch.Generator, split: Split = "test"
) -> StatePairs:
    """Pairs of documents in different states, such that the first can go on from the second's state."""
    base, automaton = task.sample(SPARE * n, rng, split), task.automaton
    pool = task.sample(SPARE * n, rng, split)
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
    return StatePairs(base[first], source[first], states, follows[first], base.targets[first], differs[first])


@dataclass(frozen=True)
class Following:
    """What the answers of one model do, on pairs of documents."""

    now: Estimate | None
    """Share that follows at the position itself; None where too few documents can tell."""
    later: Estimate | None
    kept: float | None
    """Share of the later answers that are what they were."""
    by_distance: tuple[float | None, ...]
    told: tuple[int, ...]
    """Answers that differ, so many inputs later."""


def following(said: Tensor, pairs: StatePairs, at: int) -> Following:
    """Of the answers [n, t] of one model."""
    follows, differs = (said == pairs.follows) & pairs.differs, pairs.differs
    often = differs.sum(0).tolist()
    shares = (follows.sum(0).double() / differs.sum(0)).tolist()
    after = differs[:, at + 1 :].sum()
    kept = ((said == pairs.usual) & differs)[:, at + 1 :].sum().double() / after
    return Following(
        _share(follows[:, at : at + 1], differs[:, at : at + 1]),
        _share(follows[:, at + 1 :], differs[:, at + 1 :]),
        kept.item() if after else None,
        tuple(share if n else None for share, n in zip(shares[at:], often[at:], strict=True)),
        tuple(often[at:]),
    )


def _share(follows: Tensor, differs: Tensor) -> Estimate | None:
    """Mean over documents of the share of answers that follow; None where too few documents have any."""
    some = differs.any(1)
    if int(some.sum()) < 2:
        return None
    return mean_estimate(follows[some].sum(1).double() / differs[some].sum(1))


def early_and_late(task: StateTask, known: Batch, n: int, rng: torch.Generator) -> tuple[int, int, Batch] | None:
    """A position early in documents, one late in them, and documents whose state there is one that the `known` ones
    are in early; None where documents are too short, or no two are found."""
    early = _early(task)
    late = task.length - early
    late -= (late - early) % 2  # stacks are met at even distances only
    if late <= early:
        return None
    drawn = task.sample(SPARE * n, rng, "test")
    there = task.states(known)["state"][:, early].unique()
    met = torch.isin(task.states(drawn)["state"][:, late], there) & _asked_behind(drawn, late).any(1)
    drawn = drawn[met.nonzero().flatten()[:n]]
    return (early, late, drawn) if len(drawn) > 1 else None


def right_behind(said: Tensor, batch: Batch, position: int) -> Estimate:
    """Share of the answers [n, t] of one model that are right behind a position, by documents."""
    asked = _asked_behind(batch, position)
    return mean_estimate(((said == batch.targets) & asked).sum(1).double() / asked.sum(1))


def _asked_behind(batch: Batch, at: int) -> Tensor:
    return (batch.targets != UNSCORED) & (torch.arange(batch.tokens.shape[1]) > at)
