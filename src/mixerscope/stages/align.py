"""Which part of what is held is the state? Parts are exchanged between documents along subspaces: a stage."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from mixerscope.artifacts import Artifact
from mixerscope.artifacts.alignments import Aligned, Alignments, SpanOf
from mixerscope.errors import UnknownName, UserError
from mixerscope.interventions.alignment import MOST_AXES, Exchange, Span, any_directions, learn_subspaces
from mixerscope.interventions.batching import device_of
from mixerscope.interventions.members import Members
from mixerscope.interventions.tagging import demand_states
from mixerscope.interventions.transplant import (
    answers_after,
    carried_states,
    columns,
    demand_settled,
    written_boundaries,
)
from mixerscope.model import Model, build_model
from mixerscope.probing.erasure import leace, same_subspace
from mixerscope.probing.ridge import fit_probes, moments, parts_by_document
from mixerscope.randomness import stream
from mixerscope.spec import RunSpec
from mixerscope.stages.align_held import Documents, Held, Known, Late, exchanged
from mixerscope.stages.base import Done, Impossible, Result, Stage, Trained
from mixerscope.stages.state_pairs import (
    BOTH,
    STATES,
    demand_middle,
    draw_pairs,
    earliest,
    equally_long,
    following,
    middle,
    other_place,
)
from mixerscope.stages.vectors import ANSWER, label_names, label_of_states
from mixerscope.tasks import UNSCORED

USUAL_RANKS = (1, 2, 4, 8, 16)
"""And one less than the classes of the label."""
DIGITS = 4
LEARNED, RANDOM = "das", "random"
DRAWN = (LEARNED, RANDOM)
"""What starts from directions that are drawn, of a rank that is asked for."""
MOST_BYTES = {"cpu": 8 << 30, "cuda": 24 << 30}
"""Of what models hold and of copies of it, at once. Recurrent states make it much: of Mamba-2 with four blocks of width
128 138,000 numbers a document, sixteen gigabytes a model. Several processes share a GPU."""


class AlignStates(Stage):
    """Where parts are exchanged, of which rank, and on how many pairs that is learned and judged."""

    revision: ClassVar[int] = 4
    """2: what is learned is tried late in documents too, and what is held there put beside what is held early. 3: in
    memory alone, as the stream has the answer in it, from which a subspace can write into a memory that holds something
    else; learned twice, as where it ends depends on where it begins; begun alone as beside other models; with shares by
    distance. 4: probes have the largest of equally good penalties, which turns what they read."""
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
    """Boundaries, recurrent states, `state`: all of the latter at once, or `both`: all of these; left out, the
    boundaries behind the first block, and `both` and `state` where there are recurrent states."""
    label: str = ANSWER
    """What probes and erasures are of; the state itself is what is exchanged."""
    ranks: tuple[PositiveInt, ...] = ()
    """Of learned subspaces; left out, 1, 2, 4, 8, 16 and one less than the classes of the label."""
    steps: PositiveInt = 150
    """Updates of a learned subspace."""
    batch_size: PositiveInt = 32
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

    def draw(self, spec: RunSpec) -> Known:
        """Pairs are drawn when models are there: that takes longer, and fails nowhere else."""
        task = equally_long(demand_states(spec.task))
        at = middle(task, self.position)
        known = task.sample(self.documents, stream(spec.data_seed, "align axes"), "test")
        states = task.states(known)["state"]
        _, usable = other_place(states, at, task.automaton.num_states)
        return Known(at, known, states[:, at], usable)

    def chosen(self, model: Model) -> dict[str, list[str]]:
        """The places where parts are exchanged, and the sites of each."""
        boundaries, states = written_boundaries(model), carried_states(model)
        together = {BOTH: [*boundaries, *states], **({STATES: states} if states else {})}
        known = {site: [site] for site in [*boundaries, *states]} | together
        for place in self.places:
            if place not in known:
                raise UnknownName("place to align", place, known)
        usual = [*boundaries, *(together if states else ())]
        return {place: known[place] for place in self.places or usual}

    def chosen_ranks(self, classes: int, most: int) -> list[int]:
        """Those that the span has room for."""
        return [rank for rank in sorted({*(self.ranks or (*USUAL_RANKS, max(1, classes - 1)))}) if rank <= most]

    def run(self, trained: Trained) -> list[Result]:
        documents = self._documents(trained.first, device_of(trained.models[0]))
        found: list[Result] = []
        groups = self._at_once(trained.models, documents)
        places = self.chosen(trained.models[0])
        for number, models in enumerate(groups):

            def tell(done: int, before: int = number * len(places)) -> None:
                trained.progress(before + done, len(groups) * len(places))

            found += self._of_group(models, documents, trained.first.data_seed, places, tell)
        return found

    def _documents(self, spec: RunSpec, device: torch.device) -> Documents:
        task, seed = equally_long(demand_states(spec.task)), spec.data_seed
        found = self.draw(spec)
        at, known = found.at, found.batch
        parts = parts_by_document(known.tokens, 1, stream(seed, "align parts"))
        learn = draw_pairs(task, self.learned_on, at, found.usable, stream(seed, "align learn"), "dev")
        judge = draw_pairs(task, self.pairs, at, found.usable, stream(seed, "align judge"), "test")
        label = label_of_states(task, self.label)[found.states].to(device)
        late = Late.of(task, known, self.pairs, stream(seed, "align late"))
        return Documents(at, known, label, parts.to(device), learn, judge, late)

    def _at_once(self, models: Sequence[Model], documents: Documents) -> list[Sequence[Model]]:
        """Models whose states fit into memory together."""
        one = columns(Members(models[:1]), documents.known[:1], documents.at)
        each = sum(x.shape[-1] for x in one.values()) * self._bytes_a_number(documents)
        most = max(1, MOST_BYTES[device_of(models[0]).type] // each)
        many = math.ceil(len(models) / math.ceil(len(models) / most))  # all groups alike: none needs the most
        return [models[first : first + many] for first in range(0, len(models), many)]

    def _bytes_a_number(self, documents: Documents) -> int:
        """For each number that a document holds: what is held in all documents; in double precision what axes are
        found of, and these; and of a step of learning, which begins twice, what is written, in double precision too,
        and what gradients need of the recurrences: of all their steps, as those of later layers keep what they do at
        earlier positions too."""
        axes = 8 * (self.documents + 2 * MOST_AXES)
        rows = 2 * self.batch_size * (len(self.ranks) or len(USUAL_RANKS) + 1)
        return 4 * len(documents) + axes + 4 * rows * (16 + 3 * documents.known.tokens.shape[1])

    def _of_group(
        self,
        models: Sequence[Model],
        documents: Documents,
        seed: int,
        places: Mapping[str, list[str]],
        tell: Callable[[int], None],
    ) -> list[Result]:
        held = Held.by(Members(models), documents)
        found: list[Result] = [Impossible("some activation is not finite", documents=documents.named)] * len(models)
        finite = torch.stack([x.isfinite().flatten(1).all(1) for x in held.known.values()]).all(0)
        sound = finite.nonzero().flatten().tolist()
        if len(sound) < len(models):
            held = Held.by(held.members.only(sound), documents) if sound else held
        aligned = self._aligned(held, documents, seed, places, tell) if sound else []
        for number, own in zip(sound, aligned, strict=True):
            found[number] = Done((own,), documents=documents.named)
        return found

    def _aligned(
        self,
        held: Held,
        documents: Documents,
        seed: int,
        places: Mapping[str, list[str]],
        tell: Callable[[int], None],
    ) -> list[Alignments]:
        members, at, judge = held.members, documents.at, documents.judge
        clean = answers_after(members, judge.base, at)
        asked = (judge.base.targets != UNSCORED) & (torch.arange(clean.shape[-1]) >= at)
        right = ((clean == judge.base.targets) & asked).sum((1, 2)).double() / asked.sum()
        cells: list[list[Aligned]] = [[] for _ in members.models]
        spans: list[list[SpanOf]] = [[] for _ in members.models]
        for done, (place, sites) in enumerate(places.items()):
            span = Span.over(held.known, sites)
            room = span.count.tolist()
            for k, own in enumerate(spans):
                own.append(SpanOf(place, room[k], round(span.variance[k].item(), DIGITS)))
            for how, rank, map_, alike in self._subspaces(place, span, held, documents, seed):
                written = exchanged(span, held.judge_base, held.judge_source, map_)
                said = answers_after(members, judge.base, at, written)
                sound = [True] * len(members) if map_ is None else map_.isfinite().flatten(1).all(1).tolist()
                late = how == LEARNED and place == STATES
                elsewhere = held.elsewhere(documents, span, map_) if late else [(None, None)] * len(members)
                for k, own in enumerate(cells):
                    if how in DRAWN and rank is not None and (rank > room[k] or not sound[k]):
                        continue  # less is held here than it asks for, or what was learned went astray
                    told = following(said[k], judge, at)
                    angle = None if alike is None else round(alike[k].item(), DIGITS)
                    there = Aligned(place, how, rank, told.now, told.later, told.kept, angle, *elsewhere[k])
                    own.append(replace(there, by_distance=told.by_distance, told=told.told) if late else there)
            tell(done + 1)
        sizes = (len(documents.learn.base), len(judge.base))
        return [
            Alignments(at, self.label, *sizes, right[k].item(), tuple(spans[k]), tuple(cells[k]))
            for k in range(len(members))
        ]

    def _subspaces(
        self, place: str, span: Span, held: Held, documents: Documents, seed: int
    ) -> Iterator[tuple[str, int | None, Tensor | None, Tensor | None]]:
        """Every way of exchanging: its name, rank, map [k, p, p] of coordinates, and how like the probe's it is [k].
        What is drawn and learned may have more ranks than some of the models have room for."""
        yield "swap", None, None, None
        most = span.axes.shape[-1]
        eye = torch.eye(most, dtype=torch.float64, device=span.axes.device).expand(len(held.members), -1, -1)
        yield "span", None, eye, None
        found = moments(span.coordinates(held.known), documents.parts)
        read = fit_probes(found, {"": documents.label}, documents.parts)[""].directions()
        yield "probe", read.shape[-1], read @ read.mT, None
        yield "leace", read.shape[-1], leace(found, documents.label, documents.parts).matrix, None
        ranks = self.chosen_ranks(int(documents.label.max()) + 1, most)
        for rank in ranks:
            basis = span.orthonormal(any_directions(most, rank, stream(seed, "align", place, RANDOM, rank)))
            yield RANDOM, rank, basis @ basis.mT, same_subspace(basis, read)
        if not ranks:
            return  # less is held here than any of them asks for
        exchange = Exchange.between(
            held.members, documents.learn, documents.at, span, held.learn_base, held.learn_source
        )

        def draw(what: str, number: int) -> torch.Generator:
            return stream(seed, "align", place, what, number)

        learned = learn_subspaces(exchange, ranks, draw, steps=self.steps, batch=self.batch_size, lr=self.lr)
        for rank, basis in zip(ranks, learned, strict=True):
            yield LEARNED, rank, basis @ basis.mT, same_subspace(basis, read)
