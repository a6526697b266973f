"""Is the state that can be read also used? Erase it, fit a fresh probe, and see what the answers lose: a stage."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor, nn

from mixerscope.artifacts import Ablated, Artifact, Erased, Erasures
from mixerscope.interventions.batching import device_of
from mixerscope.interventions.members import Members
from mixerscope.interventions.tagging import Change, demand_states, right_answers, site_vectors
from mixerscope.interventions.transplant import held_states
from mixerscope.model import Model
from mixerscope.probing.controls import control_labels
from mixerscope.probing.erasure import (
    Eraser,
    chance_of,
    iterated_projection,
    leace,
    projection,
    random_subspace,
    random_variance,
    residual,
    single_direction,
)
from mixerscope.probing.ridge import Moments, Parts, axes_of, fit_probes, moments
from mixerscope.randomness import stream
from mixerscope.sites import named_sites
from mixerscope.spec import RunSpec
from mixerscope.stages.base import Done, Impossible, Result, Stage, Trained
from mixerscope.stages.erase_recurrence import METHOD, erase_inside
from mixerscope.stages.vectors import ANSWER, Vectors, draw_vectors, label_names
from mixerscope.tasks import UNSCORED, Batch

LEAST_KNOWN = 0.2
"""Accuracy above guessing that a model must have at a length for damage there to mean anything."""
DIGITS = 5


class EraseStates(Stage):
    """Which label is erased, from how many vectors it is found, and on how many documents the damage is seen."""

    revision: ClassVar[int] = 4
    """2: recurrent states too, after every step. 3: random subspaces by other axes of the same draws. 4: whole blocks
    are ablated too."""
    artifacts: ClassVar[tuple[type[Artifact], ...]] = (Erasures,)

    label: str = ANSWER
    """What is erased: `answer`, `state`, or what else is true of it."""
    documents: PositiveInt = 3000
    """Of which the vectors are taken that erasures and probes are fitted to."""
    each: PositiveInt = 4
    """Random positions of each document."""
    first: int | None = Field(default=None, ge=1)
    """Inputs before the first position that is fitted to; left out, half of them."""
    damaged_documents: PositiveInt = 256
    """Other documents, of each length, on which answers are counted."""
    times: tuple[PositiveInt, ...] = (1, 2)
    """How many times as long as in training these are; what is erased is always found at the training length."""
    draws: NonNegativeInt = 10
    """Random subspaces of equal rank, and of equal variance, that every erasure is compared with."""

    def check(self, spec: RunSpec) -> None:
        label_names(demand_states(spec.task), (self.label,))

    def run(self, trained: Trained) -> list[Result]:
        spec, models = trained.first, trained.models
        task, members = demand_states(spec.task), Members(models)
        drawn = draw_vectors(task, self.documents, self.each, self.first, [*{ANSWER, self.label}], spec.data_seed)
        sizes = {times: task.at_length(times * task.length).changed(only_last=False) for times in self.times}
        seen = [
            longer.sample(self.damaged_documents, stream(spec.data_seed, "erase", str(times)), "test")
            for times, longer in sizes.items()
        ]
        counting = _Counting(members, seen)
        erased: list[list[Erased]] = [[] for _ in models]
        boundaries, finite = models[0].boundaries(), torch.ones(len(models), dtype=torch.bool)
        parts, label = drawn.parts.to(device_of(models[0])), drawn.labels[self.label].to(device_of(models[0]))
        for done, (site, x) in enumerate(site_vectors(members, drawn.batch, boundaries, drawn.positions).items()):
            finite &= x.isfinite().flatten(1).all(1).cpu()
            known = _Known(moments(torch.nan_to_num(x.flatten(1, 2).double(), 0.0, 0.0, 0.0), parts), parts, label)
            methods = self._methods(known, drawn, spec.data_seed)
            if site == boundaries[-1] and all(isinstance(model, Model) for model in models):
                methods["head"] = _head(models, task.answer_tokens(torch.arange(task.automaton.num_states)), known)
            for own, several in zip(erased, self._measured(site, methods, known, counting), strict=True):
                own.extend(several)
            trained.progress(done + 1, len(boundaries) + 1)
        for site in held_states(models[0]):
            for own, one in zip(erased, self._inside(members, site, drawn, counting), strict=True):
                own.append(one)
        ablated = _ablations(models[0], members, counting)
        trained.progress(1, 1)
        lengths = tuple(longer.length for longer in sizes.values())
        chance = chance_of(drawn.labels[self.label][drawn.parts.judge])
        documents = " ".join([drawn.batch.sha256(), *(batch.sha256() for batch in seen)])
        return [
            Done(
                (
                    Erasures(
                        *(self.label, lengths, counting.clean[k], counting.guessing, chance),
                        *(tuple(erased[k]), tuple(ablated[k])),
                    ),
                ),
                documents=documents,
            )
            if measurable
            else Impossible("some activation is not finite", documents=documents)
            for k, measurable in enumerate(finite.tolist())
        ]

    def _methods(self, known: "_Known", drawn: Vectors, seed: int) -> dict[str, Eraser]:
        found, parts, label = known.found, known.parts, known.label
        irrelevant = control_labels(
            drawn.batch.tokens, drawn.positions, drawn.labels[self.label], stream(seed, "irrelevant")
        ).to(label.device)
        return {
            "single direction": single_direction(found, label, parts),
            "leace": leace(found, label, parts),
            "iterated projection": iterated_projection(found, label, parts),
            "irrelevant label": leace(found, irrelevant, parts),
        }

    def _measured(
        self, site: str, methods: Mapping[str, Eraser], known: "_Known", counting: "_Counting"
    ) -> list[list[Erased]]:
        """By model: what each way of erasing takes, leaves and costs at a site."""
        measured: list[list[Erased]] = [[] for _ in counting.members.models]
        before = fit_probes(known.found, {"": known.label}, known.parts)[""].accuracy.tolist()
        for method, eraser in methods.items():
            after = residual(eraser, known.found, known.label, known.parts).tolist()
            variance, rank = eraser.variance(known.found).tolist(), eraser.rank.tolist()
            accuracy = counting.erasing(site, eraser)
            ranks: list[list[float]] = []
            variances: list[list[float]] = []
            for draw in range(self.draws if method in ("leace", "iterated projection") else 0):
                rng = stream(draw, "random subspace", site, method)
                ranks.append([row[0] for row in counting.erasing(site, random_subspace(eraser, rng), only_first=True)])
                other = random_variance(eraser, known.found, rng)
                variances.append([row[0] for row in counting.erasing(site, other, only_first=True)])
            for k, own in enumerate(measured):
                own.append(
                    Erased(
                        *(site, method, rank[k], round(variance[k], DIGITS)),
                        *(round(before[k], DIGITS), round(after[k], DIGITS)),
                        *(accuracy[k], counting.damage(k, accuracy[k])),
                        *(tuple(row[k] for row in ranks), tuple(row[k] for row in variances)),
                    )
                )
        return measured

    def _inside(self, members: Members, site: str, drawn: Vectors, counting: "_Counting") -> list[Erased]:
        """The same inside a recurrence, after every step."""
        inside, before, after = erase_inside(members, site, drawn, drawn.labels[self.label])
        ranks = (inside.basis.square().sum(1) > 0.5).sum(-1).tolist()
        accuracy = counting.counted(lambda batch: inside.right(members, batch))
        return [
            Erased(
                *(site, METHOD, int(ranks[k]), None, round(before[k], DIGITS), round(after[k], DIGITS)),
                *(accuracy[k], counting.damage(k, accuracy[k])),
            )
            for k in range(len(ranks))
        ]


@dataclass(frozen=True)
class _Known:
    """The vectors of one site, and what is to be erased of them."""

    found: Moments
    parts: Parts
    label: Tensor


@dataclass
class _Counting:
    """Counts right answers on fixed documents of several lengths, with and without edits."""

    members: Members
    seen: list[Batch]

    def __post_init__(self) -> None:
        self.clean = [tuple(row) for row in self.with_edits({}, *())]
        self.guessing = tuple(_most_frequent(batch) for batch in self.seen)

    def with_edits(
        self, edits: Mapping[str, Change], *own: Tensor, only_first: bool = False
    ) -> list[tuple[float, ...]]:
        """By model: the accuracy at each length."""
        return self.counted(lambda batch: right_answers(self.members, batch, edits, *own), only_first)

    def counted(self, answering: Callable[[Batch], Tensor], only_first: bool = False) -> list[tuple[float, ...]]:
        """The same of any way of answering, which gives [k, n, t] whether answers are right."""
        columns: list[list[float]] = []
        for batch in self.seen[:1] if only_first else self.seen:
            asked = batch.targets != UNSCORED
            columns.append((answering(batch).sum((1, 2)).double() / asked.sum()).tolist())
        return [tuple(round(value, DIGITS) for value in row) for row in zip(*columns, strict=True)]

    def erasing(self, site: str, eraser: Eraser, only_first: bool = False) -> list[tuple[float, ...]]:
        return self.with_edits({site: _erase}, eraser.mean, eraser.matrix, only_first=only_first)

    def damage(self, k: int, accuracy: tuple[float, ...]) -> tuple[float | None, ...]:
        """The share of what a model knows beyond guessing that is lost."""
        return tuple(
            None if clean - guess < LEAST_KNOWN else round((clean - left) / (clean - guess), DIGITS)
            for clean, guess, left in zip(self.clean[k], self.guessing, accuracy, strict=True)
        )


def _erase(x: Tensor, mean: Tensor, matrix: Tensor) -> Tensor:
    return x - (x - mean.to(x.dtype)) @ matrix.to(x.dtype)


def _most_frequent(batch: Batch) -> float:
    asked = batch.targets[batch.targets != UNSCORED]
    return float((asked == asked.mode().values).double().mean())


def _head(models: list[Model], answers: Tensor, known: _Known) -> Eraser:
    """What the head reads of the last site to tell the answers apart: without it only guessing is left."""
    rows: list[Tensor] = []
    for model in models:
        norm: Tensor = model.final_norm.weight.detach().double()
        seen = norm * model.token_embedding.weight.detach()[answers.unique().to(norm.device)].double()
        rows.append((seen - seen.mean(-1, keepdim=True)).mT)  # the norm takes the mean of each vector off
    return projection(known.found.mean, axes_of(torch.nan_to_num(torch.stack(rows)))[0])


COMPONENTS = (".mixer_out", ".mlp_out", ".resid_post")
"""What is ablated: what mixers and MLPs add to the stream, and what whole blocks leave in it."""
ABLATIONS: Mapping[str, Change] = {
    "zero": torch.zeros_like,
    "mean": lambda x: x.mean(0, keepdim=True).expand_as(x),
    "resample": lambda x: x.roll(1, 0),
}
"""What is put in place of a component's output: over the documents that run together, each position its own."""


def _ablations(model: nn.Module, members: Members, counting: _Counting) -> list[list[Ablated]]:
    found: list[list[Ablated]] = [[] for _ in members.models]
    for site in named_sites(model):
        if site.endswith(COMPONENTS):
            for name, change in ABLATIONS.items():
                for k, accuracy in enumerate(counting.with_edits({site: change}, only_first=True)):
                    damage = counting.damage(k, (*accuracy, *counting.clean[k][1:]))[0]
                    found[k].append(Ablated(site, name, accuracy[0], damage))
    return found
