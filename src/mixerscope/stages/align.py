"""Which part of what is held is the state? Parts are exchanged between documents along subspaces: a stage."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from mixerscope.artifacts import Artifact, Estimate
from mixerscope.artifacts.alignments import Aligned, Alignments, SpanOf
from mixerscope.errors import UnknownName, UserError
from mixerscope.interventions.alignment import MOST_AXES, Span, learn_subspaces
from mixerscope.interventions.batching import device_of
from mixerscope.interventions.members import Members
from mixerscope.interventions.states import is_state
from mixerscope.interventions.tagging import demand_states
from mixerscope.interventions.transplant import (
    Column,
    answers_after,
    carried_states,
    columns,
    demand_settled,
    written_boundaries,
)
from mixerscope.model import Model, build_model
from mixerscope.probing.erasure import leace, same_subspace
from mixerscope.probing.ridge import Parts, fit_probes, moments, parts_by_document
from mixerscope.randomness import stream
from mixerscope.spec import RunSpec
from mixerscope.stages.base import Done, Impossible, Result, Stage, Trained
from mixerscope.stages.state_pairs import (
    BOTH,
    StatePairs,
    demand_middle,
    draw_pairs,
    earliest,
    early_and_late,
    equally_long,
    following,
    middle,
    other_place,
    right_behind,
)
from mixerscope.stages.vectors import ANSWER, label_names, label_of_states
from mixerscope.tasks import UNSCORED, Batch, StateTask

USUAL_RANKS = (1, 2, 4, 8, 16)
"""And one less than the classes of the label."""
DIGITS = 4
LEARNED = "das"


class AlignStates(Stage):
    """Where parts are exchanged, of which rank, and on how many pairs that is learned and judged."""

    revision: ClassVar[int] = 2
    """2: what is learned is tried late in documents too, and what is held there put beside what is held early."""
    artifacts: ClassVar[tuple[type[Artifact], ...]] = (Alignments,)

    documents: PositiveInt = 1024
    """From which principal axes, probes and erasures are taken."""
    learned_on: PositiveInt = 512
    """Pairs of dev documents on which subspaces are learned."""
    pairs: PositiveInt = 256
    """Pairs of test documents that judge."""
    position: int | None = Field(default=None, ge=1)
    """After which input; left out, the one in the middle."""
    places: tuple[str, ...] = ()
    """Boundaries, recurrent states, or `both`: all of these at once; left out, the boundaries behind the first block,
    and `both` where there are recurrent states."""
    label: str = ANSWER
    """What probes and erasures are of; the state itself is what is exchanged."""
    ranks: tuple[PositiveInt, ...] = ()
    """Of learned subspaces; left out, 1, 2, 4, 8, 16 and one less than the classes of the label."""
    steps: PositiveInt = 150
    """Updates of a learned subspace."""
    batch_size: PositiveInt = 64
    """Pairs in one of them."""
    lr: PositiveFloat = 0.05
    """The learning rate, which falls to zero."""

    def check(self, spec: RunSpec) -> None:
        task = demand_states(spec.task)
        demand_middle(task, self.position)
        label_names(task, (self.label,))
        if max(self.ranks, default=0) > MOST_AXES:
            raise UserError(f"ranks: {max(self.ranks)} is more than the {MOST_AXES} axes that there are at most")
        model = build_model(spec.model, spec.task.vocab_size, 0)
        self.chosen(model)
        demand_settled(model, earliest(task, self.position), task.length)

    def draw(self, spec: RunSpec) -> "_Known":
        """Pairs are drawn when models are there: that takes longer, and fails nowhere else."""
        task = equally_long(demand_states(spec.task))
        at = middle(task, self.position)
        known = task.sample(self.documents, stream(spec.data_seed, "align axes"), "test")
        states = task.states(known)["state"]
        _, usable = other_place(states, at, task.automaton.num_states)
        return _Known(at, known, states[:, at], usable)

    def chosen(self, model: Model) -> dict[str, list[str]]:
        """The places where parts are exchanged, and the sites of each."""
        boundaries, states = written_boundaries(model), carried_states(model)
        known = {site: [site] for site in [*boundaries, *states]} | {BOTH: [*boundaries, *states]}
        for place in self.places:
            if place not in known:
                raise UnknownName("place to align", place, known)
        usual = [*boundaries, *([BOTH] if states else [])]
        return {place: known[place] for place in self.places or usual}

    def chosen_ranks(self, classes: int, most: int) -> list[int]:
        """Those that the span has room for."""
        return [rank for rank in sorted({*(self.ranks or (*USUAL_RANKS, max(1, classes - 1)))}) if rank <= most]

    def run(self, trained: Trained) -> list[Result]:
        spec, members = trained.first, Members(trained.models)
        drawn = _Drawn.of(self, spec, members)
        finite = torch.stack([x.isfinite().flatten(1).all(1) for x in drawn.known.values()]).all(0)
        documents = f"{drawn.learn.base.sha256()} {drawn.judge.base.sha256()} {drawn.judge.source.sha256()}"
        found: list[Result] = [Impossible("some activation is not finite", documents=documents)] * len(trained)
        kept = finite.nonzero().flatten().tolist()
        if len(kept) < len(trained):
            members = members.only(kept)
            drawn = _Drawn.of(self, spec, members) if kept else drawn
        for number, own in zip(
            kept, self._aligned(members, drawn, spec.data_seed, trained) if kept else (), strict=True
        ):
            found[number] = Done((own,), documents=documents)
        return found

    def _aligned(self, members: Members, drawn: "_Drawn", seed: int, trained: Trained) -> list[Alignments]:
        clean = answers_after(members, drawn.judge.base, drawn.at)
        asked = (drawn.judge.base.targets != UNSCORED) & (torch.arange(clean.shape[-1]) >= drawn.at)
        right = ((clean == drawn.judge.base.targets) & asked).sum((1, 2)).double() / asked.sum()
        cells: list[list[Aligned]] = [[] for _ in members.models]
        spans: list[list[SpanOf]] = [[] for _ in members.models]
        places = self.chosen(trained.models[0])
        for done, (place, sites) in enumerate(places.items()):
            span = Span.over(drawn.known, sites)
            for k, own in enumerate(spans):
                own.append(SpanOf(place, int(span.count[k]), round(span.variance[k].item(), DIGITS)))
            for how, rank, map_, alike in self._subspaces(members, place, span, drawn, seed):
                said = answers_after(
                    members, drawn.judge.base, drawn.at, exchanged(span, drawn.judge_base, drawn.judge_source, map_)
                )
                late = how == LEARNED and place == BOTH
                elsewhere = drawn.elsewhere(members, span, map_) if late else [(None, None)] * len(members)
                for k, own in enumerate(cells):
                    told = following(said[k], drawn.judge, drawn.at)
                    angle = None if alike is None else round(alike[k].item(), DIGITS)
                    own.append(Aligned(place, how, rank, told.now, told.later, told.kept, angle, *elsewhere[k]))
            trained.progress(done + 1, len(places))
        sizes = (len(drawn.learn.base), len(drawn.judge.base))
        return [
            Alignments(drawn.at, self.label, *sizes, right[k].item(), tuple(spans[k]), tuple(cells[k]))
            for k in range(len(members))
        ]

    def _subspaces(
        self, members: Members, place: str, span: Span, drawn: "_Drawn", seed: int
    ) -> Iterator[tuple[str, int | None, Tensor | None, Tensor | None]]:
        """Every way of exchanging: its name, rank, map [k, p, p] of coordinates, and how like the probe's it is [k]."""
        yield "swap", None, None, None
        eye = torch.eye(span.axes.shape[-1], dtype=torch.float64, device=span.axes.device).expand(len(members), -1, -1)
        yield "span", None, eye, None
        found = moments(span.coordinates(drawn.known), drawn.parts)
        read = fit_probes(found, {"": drawn.label}, drawn.parts)[""].directions()
        yield "probe", read.shape[-1], read @ read.mT, None
        yield "leace", read.shape[-1], leace(found, drawn.label, drawn.parts).matrix, None
        ranks = self.chosen_ranks(int(drawn.label.max()) + 1, int(span.count.min()))
        rng = stream(seed, "align", place)
        alive = (span.axes.square().sum(1) > 0.5).to(span.axes)[..., None]
        for rank in ranks:
            turn = torch.randn(alive.shape[1], rank, generator=rng, dtype=torch.float64).to(alive.device)
            basis = torch.linalg.qr(turn * alive).Q
            yield "random", rank, basis @ basis.mT, same_subspace(basis, read)
        if not ranks:
            return  # less is held here than any of them asks for
        learned = learn_subspaces(
            *(members, drawn.learn, drawn.at, span, drawn.learn_base, drawn.learn_source, ranks),
            steps=self.steps,
            batch=self.batch_size,
            lr=self.lr,
            rng=rng,
        )
        for rank, basis in zip(ranks, learned, strict=True):
            yield LEARNED, rank, basis @ basis.mT, same_subspace(basis, read)


