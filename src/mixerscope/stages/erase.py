"""Is the state that can be read also used? Erase it, fit a fresh probe, and see what the answers lose: a stage."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field, NonNegativeInt, PositiveInt, field_validator
from torch import Tensor

from mixerscope.artifacts import Artifact, Erased, ErasedOnce, Erasures, Refitted
from mixerscope.interventions.members import Members
from mixerscope.interventions.tagging import demand_states, site_vectors
from mixerscope.interventions.transplant import carried_states
from mixerscope.model import Model, layers_of
from mixerscope.probing.erasure import Eraser, chance_of, projection
from mixerscope.probing.ridge import axes_of
from mixerscope.randomness import stream
from mixerscope.spec import RunSpec
from mixerscope.stages.base import Done, Impossible, Result, Stage, Trained
from mixerscope.stages.counting import Counting, rounded
from mixerscope.stages.erase_components import ablations
from mixerscope.stages.erase_longer import Kept, refitted
from mixerscope.stages.erase_methods import IRRELEVANT, METHODS, WHOLE, Known, irrelevant_label, random_like
from mixerscope.stages.erase_middle import Middle
from mixerscope.stages.erase_recurrence import METHOD, erase_inside
from mixerscope.stages.state_pairs import middle
from mixerscope.stages.vectors import (
    ANSWER,
    Vectors,
    demand_first,
    demand_places,
    draw_vectors,
    draw_vectors_at,
    label_names,
)
from mixerscope.tasks import StateTask


class EraseStates(Stage):
    """Which label is erased, from how many vectors it is found, and on how many documents the damage is seen."""

    revision: ClassVar[int] = 9
    """2: recurrent states too, after every step. 3: random subspaces by other axes of the same draws. 4: whole blocks
    are ablated too. 5: twenty random subspaces, in longer documents too; erasures at one position; erasures found again
    in longer documents; ablations turned into random directions; an irrelevant label inside recurrences. 6: intervals
    of the damage. 7: residuals in documents that no erasure was fitted to, beside the others. 8: chance where rounding
    is all that is left to read. 9: probes have the largest of equally good penalties, which turns single directions
    and iterated projection to what varies most with the label."""
    artifacts: ClassVar[tuple[type[Artifact], ...]] = (Erasures,)

    label: str = ANSWER
    """What is erased: `answer`, `state`, or what else is true of it."""
    documents: PositiveInt = 3000
    """Of which the vectors are taken that erasures and probes are fitted to."""
    stream_documents: PositiveInt | None = None
    """The same at boundaries of the stream, where vectors cost least; left out, as many. The more there are, the less
    erasures leave in documents that they were not found in."""
    each: PositiveInt = 4
    """Random positions of each document."""
    first: int | None = Field(default=None, ge=1)
    """Inputs before the first position that is fitted to; left out, half of them."""
    damaged_documents: PositiveInt = 256
    """Other documents, of each length, on which answers are counted."""
    times: tuple[PositiveInt, ...] = (1, 2)
    """How many times as long as in training these are."""
    draws: NonNegativeInt = 20
    """Random subspaces of equal rank, and of equal variance, that every erasure is compared with."""
    turns: NonNegativeInt = 5
    """Random directions into which the change that an ablation makes is turned, to see what its size alone does."""
    refit: bool = True
    """Whether erasures are also found in the longer documents, for models that know enough there."""
    once: bool = True
    """Whether the label is also erased at the position in the middle alone."""

    @field_validator("times")
    @classmethod
    def _training_length_first(cls, times: tuple[int, ...]) -> tuple[int, ...]:
        if times[:1] != (1,) or list(times) != sorted(set(times)):
            raise ValueError(f"give 1, the training length, and then longer ones, got {list(times)}")
        return times

    def check(self, spec: RunSpec) -> None:
        label_names(demand_states(spec.task), (self.label,))
        demand_first(demand_states(spec.task), self.first)
        demand_places(spec, max(self.times), "stages.erase.times")

    def draw(self, spec: RunSpec) -> Vectors:
        return self._draw(spec, demand_states(spec.task), self.documents)

    def _draw(self, spec: RunSpec, task: StateTask, documents: int) -> Vectors:
        return draw_vectors(task, documents, self.each, self.first, [*{ANSWER, self.label}], spec.data_seed)

    def run(self, trained: Trained) -> list[Result]:
        spec, models = trained.first, trained.models
        task, members, drawn = demand_states(spec.task), Members(models), self.draw(spec)
        many = self.stream_documents or self.documents
        stream_drawn = drawn if many == self.documents else self._draw(spec, task, many)
        names = list(drawn.labels)
        sizes = [task.at_length(times * task.length).changed(only_last=False) for times in self.times]
        seen = [
            longer.sample(self.damaged_documents, stream(spec.data_seed, "erase", str(times)), "test")
            for times, longer in zip(self.times, sizes, strict=True)
        ]
        counting = Counting(members, seen)
        boundaries, inside = models[0].boundaries(), carried_states(models[0])
        total = len(boundaries) + len(inside) + len(sizes) + 1
        irrelevant, irrelevant_in_stream = (
            irrelevant_label(one, self.label, spec.data_seed) for one in (drawn, stream_drawn)
        )
        erased: list[list[Erased]] = [[] for _ in models]
        again: list[list[Refitted]] = [[] for _ in models]
        once: list[list[ErasedOnce]] = [[] for _ in models]
        kept: dict[str, Kept] = {}
        finite = torch.ones(len(models), dtype=torch.bool)
        for done, site in enumerate(boundaries):
            found = self._measure_boundary(site, models, task, stream_drawn, irrelevant_in_stream, counting, erased)
            kept[site], whole = found
            finite &= whole
            trained.progress(done + 1, total)
        position = middle(task, None)
        there = Middle(members, position, seen[0]) if self.once else None
        if there is not None and there.asked:
            # As many vectors, one of each document.
            here = draw_vectors_at(task, self.documents * self.each, position, names, spec.data_seed)
            there.in_stream(here, self.label, self.draws, spec.data_seed, once)
        for done, site in enumerate(inside):
            self._measure_inside(site, drawn, irrelevant, counting, erased, there, once)
            trained.progress(len(boundaries) + done + 1, total)
        for at, longer in enumerate(sizes):
            if self.refit and longer.length > task.length:
                held = self._draw(spec, longer, many)
                refitted(members, held, self.label, kept, counting, at, longer.length, again)
            trained.progress(len(boundaries) + len(inside) + at + 1, total)
        ablated = ablations(members, counting, self.turns)
        trained.progress(total, total)
        judged = stream_drawn.parts.judge
        batches = [drawn.batch, *([stream_drawn.batch] if stream_drawn is not drawn else []), *seen]
        documents = " ".join(batch.sha256() for batch in batches)
        return [
            Done(
                (
                    Erasures(
                        *(self.label, tuple(longer.length for longer in sizes), counting.clean[k], counting.guessing),
                        *(chance_of(stream_drawn.labels[self.label][judged]), tuple(erased[k]), tuple(ablated[k])),
                        judged=int(judged.sum()),
                        position=position if self.once else None,
                        once=tuple(once[k]),
                        refitted=tuple(again[k]),
                    ),
                ),
                documents=documents,
            )
            if measurable
            else Impossible("some activation is not finite", documents=documents)
            for k, measurable in enumerate(finite.tolist())
        ]

    def _measure_boundary(
        self,
        site: str,
        models: list[Model],
        task: StateTask,
        drawn: Vectors,
        irrelevant: Tensor,
        counting: Counting,
        erased: list[list[Erased]],
    ) -> tuple[Kept, Tensor]:
        """Adds what erasing does at one boundary, whose vectors are gone before those of the next one are there; gives
        what was found, and which models' vectors are finite."""
        members = counting.members
        x = site_vectors(members, drawn.batch, [site], drawn.positions)[site]
        known = Known.of(x, drawn, self.label)
        methods = {method: known.eraser(method, irrelevant) for method in METHODS}
        kept = Kept(known.probe.directions(), {method: methods[method] for method in WHOLE})
        if site == models[0].boundaries()[-1] and layers_of(models[0]):  # of foreign ones nobody knows the head
            answers = task.answer_tokens(torch.arange(task.automaton.num_states))
            methods["head"] = _head(models, answers, known)
        self._measure(site, methods, known, counting, erased)
        return kept, x.isfinite().flatten(1).all(1).cpu()

    def _measure(
        self, site: str, methods: Mapping[str, Eraser], known: Known, counting: Counting, erased: list[list[Erased]]
    ) -> None:
        """Adds, by model, what each way of erasing takes, leaves and costs at a site."""
        before = rounded(known.probe.accuracy.tolist())
        longer = range(1, len(counting.seen))
        able = [at for at in longer if any(counting.known(k, at) for k in range(len(erased)))]
        for method, eraser in methods.items():
            left, variance = rounded(known.residual(eraser)), rounded(eraser.variance(known.found).tolist())
            unseen = known.unseen(eraser)
            random = random_like(method, eraser, known, self.draws, stream(0, "random subspace", site, method))
            own, mean, count = eraser.matrix[:, None], known.found.mean, random.rank.shape[1]
            right = [counting.erasing(0, site, mean, torch.cat([own, random.rank, random.variance], 1))]
            for at in longer:
                each = torch.cat([own, random.variance], 1) if at in able else own
                right.append(counting.erasing(at, site, mean, each))
            short, *rest = (counting.accuracies(at, one) for at, one in enumerate(right))
            for k, (rows, rank) in enumerate(zip(erased, eraser.rank.tolist(), strict=True)):
                accuracy = (short[k][0], *(found[k][0] for found in rest))
                rows.append(
                    Erased(
                        *(
                            site,
                            method,
                            rank,
                            variance[k],
                            before[k],
                            left[k],
                            accuracy,
                            _damages(counting, k, accuracy),
                        ),
                        *(tuple(short[k][1 : 1 + count]), tuple(short[k][1 + count :])),
                        tuple(tuple(rest[at - 1][k][1:]) if counting.known(k, at) else () for at in longer),
                        *_ends(counting, k, [one[k, 0] for one in right]),
                        unseen=unseen[k],
                    )
                )

    def _measure_inside(
        self,
        site: str,
        drawn: Vectors,
        irrelevant: Tensor,
        counting: Counting,
        erased: list[list[Erased]],
        middle: Middle | None,
        once: list[list[ErasedOnce]],
    ) -> None:
        """The same inside a recurrence, after every step and after the one in the middle."""
        members, label = counting.members, drawn.labels[self.label]
        labels = {METHOD: label, f"{IRRELEVANT}, every step": irrelevant}
        told, found = erase_inside(members, site, drawn, label, labels)
        before, chance = rounded(told), chance_of(label[drawn.parts.judge])
        for method, (inside, residual, fresh) in found.items():
            left = rounded(residual)
            unseen = [None] * len(erased) if fresh is None else rounded(fresh)
            right = [
                counting.right(at, lambda batch, one=inside: one.right(members, batch))
                for at in range(len(counting.seen))
            ]
            shares = [counting.accuracies(at, one) for at, one in enumerate(right)]
            for k, rows in enumerate(erased):
                accuracy = tuple(share[k][0] for share in shares)
                said = (site, method, inside.ranks[k], None, before[k], left[k], accuracy)
                low, high = _ends(counting, k, [one[k, 0] for one in right])
                damages = _damages(counting, k, accuracy)
                rows.append(Erased(*said, damages, damage_low=low, damage_high=high, unseen=unseen[k]))
            if middle is not None and middle.asked:
                probed = [(chance, *both) for both in zip(before, left, strict=True)]
                middle.in_state(site, method.replace(", every step", ""), inside, probed, unseen, once)


def _damages(counting: Counting, k: int, accuracy: tuple[float, ...]) -> tuple[float | None, ...]:
    return tuple(counting.damage(k, at, left) for at, left in enumerate(accuracy))


def _ends(counting: Counting, k: int, right: list[Tensor]) -> list[tuple[float | None, ...]]:
    """The lower ends of the damages' intervals at each length, and the upper ones, of right answers [n] at each."""
    return [*zip(*(counting.damage_ends(k, at, one) for at, one in enumerate(right)), strict=True)]


def _head(models: list[Model], answers: Tensor, known: Known) -> Eraser:
    """What the head reads of the last site to tell the answers apart: without it only guessing is left."""
    rows: list[Tensor] = []
    for model in models:
        norm: Tensor = model.final_norm.weight.detach().double()
        seen = norm * model.token_embedding.weight.detach()[answers.unique().to(norm.device)].double()
        rows.append((seen - seen.mean(-1, keepdim=True)).mT)  # the norm takes the mean of each vector off
    return projection(known.found.mean, axes_of(torch.nan_to_num(torch.stack(rows)))[0])
