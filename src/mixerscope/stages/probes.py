"""Where the state can be read: linear probes at every site, with what they must be compared with, as a stage."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from mixerscope.analysis.readability import readability
from mixerscope.analysis.stats import likelihood_estimates
from mixerscope.artifacts import Artifact, ProbedLabel, Probes
from mixerscope.errors import UnknownName
from mixerscope.interventions.batching import device_of
from mixerscope.interventions.members import Members
from mixerscope.interventions.tagging import LOGITS, demand_states, site_vectors
from mixerscope.model import Model, build_model
from mixerscope.model.backbone import MLP_RATIO
from mixerscope.probing.controls import baselines, control_labels, shuffled
from mixerscope.probing.logistic import logistic_accuracy
from mixerscope.probing.ridge import Moments, Probe, balanced_by_document, balanced_share, fit_probes, moments
from mixerscope.randomness import stream
from mixerscope.sites import named_sites
from mixerscope.spec import RunSpec
from mixerscope.stages.base import Done, Impossible, Result, Stage, Trained
from mixerscope.stages.vectors import ANSWER, Vectors, demand_first, draw_vectors, label_names

VECTOR_BYTES = 4 << 30
"""Of sites whose vectors are in memory together: all those of one model with four blocks, so that it runs once."""
FOREIGN_WIDTH = 1024
"""Of the residual stream, for lack of anyone who says."""
DIGITS = 5
LOW, HIGH = "accuracy low", "accuracy high"
SHUFFLED, CONTROL, UNTRAINED, LOGISTIC, PENALTY = "shuffled", "control", "untrained", "logistic", "penalty"


class ProbeStates(Stage):
    """Which labels are read, where, and from how many vectors."""

    revision: ClassVar[int] = 4
    """2: products of vectors in single precision on a CPU, which may tell one vector in thousands otherwise.
    3: intervals of the accuracies. 4: the largest of equally good penalties."""
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
        demand_first(demand_states(spec.task), self.first)
        self.chosen(build_model(spec.model, spec.task.vocab_size, 0))

    def chosen(self, model: Model) -> list[str]:
        """The sites that are probed."""
        known = [name for name in named_sites(model) if name != LOGITS]
        for site in self.sites:
            if site not in known:
                raise UnknownName("site to probe", site, known)
        return list(self.sites) or known

    def draw(self, spec: RunSpec) -> Vectors:
        task = demand_states(spec.task)
        return draw_vectors(task, self.documents, self.each, self.first, label_names(task, self.labels), spec.data_seed)

    def run(self, trained: Trained) -> list[Result]:
        spec, models = trained.first, trained.models
        drawn = self.draw(spec)
        sites, members = self.chosen(models[0]), Members(models)
        untrained = Members(trained.fresh())
        rows = [_Rows(list(drawn.labels), drawn) for _ in models]
        read_as = _read_as(drawn, spec.data_seed)
        looking = _Looking(drawn, read_as, device_of(models[0]), rows)
        boundaries, groups = models[0].boundaries(), _groups(sites, models, drawn)
        labels: list[list[ProbedLabel]] = []
        for done, group in enumerate(groups):
            for x in site_vectors(untrained, drawn.batch, group, drawn.positions).values():
                looking.probe_untrained(x.flatten(1, 2))
            found = site_vectors(members, drawn.batch, [*group, *([] if labels else [LOGITS])], drawn.positions)
            labels = labels or _labels(drawn, drawn.right(found.pop(LOGITS)))
            for site, x in found.items():
                crosscheck = self.logistic and site in boundaries
                looking.probe(x.flatten(1, 2), crosscheck)
            trained.progress(done + 1, len(groups))
        inside = tuple(site for site in boundaries if site in sites)
        return [
            Done((own.table(tuple(sites), inside, said),), documents=drawn.batch.sha256())
            if own.finite
            else Impossible("some activation is not finite", documents=drawn.batch.sha256())
            for own, said in zip(rows, labels, strict=True)
        ]


def _labels(drawn: Vectors, right: Tensor) -> list[list[ProbedLabel]]:
    """By member: what there is to be read, and what is had of it without a probe, given [k, m] what is answered
    rightly."""
    found = [list[ProbedLabel]() for _ in right]
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


def _groups(sites: Sequence[str], models: Sequence[Model], drawn: Vectors) -> list[Sequence[str]]:
    """Sites whose vectors, none wider than an MLP's, fit into memory together."""
    width = MLP_RATIO * (models[0].width or FOREIGN_WIDTH)
    each = len(models) * drawn.positions.numel() * width * torch.float32.itemsize
    size = max(1, VECTOR_BYTES // each)
    return [sites[start : start + size] for start in range(0, len(sites), size)]


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
        ends = (of(LOW), of(HIGH))
        return Probes(sites, boundaries, tuple(labels), accuracy, readable, *controls, *ends)


def _read_as(drawn: Vectors, seed: int) -> dict[tuple[str, str], Tensor]:
    """Every set of labels that is read, by the kind of number it gives and its name: the labels and their controls."""
    found: dict[tuple[str, str], Tensor] = {}
    for name, label in drawn.labels.items():
        tokens, positions = drawn.batch.tokens, drawn.positions
        found["accuracy", name] = label
        found[SHUFFLED, name] = shuffled(label, stream(seed, SHUFFLED, name))
        found[CONTROL, name] = control_labels(tokens, positions, label, stream(seed, CONTROL, name))
    return found


class _Looking:
    """Fits the probes of one site after another and writes down what they tell."""

    def __init__(
        self, drawn: Vectors, read_as: dict[tuple[str, str], Tensor], device: torch.device, rows: list[_Rows]
    ) -> None:
        self.names, self.rows, self.parts = list(drawn.labels), rows, drawn.parts.to(device)
        self.read_as = {key: label.to(device) for key, label in read_as.items()}
        judged = {positions: scored[drawn.parts.judge] for positions, scored in _subsets(drawn)}
        self.subsets = {positions: scored.to(device) for positions, scored in judged.items()}
        documents = torch.arange(len(drawn.positions)).repeat_interleave(drawn.positions.shape[1])
        self.documents = documents[drawn.parts.judge].to(device)

    def probe_untrained(self, x: Tensor) -> None:
        """The labels read at one site of networks nobody trained, [k, m, d]."""
        labels = {(UNTRAINED, name): self.read_as["accuracy", name] for name in self.names}
        self._note(fit_probes(self._moments(x), labels, self.parts), labels)

    def probe(self, x: Tensor, crosscheck: bool) -> None:
        """All probes of one site of the trained models, [k, m, d]."""
        for own, finite in zip(self.rows, x.isfinite().flatten(1).all(1).tolist(), strict=True):
            own.finite = own.finite and finite
        found = self._moments(x)
        probes = fit_probes(found, self.read_as, self.parts)
        self._note(probes, self.read_as)
        checks: list[float | None] = [None] * len(self.rows)
        if crosscheck and ANSWER in self.names:
            checks = [*logistic_accuracy(found, self.read_as["accuracy", ANSWER], self.parts).tolist()]
        for positions in self.subsets:
            for name in self.names:
                checked = name == ANSWER and positions == "every"
                chosen = probes["accuracy", name].penalty.tolist()
                for own, check, penalty in zip(self.rows, checks, chosen, strict=True):
                    own.add(LOGISTIC, name, positions, check if checked else None)
                    own.add(PENALTY, name, positions, penalty)

    def _moments(self, x: Tensor) -> Moments:
        # In double precision where that is quick, and where single precision may mean fewer digits.
        return moments(torch.nan_to_num(x if x.device.type == "cpu" else x.double(), 0.0, 0.0, 0.0), self.parts)

    def _note(self, probes: dict[tuple[str, str], Probe], labels: dict[tuple[str, str], Tensor]) -> None:
        """How well each probe tells its labels, over each set of positions."""
        for positions, here in self.subsets.items():
            for (kind, name), probe in probes.items():
                judged = labels[kind, name][self.parts.judge][here]
                shares = balanced_share(probe.right[:, here], judged).tolist()
                for own, share in zip(self.rows, shares, strict=True):
                    own.add(kind, name, positions, share)
                if kind == "accuracy":
                    values = balanced_by_document(probe.right[:, here], judged, self.documents[here])
                    for own, found in zip(self.rows, likelihood_estimates(values.cpu()), strict=True):
                        own.add(LOW, name, positions, found.low)
                        own.add(HIGH, name, positions, found.high)