@dataclass(frozen=True)
class _Known:
    """Documents from which axes are taken."""

    at: int
    """The input in the middle."""
    batch: Batch
    states: Tensor
    """[n] after it."""
    usable: Tensor
    """[s] states that are frequent there."""


@dataclass(frozen=True)
class _Drawn:
    """Documents, and what models hold in them after the input in the middle."""

    at: int
    known: Column
    label: Tensor
    parts: Parts
    learn: StatePairs
    learn_base: Column
    learn_source: Column
    judge: StatePairs
    judge_base: Column
    judge_source: Column
    late: "_Late | None"

    def elsewhere(self, members: Members, span: Span, map_: Tensor | None) -> list["_Elsewhere"]:
        """What a subspace is late in documents, of each model."""
        if self.late is None or map_ is None:
            return [(None, None)] * len(members)
        return list(zip(self.late.moved(members, span, map_), self.late.earlier(members, span, map_), strict=True))

    @staticmethod
    def of(stage: AlignStates, spec: RunSpec, members: Members) -> "_Drawn":
        task, seed, device = equally_long(demand_states(spec.task)), spec.data_seed, device_of(members.first)
        found = stage.draw(spec)
        at, known = found.at, found.batch
        parts = parts_by_document(known.tokens, 1, stream(seed, "align parts"))
        learn = draw_pairs(task, stage.learned_on, at, found.usable, stream(seed, "align learn"), "dev")
        judge = draw_pairs(task, stage.pairs, at, found.usable, stream(seed, "align judge"), "test")

        def held(batch: Batch) -> Column:
            # Copies that gradients may be taken through, which what is made in inference mode may not.
            return {site: x.clone() for site, x in columns(members, batch, at).items()}

        label = label_of_states(task, stage.label)[found.states].to(device)
        learned = learn, held(learn.base), held(learn.source)
        judged = judge, held(judge.base), held(judge.source)
        late = _Late.of(task, known, stage.pairs, stream(seed, "align late"), members)
        return _Drawn(at, held(known), label, parts.to(device), *learned, *judged, late)


