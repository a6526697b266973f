"""What parts are exchanged of: documents, and what models hold in them, in the middle and late."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mixerscope.artifacts import Estimate
from mixerscope.interventions.alignment import Span
from mixerscope.interventions.members import Members
from mixerscope.interventions.transplant import Column, answers_after, columns
from mixerscope.probing.ridge import Parts
from mixerscope.stages.state_pairs import StatePairs, draw_pairs, early_and_late, following, right_behind
from mixerscope.tasks import Batch, StateTask


@dataclass(frozen=True)
class Known:
    """Documents from which axes are taken."""

    at: int
    """The input in the middle."""
    batch: Batch
    states: Tensor
    """[n] after it."""
    usable: Tensor
    """[s] states that are frequent there."""


@dataclass(frozen=True)
class Documents:
    """All that models are asked, the same for each."""

    at: int
    """The input in the middle."""
    known: Batch
    label: Tensor
    parts: Parts
    learn: StatePairs
    judge: StatePairs
    late: "Late | None"

    @property
    def named(self) -> str:
        return f"{self.learn.base.sha256()} {self.judge.base.sha256()} {self.judge.source.sha256()}"

    def __len__(self) -> int:
        """Those in which it is kept what models hold."""
        late = 0 if self.late is None else len(self.late.documents) + 2 * len(self.late.pairs.base) + len(self.known)
        return len(self.known) + 2 * len(self.learn.base) + 2 * len(self.judge.base) + late


@dataclass(frozen=True)
class Late:
    """Documents late in them: pairs in different states, and some whose states others are in early."""

    position: int
    early: int
    """The position at which the others are looked at."""
    pairs: StatePairs
    documents: Batch

    @staticmethod
    def of(task: StateTask, known: Batch, n: int, rng: torch.Generator) -> "Late | None":
        found = early_and_late(task, known, n, rng)
        if found is None:
            return None
        early, late, drawn = found
        every = torch.ones(task.automaton.num_states, dtype=torch.bool)
        return Late(late, early, draw_pairs(task, n, late, every, rng), drawn)


Elsewhere = tuple[Estimate | None, Estimate | None]


@dataclass(frozen=True)
class Held:
    """What models hold in the documents after the input in the middle."""

    members: Members
    known: Column
    learn_base: Column
    learn_source: Column
    judge_base: Column
    judge_source: Column
    late: "HeldLate | None"

    @staticmethod
    def by(members: Members, documents: Documents) -> "Held":
        def held(batch: Batch) -> Column:
            # Copies that gradients may be taken through, which what is made in inference mode may not.
            return {site: x.clone() for site, x in columns(members, batch, documents.at).items()}

        learn, judge, late = documents.learn, documents.judge, documents.late
        pairs = held(learn.base), held(learn.source), held(judge.base), held(judge.source)
        return Held(members, held(documents.known), *pairs, late and HeldLate.by(members, late, documents.known))

    def elsewhere(self, documents: Documents, span: Span, map_: Tensor | None) -> list[Elsewhere]:
        """What a subspace is late in documents, of each model."""
        if self.late is None or documents.late is None or map_ is None:
            return [(None, None)] * len(self.members)
        late = self.late, documents.late
        return list(
            zip(_moved(self.members, *late, span, map_), _earlier(self.members, *late, span, map_), strict=True)
        )


@dataclass(frozen=True)
class HeldLate:
    """What models hold late in documents, and early in others."""

    base: Column
    source: Column
    held: Column
    early: Column

    @staticmethod
    def by(members: Members, late: Late, known: Batch) -> "HeldLate":
        batches = late.pairs.base, late.pairs.source, late.documents
        base, source, held = (columns(members, batch, late.position) for batch in batches)
        return HeldLate(base, source, held, columns(members, known, late.early))


def _moved(members: Members, own: HeldLate, late: Late, span: Span, map_: Tensor) -> list[Estimate | None]:
    """Whether the directions are the state's there too."""
    written = exchanged(span, own.base, own.source, map_)
    said = answers_after(members, late.pairs.base, late.position, written)
    return [following(one, late.pairs, late.position).later for one in said]


def _earlier(members: Members, own: HeldLate, late: Late, span: Span, map_: Tensor) -> list[Estimate]:
    """A memory that is the state is met again along them, whatever else is held; a count, or inputs, are not."""
    here, there = (span.coordinates(column) @ map_ for column in (own.held, own.early))
    near = torch.nan_to_num(torch.cdist(here, there), float("inf")).argmin(-1, keepdim=True)
    change = there.gather(1, near.expand(-1, -1, there.shape[-1])) - here
    said = answers_after(members, late.documents, late.position, span.moved(own.held, change))
    return [right_behind(one, late.documents, late.position) for one in said]


def exchanged(span: Span, base: Column, source: Column, map_: Tensor | None) -> Column:
    """What documents hold after the exchange along a map of coordinates; without one, all that the others hold."""
    if map_ is None:
        return {site: source[site] for site in span.sites}
    return span.moved(base, (span.coordinates(source) - span.coordinates(base)) @ map_)
