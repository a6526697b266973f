"""Where the state can be read: linear probes at every site, with what they must be compared with, as a stage."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from mixerscope.analysis.readability import readability
from mixerscope.artifacts import Artifact, ProbedLabel, Probes
from mixerscope.errors import UnknownName
from mixerscope.interventions.batching import device_of
from mixerscope.interventions.members import Members
from mixerscope.interventions.tagging import demand_states, site_vectors
from mixerscope.model import Model, build_model
from mixerscope.probing.controls import baselines, control_labels, shuffled
from mixerscope.probing.logistic import logistic_accuracy
from mixerscope.probing.ridge import Probe, balanced_share, fit_probes, moments
from mixerscope.randomness import stream
from mixerscope.sites import named_sites
from mixerscope.spec import RunSpec
from mixerscope.stages.base import Done, Impossible, Result, Stage, Trained
from mixerscope.stages.vectors import ANSWER, Vectors, draw_vectors, label_names

AT_ONCE = 64
"""Sites whose vectors are in memory together: of all of them, where a model has four blocks, so that it runs once."""
DIGITS = 5
SHUFFLED, CONTROL, UNTRAINED, LOGISTIC, PENALTY = "shuffled", "control", "untrained", "logistic", "penalty"


class ProbeStates(Stage):
    """Which labels are read, where, and from how many vectors."""

    artifacts: ClassVar[tuple[type[Artifact], ...]] = (Probes,)

    documents: PositiveInt = 5000
    """Of the training length, never trained on."""
    each: PositiveInt = 4
    """Random positions of each document."""
    first: int | None = Field(default=None, ge=1)
    """Inputs before the first position that is looked at; left out, half of them: early prefixes are trivial."""
    sites: tuple[str, ...] = ()
    """Left out, all of the model but its logits and recurrent states."""
    labels: tuple[str, ...] = ()
    """`answer`, `state` and what else is true of it; left out, all of them that have few classes."""
    logistic: bool = True
    """Whether logistic regression cross-checks the answer's probes at the boundaries between blocks."""

    def check(self, spec: RunSpec) -> None:
        label_names(demand_states(spec.task), self.labels)
        self.chosen(build_model(spec.model, spec.task.vocab_size, 0))

    def chosen(self, model: Model) -> list[str]:
        """The sites that are probed."""
        known = [name for name in named_sites(model) if name != "logits"]
        for site in self.sites:
            if site not in known:
                raise UnknownName("site to probe", site, known)
        return list(self.sites) or known

    def run(self, trained: Trained) -> list[Result]:
        spec, models = trained.first, trained.models
        task = demand_states(spec.task)
        names = label_names(task, self.labels)
        drawn = draw_vectors(task, self.documents, self.each, self.first, names, spec.data_seed)
        sites, members = self.chosen(models[0]), Members(models)
        fresh = [build_model(spec.model, task.vocab_size, one.seed) for one in trained.specs]
        untrained = Members([model.to(device_of(models[0])).eval() for model in fresh])
        labels, rows = self._labels(members, drawn), [_Rows(names, drawn) for _ in models]
        boundaries, labels_to_read = models[0].boundaries(), _read_as(drawn, spec.data_seed)
        for done, group in enumerate(_groups(sites)):
            for x in site_vectors(untrained, drawn.batch, group, drawn.positions).values():
                _probe_untrained(x.flatten(1, 2), drawn, rows)
            for site, x in site_vectors(members, drawn.batch, group, drawn.positions).items():
                crosscheck = self.logistic and site in boundaries
                _probe(x.flatten(1, 2), labels_to_read, drawn, rows, crosscheck)
            trained.progress(done + 1, -(-len(sites) // AT_ONCE))
        inside = tuple(site for site in boundaries if site in sites)
        return [
            Done((own.table(tuple(sites), inside, said),), documents=drawn.batch.sha256())
            if own.finite
            else Impossible("some activation is not finite", documents=drawn.batch.sha256())
            for own, said in zip(rows, labels, strict=True)
        ]

    def _labels(self, members: Members, drawn: Vectors) -> list[list[ProbedLabel]]:
        """By member: what there is to be read, and what is had of it without a probe."""
        right, found = drawn.right(members), [list[ProbedLabel]() for _ in members.models]
        for positions, scored in _subsets(drawn):
            own = drawn.ceiling(right, scored)
            for name, label in drawn.labels.items():
                rules = baselines(drawn.batch.tokens, drawn.positions, label, drawn.parts, scored)
                judged = int((drawn.parts.judge & scored).sum())
                for index, ceiling in enumerate(own):
                    most = ceiling if name == ANSWER else 1.0
                    said = ProbedLabel(name, positions, int(label.max()) + 1, **rules, ceiling=most, judged=judged)
                    found[index].append(said)
        return found


def _subsets(drawn: Vectors) -> list[tuple[str, Tensor]]:
    every = torch.ones_like(drawn.hard)
    some = bool((drawn.hard & drawn.parts.judge).any())
    return [("every", every)] if bool(drawn.hard.all()) or not some else [("every", every), ("hard", drawn.hard)]


def _groups(sites: Sequence[str]) -> Iterator[Sequence[str]]:
    return (sites[start : start + AT_ONCE] for start in range(0, len(sites), AT_ONCE))


class _Rows:
    """The numbers of one model, filled site by site."""

    def __init__(self, names: Sequence[str], drawn: Vectors) -> None:
        self.finite = True
        self.keys = [(name, positions) for positions, _ in _subsets(drawn) for name in names]
        self.found: dict[tuple[str, str, str], list[float | None]] = {}

    def add(self, kind: str, label: str, positions: str, value: float | None) -> None:
        self.found.setdefault((kind, label, positions), []).append(None if value is None else round(value, DIGITS))

    def table(self, sites: tuple[str, ...], boundaries: tuple[str, ...], labels: list[ProbedLabel]) -> Probes:
        def of(kind: str) -> tuple[tuple[float, ...], ...]:
            return tuple(tuple(v for v in self.found[kind, *key] if v is not None) for key in self.keys)

        logistic = tuple(tuple(self.found[LOGISTIC, *key]) for key in self.keys)
        floors = [max(label.chance, label.position, label.window) for label in labels]
        accuracy = of("accuracy")
        readable = tuple(
            tuple(readability(value, floor, label.ceiling) for value in row)
            for row, floor, label in zip(accuracy, floors, labels, strict=True)
        )
        controls = (of(SHUFFLED), of(CONTROL), of(UNTRAINED), logistic, of(PENALTY))
        return Probes(sites, boundaries, tuple(labels), accuracy, readable, *controls)


def _read_as(drawn: Vectors, seed: int) -> dict[tuple[str, str], Tensor]:
    """Every set of labels that is read, by the kind of number it gives and its name: the labels and their controls."""
    found: dict[tuple[str, str], Tensor] = {}
    for name, label in drawn.labels.items():
        tokens, positions = drawn.batch.tokens, drawn.positions
        found["accuracy", name] = label
        found[SHUFFLED, name] = shuffled(label, stream(seed, SHUFFLED, name))
        found[CONTROL, name] = control_labels(tokens, positions, label, stream(seed, CONTROL, name))
    return found


def _probe_untrained(x: Tensor, drawn: Vectors, rows: list[_Rows]) -> None:
    """The labels read at one site of networks nobody trained, [k, m, d]."""
    labels, parts = _on(x, {(UNTRAINED, name): label for name, label in drawn.labels.items()}), drawn.parts.to(x.device)
    _note(fit_probes(moments(x, parts.fit), labels, parts), labels, drawn, rows)


def _probe(
    x: Tensor, read_as: dict[tuple[str, str], Tensor], drawn: Vectors, rows: list[_Rows], crosscheck: bool
) -> None:
    """Fits all probes of one site for all models, [k, m, d]."""
    for own, one in zip(rows, x, strict=True):
        own.finite = own.finite and bool(one.isfinite().all())
    labels, parts = _on(x, read_as), drawn.parts.to(x.device)
    found = moments(torch.nan_to_num(x, 0.0, 0.0, 0.0), parts.fit)
    probes = fit_probes(found, labels, parts)
    _note(probes, labels, drawn, rows)
    for positions, _ in _subsets(drawn):
        for name in drawn.labels:
            checks: list[float | None] = [None] * len(rows)
            if crosscheck and name == ANSWER and positions == "every":
                checks = [*logistic_accuracy(found, labels["accuracy", name], parts).tolist()]
            chosen = probes["accuracy", name].penalty.tolist()
            for own, check, penalty in zip(rows, checks, chosen, strict=True):
                own.add(LOGISTIC, name, positions, check)
                own.add(PENALTY, name, positions, penalty)


def _note(
    probes: dict[tuple[str, str], Probe], labels: dict[tuple[str, str], Tensor], drawn: Vectors, rows: list[_Rows]
) -> None:
    """Writes down how well each probe tells its labels, over each set of positions."""
    judge = drawn.parts.judge
    for positions, scored in _subsets(drawn):
        here = scored[judge].to(next(iter(labels.values())).device)
        for (kind, name), probe in probes.items():
            judged = labels[kind, name][judge.to(here.device)][here]
            shares = balanced_share(probe.right[:, here].double(), judged).tolist()
            for own, share in zip(rows, shares, strict=True):
                own.add(kind, name, positions, share)


def _on(x: Tensor, labels: dict[tuple[str, str], Tensor]) -> dict[tuple[str, str], Tensor]:
    return {key: label.to(x.device) for key, label in labels.items()}