_Elsewhere = tuple[Estimate | None, Estimate | None]


@dataclass(frozen=True)
class _Late:
    """Documents late in them: pairs in different states, and some whose states others are in early."""

    position: int
    pairs: StatePairs
    base: Column
    source: Column
    documents: Batch
    held: Column
    early: Column

    @staticmethod
    def of(task: StateTask, known: Batch, n: int, rng: torch.Generator, members: Members) -> "_Late | None":
        found = early_and_late(task, known, n, rng)
        if found is None:
            return None
        early, late, drawn = found
        pairs = draw_pairs(task, n, late, torch.ones(task.automaton.num_states, dtype=torch.bool), rng)
        base, source, held = (columns(members, batch, late) for batch in (pairs.base, pairs.source, drawn))
        return _Late(late, pairs, base, source, drawn, held, columns(members, known, early))

    def moved(self, members: Members, span: Span, map_: Tensor) -> list[Estimate | None]:
        """Whether the directions are the state's there too."""
        written = exchanged(span, self.base, self.source, map_)
        said = answers_after(members, self.pairs.base, self.position, written)
        return [following(own, self.pairs, self.position).later for own in said]

    def earlier(self, members: Members, span: Span, map_: Tensor) -> list[Estimate]:
        """A memory that is the state is met again along them, whatever else is held; a count, or inputs, are not."""
        here, there = (span.coordinates(column) @ map_ for column in (self.held, self.early))
        # Near by what is held alone: the stream has the answer in it, by which any two of one state would be near.
        weight = span.root_of(is_state, {site: x.shape[-1] for site, x in self.held.items()})
        near = torch.nan_to_num(torch.cdist(here @ weight, there @ weight), float("inf")).argmin(-1, keepdim=True)
        change = there.gather(1, near.expand(-1, -1, there.shape[-1])) - here
        said = answers_after(members, self.documents, self.position, span.moved(self.held, change))
        return [right_behind(own, self.documents, self.position) for own in said]


def exchanged(span: Span, base: Column, source: Column, map_: Tensor | None) -> Column:
    """What documents hold after the exchange along a map of coordinates; without one, all that the others hold."""
    if map_ is None:
        return {site: source[site] for site in span.sites}
    return span.moved(base, (span.coordinates(source) - span.coordinates(base)) @ map_)
