"""Everything the page says, gathered from the run folders. Each file is checked against its hash when it is read."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mixerscope.analysis import Estimate, RouteMove
from mixerscope.interventions import make_pairs
from mixerscope.interventions.selftest import SelfTest, SiteTest
from mixerscope.model import build_model, parameter_count
from mixerscope.registry import TASKS
from mixerscope.runs import RunResult, load_run
from mixerscope.spec import canonical_json
from mixerscope.store import RunFolder

DIVERGED = "diverged"


@dataclass(frozen=True)
class SlotVerdict:
    """A verdict as it was stored."""

    slot: str
    mechanism: str
    route: tuple[str, ...]
    moves: tuple[RouteMove, ...]
    share: Estimate | None
    gap: Estimate
    boundaries: tuple[dict[str, Any], ...]
    reason: str

    @property
    def steps(self) -> list[tuple[str, RouteMove | None]]:
        """The route as drawn: each place, with the move that leaves it. Places inside a block are among them."""
        if not self.moves:
            return [(role, None) for role in self.route]
        return [*((move.source, move) for move in self.moves), (self.moves[-1].target, None)]


@dataclass(frozen=True)
class ModelResult:
    """One run as the page shows it. A diverged run has a curve and no measurements."""

    folder: str
    label: str
    run: RunResult
    outcome: str
    trained_steps: int
    parameters: int
    state_size: int
    """Numbers the model carries from one position to the next at the end of a measured document."""
    seeds: int
    """Runs here that differ from this one in nothing but the seed, itself included."""
    estimates: dict[str, Estimate]
    verdicts: tuple[SlotVerdict, ...]
    cells: list[dict[str, Any]]
    curve: list[dict[str, Any]]
    emergence: list[dict[str, Any]]
    """Shares at the block boundaries during training; empty where the run did not look."""
    self_test: SelfTest | None
    provenance: dict[str, Any]

    @property
    def architecture(self) -> str:
        return self.run.spec.model.architecture

    @property
    def run_id(self) -> str:
        return self.run.spec.run_id

    @property
    def verdict(self) -> SlotVerdict | None:
        """The one that headlines speak of: of the first slot that was corrupted."""
        return self.verdicts[0] if self.verdicts else None

    @property
    def mechanism(self) -> str:
        return self.verdict.mechanism if self.verdict else DIVERGED

    @property
    def accuracy(self) -> Estimate | None:
        return self.estimates.get("original.accuracy")

    @property
    def likelihood(self) -> Estimate | None:
        return self.estimates.get("original.likelihood")

    @cached_property
    def spec_json(self) -> dict[str, Any]:
        return self.run.spec.model_dump(mode="json")


@dataclass(frozen=True)
class Token:
    text: str
    roles: tuple[str, ...]
    """More than one where roles coincide: what follows the last pair is next key and divider."""
    changed: bool


@dataclass(frozen=True)
class Example:
    """One of the measured pairs: the document, its corrupted twins by slot, and what each model made of them."""

    tokens: tuple[Token, ...]
    twins: dict[str, tuple[Token, ...]]
    answer: str
    asked_at: int
    likelihoods: list[tuple[str, float, dict[str, float]]]
    """Model, likelihood of the answer, and the same in each twin."""


@dataclass(frozen=True)
class TaskGroup:
    """The runs on one task."""

    name: str
    summary: str
    fields: dict[str, Any]
    """Those that differ from the task's defaults."""
    models: tuple[ModelResult, ...]
    example: Example | None


def gather(folders: Sequence[RunFolder]) -> list[TaskGroup]:
    """Finished runs by task, by architecture and then by what tells runs of one architecture apart."""
    runs = sorted((load_run(folder.path) for folder in folders), key=_order)
    by_task: dict[str, list[RunResult]] = defaultdict(list)
    for run in runs:
        by_task[_task_key(run)].append(run)
    return [_group(group) for group in by_task.values()]


def _order(run: RunResult) -> tuple[Any, ...]:
    model, train = run.spec.model, run.spec.train
    size = (model.architecture, model.width, model.layers, train.steps, train.lr)
    return (*size, run.spec.data_seed, run.spec.seed, run.spec.run_id)


def _task_key(run: RunResult) -> str:
    return canonical_json(run.spec.model_dump(mode="json")["task"])


def _group(runs: list[RunResult]) -> TaskGroup:
    task = runs[0].task
    name = TASKS.name_of(type(task))
    fields = task.model_dump(mode="json", exclude_defaults=True)
    models = tuple(_model(run, label, _seeds(run, runs)) for run, label in zip(runs, labels(runs), strict=True))
    summary = next(entry.summary for entry in TASKS.entries() if entry.name == name)
    return TaskGroup(name, summary, fields, models, _example(models))


def labels(runs: Sequence[RunResult]) -> list[str]:
    """A name for each run: its architecture, and whatever else is needed to tell it from the others of that name."""
    found: list[str] = []
    for run in runs:
        peers = [peer for peer in runs if peer.spec.model.architecture == run.spec.model.architecture]
        facts = [_facts(peer) for peer in peers]
        told = [fact for i, fact in enumerate(_facts(run)) if len({other[i] for other in facts}) > 1]
        found.append(", ".join([run.spec.model.architecture, *told]))
    return [
        label if found.count(label) == 1 else f"{label}, {run.spec.run_id}"
        for run, label in zip(runs, found, strict=True)
    ]


def _facts(run: RunResult) -> list[str]:
    spec = run.spec
    return [
        f"d={spec.model.width}",
        f"{spec.model.layers} layers",
        f"{spec.train.steps} steps",
        f"lr {spec.train.lr:g}",
        f"seed {spec.seed}",
        f"data seed {spec.data_seed}",
    ]


def _seeds(run: RunResult, runs: Sequence[RunResult]) -> int:
    return sum(other.spec.changed(seed=0) == run.spec.changed(seed=0) for other in runs)


def _model(run: RunResult, label: str, seeds: int) -> ModelResult:
    status = run.json("status")
    measured = status["outcome"] != DIVERGED
    # Untrained weights are enough to count. (The meta device would save their memory and import half of torch.)
    model = build_model(run.spec.model, run.task.vocab_size, run.spec.seed)
    length = run.task.single_query().max_length
    return ModelResult(
        folder=run.folder.path.name,
        label=label,
        run=run,
        outcome=status["outcome"],
        trained_steps=status["steps"],
        parameters=parameter_count(model),
        state_size=sum(layer.mixer.state_size(length) for layer in model.layers()),
        seeds=seeds,
        estimates={n: Estimate(**e) for n, e in run.json("evaluation")["estimates"].items()} if measured else {},
        verdicts=tuple(_verdict(v) for v in run.json("verdicts").values()) if measured else (),
        cells=run.cells() if measured else [],
        curve=run.curve(),
        emergence=run.emergence() if run.spec.interventions.emergence else [],
        self_test=_self_test(run.json("self_test")) if measured else None,
        provenance=run.json("provenance"),
    )


def _self_test(stored: dict[str, Any]) -> SelfTest:
    return SelfTest(tuple(SiteTest(**site) for site in stored["sites"]), stored["documents"], stored["tolerance"])


def _verdict(stored: dict[str, Any]) -> SlotVerdict:
    return SlotVerdict(
        slot=stored["slot"],
        mechanism=stored["mechanism"],
        route=tuple(stored["route"]),
        moves=tuple(RouteMove(**{**move, "share": _estimate(move.get("share"))}) for move in stored["moves"]),
        share=_estimate(stored["share"]),
        gap=Estimate(**stored["gap"]),
        boundaries=tuple(stored["boundaries"]),
        reason=stored["reason"],
    )


def _estimate(stored: dict[str, Any] | None) -> Estimate | None:
    return None if stored is None else Estimate(**stored)


def _example(models: Sequence[ModelResult]) -> Example | None:
    """The first pair the first measured model saw; None if this code no longer makes the pairs that were measured."""
    measured = [model for model in models if model.verdicts]
    if not measured:
        return None
    spec = measured[0].run.spec
    pairs = make_pairs(spec.task, spec.interventions, spec.data_seed)
    digest = pairs.sha256()
    if measured[0].provenance["pairs_sha256"] != digest:
        return None
    task, batch = spec.task.single_query(), pairs.original
    roles: dict[int, list[str]] = defaultdict(list)
    for name, at in batch.roles.items():
        roles[int(at[0])].append(name)
    original = batch.tokens[0].tolist()

    def tokens(ids: list[int]) -> tuple[Token, ...]:
        return tuple(Token(task.symbol(t), tuple(roles[i]), t != original[i]) for i, t in enumerate(ids))

    read, answer = batch.answers()
    likelihoods: list[tuple[str, float, dict[str, float]]] = []
    for model in measured:
        if model.provenance["pairs_sha256"] == digest:
            found = {name: values[0].item() for name, values in model.run.predictions().items()}
            twins = {slot: found[f"corrupted.{slot}.likelihood"] for slot in pairs.corrupted}
            likelihoods.append((model.label, found["original.likelihood"], twins))
    return Example(
        tokens=tokens(original),
        twins={slot: tokens(twin.tokens[0].tolist()) for slot, twin in pairs.corrupted.items()},
        answer=task.symbol(int(answer[0])),
        asked_at=int(read[0]),
        likelihoods=likelihoods,
    )
