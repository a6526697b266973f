"""Everything the page says, gathered from the run folders. Each file is read once, and checked against its hash.

Only what was stored is used: no model is built and no component's class is needed, so a run whose code is not at hand
is shown like any other.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from mixerscope.artifacts import (
    Curve,
    Emergence,
    Estimate,
    Patterns,
    Provenance,
    Scores,
    SelfTest,
    Status,
    Verdict,
    Verdicts,
)
from mixerscope.artifacts.effects import EffectTable, Facts
from mixerscope.artifacts.proof import Proof
from mixerscope.registry import TASKS
from mixerscope.report.example import Example, example_of, known_spec
from mixerscope.report.flow import Lane, lanes_of
from mixerscope.report.grids import Grid, Printed, first_documents, grids_of, printed_of
from mixerscope.report.tracking import ALL_ANSWERS, LAST_ANSWER, Tracked, tracked_of
from mixerscope.results import RunResult
from mixerscope.spec import canonical_json, digest
from mixerscope.spec.labels import labels, varying

DIVERGED = "diverged"
UNPATCHED = "cannot be patched"
UNJUDGED = "not judged"
"""What stands in the place of a mechanism where there is no verdict."""
WITHIN_A_LINE = ("model.width", "train.lr", "seed")
"""Settings that may differ between the runs of one series, the line of a chart."""


@dataclass(frozen=True)
class ModelResult:
    """One run as the page shows it. What was not measured is None, and `reason` says why."""

    run: RunResult
    run_id: str
    label: str
    """The architecture and the settings in which the runs of this task differ."""
    setting: str
    """The same without the seed: what seeds are seeds of."""
    series: str
    """The same without width, learning rate and seed."""
    differs: Mapping[str, Any]
    """Those settings by their paths, and their values."""
    seeds: int
    """Runs here that differ from this one in nothing but the seed, itself included."""
    status: Status
    curve: Curve
    provenance: Provenance
    scores: Scores | None
    facts: Facts | None
    """Of the documents and the model, where it was patched."""
    grids: Mapping[str, Grid]
    """By patched slot."""
    printed: Mapping[str, Printed]
    first: Mapping[str, Sequence[float]]
    """What the model made of the first documents."""
    lanes: tuple[Lane, ...]
    verdicts: tuple[Verdict, ...]
    self_test: SelfTest | None
    emergence: Emergence | None
    patterns: Patterns | None
    tracked: Tracked | None
    """Of a task that tracks a state."""
    reason: str
    guessed: float | None = None
    """What guessing gets by the task's code, for runs that did not keep it."""

    @property
    def training(self) -> dict[str, Any]:
        return self.run.training

    @property
    def architecture(self) -> str:
        return self.training["model"]["architecture"]

    @property
    def width(self) -> int:
        return self.training["model"]["width"]

    @property
    def verdict(self) -> Verdict | None:
        """The one that headlines speak of: of the first slot that was corrupted."""
        return self.verdicts[0] if self.verdicts else None

    @property
    def mechanism(self) -> str:
        """What the verdict says, or why there is none."""
        if self.verdict:
            return self.verdict.mechanism
        if self.tracked and self.tracked.verdict:
            return self.tracked.verdict.name
        if self.status.outcome == "diverged":
            return DIVERGED
        return UNPATCHED if self.reason else UNJUDGED

    @property
    def accuracy(self) -> Estimate | None:
        """On fresh documents; `answers` says of which answers."""
        if self.tracked and self.tracked.accuracy:
            return self.tracked.accuracy
        if self.scores:
            return self.scores.accuracy
        return self.verdict.accuracy if self.verdict else None

    @property
    def answers(self) -> str:
        """What the accuracy is called: training and patching ask for the last answer of a document alone, which only
        where a state is tracked is one of many."""
        if self.tracked is None:
            return "accuracy"
        return ALL_ANSWERS if self.tracked.accuracy else LAST_ANSWER

    @property
    def last_answer(self) -> Estimate | None:
        """Of a tracked state, beside the accuracy over all answers."""
        return self.tracked.last if self.tracked else None

    @property
    def likelihood(self) -> Estimate | None:
        return self.scores.likelihood if self.scores else None

    @property
    def dev_accuracy(self) -> float | None:
        """At the last evaluation of training; all there is of a run that diverged."""
        return self.curve.last.accuracy if self.curve.last else None

    @property
    def any_accuracy(self) -> float | None:
        """On fresh documents, or else on the dev set."""
        return self.accuracy.value if self.accuracy else self.dev_accuracy

    @cached_property
    def rules(self) -> dict[str, Any]:
        """Thresholds by which the verdicts were reached; none where nothing was judged."""
        return _rules(self.run) if self.verdicts else {}

    @property
    def guessing(self) -> float | None:
        """The accuracy that is had without solving the task; None where nobody knows."""
        kept = self.facts.guessing if self.facts else self.tracked.guessing if self.tracked else None
        return self.guessed if kept is None else kept

    @cached_property
    def glosses(self) -> dict[str, str]:
        """Mechanisms of the task that have a name, in plain words."""
        named = self.facts.mechanisms if self.facts else ()
        return {mechanism.name: mechanism.meaning for mechanism in named if mechanism.meaning}

    @cached_property
    def shares(self) -> dict[str, list[dict[str, Any]]]:
        """By patched slot: the cells of its grid, a row each."""
        return {slot: list(grid.rows()) for slot, grid in self.grids.items()}

    @cached_property
    def notes(self) -> list[str]:
        """What a reader should know of how it was measured."""
        return [note for stage in self.run.stages.values() for note in stage.outcome.notes]


@dataclass(frozen=True)
class TaskGroup:
    """The runs on one task."""

    name: str
    summary: str
    """Empty for a task whose code is not at hand."""
    fields: dict[str, Any]
    """Those that differ from the task's defaults."""
    models: tuple[ModelResult, ...]
    example: Example | None
    which: str = ""
    """Of a task that is many, such as words over any group, which one it was."""

    @property
    def title(self) -> str:
        return f"{self.name} {self.which}" if self.which else self.name

    @property
    def settings(self) -> dict[str, Any]:
        """What a reader should know of it: where a state is tracked, whatever is not off, at its default or not."""
        if not any(model.tracked for model in self.models):
            return self.fields
        task = self.models[0].training["task"]
        return {name: value for name, value in task.items() if name != "name" and value not in (None, False, 0)}


def gather(runs: Iterable[RunResult]) -> list[TaskGroup]:
    """Finished runs by task, by architecture and then by what tells runs of one architecture apart."""
    by_task: dict[str, list[RunResult]] = defaultdict(list)
    for run in sorted(runs, key=_order):
        # By identity: a task whose code was edited is another task, though its settings are the same.
        by_task[canonical_json(run.record.identity["task"])].append(run)
    return [_group(group) for group in by_task.values()]


def _order(run: RunResult) -> tuple[Any, ...]:
    model, train = run.training["model"], run.training["train"]
    size = (model["architecture"], model["width"], model["layers"], canonical_json(model["options"]), train["steps"])
    return (*size, train["lr"], run.training["data_seed"], run.training["seed"], run.run_id)


def _group(runs: Sequence[RunResult]) -> TaskGroup:
    trainings = [run.training for run in runs]
    task = runs[0].record.identity["task"]
    summary = next((entry.summary for entry in TASKS.entries() if entry.name == task["name"]), "")
    ids = [run.run_id for run in runs]
    names = _told_apart(labels(trainings), ids)
    codes = [f"({_code(run)})" for run in runs]
    settings = _told_apart(labels(trainings, leave_out=("seed",)), codes)
    lines = _told_apart(labels(trainings, leave_out=WITHIN_A_LINE), codes)
    alike = [canonical_json({k: v for k, v in run.record.identity.items() if k != "seed"}) for run in runs]
    seeds = Counter(alike)
    models = tuple(
        _model(run, id, (name, setting, line), differs, seeds[key])
        for run, id, name, setting, line, differs, key in zip(
            runs, ids, names, settings, lines, varying(trainings), alike, strict=True
        )
    )
    if any(model.guessing is None for model in models):
        models = tuple(replace(model, guessed=guess) for guess in [_guessed(runs)] for model in models)
    which = trainings[0]["task"].get(task["name"], "")  # the setting that has the task's own name
    summary = summary.partition(":")[0] if which else summary  # and not all that it could have been
    return TaskGroup(task["name"], summary, task["settings"], models, example_of(models), which)


def _guessed(runs: Sequence[RunResult]) -> float | None:
    """Accuracy without solving the task; None where its code is not at hand, or is not what it was."""
    spec = next((spec for run in runs if (spec := known_spec(run)) is not None), None)
    try:
        return spec.task.guessing() if spec else None
    except Exception:  # noqa: BLE001 - someone's task may fail in ways of its own, and its runs are shown all the same
        return None


def _told_apart(names: Sequence[str], marks: Sequence[str]) -> list[str]:
    """The names, with the mark behind those that stand for several marks: the same settings in other code."""
    meant: dict[str, set[str]] = defaultdict(set)
    for name, mark in zip(names, marks, strict=True):
        meant[name].add(mark)
    return [f"{name} {mark}" if len(meant[name]) > 1 else name for name, mark in zip(names, marks, strict=True)]


def _code(run: RunResult) -> str:
    """Short for the code of a model and its training: revisions, and the sources of components from elsewhere."""
    identity = run.record.identity
    model = identity["model"]
    architecture = {key: value for key, value in model["architecture"].items() if key != "settings"}
    train = identity["train"]
    parts = [model["revision"], architecture, model["mixers"], train["revision"], train["settings"].get("objective")]
    return f"code {digest(parts)[:6]}"


def _rules(run: RunResult) -> dict[str, Any]:
    judge = run.stages.get("judge")
    return judge.record.settings.get("rules", {}) if judge else {}


def _model(run: RunResult, id: str, names: tuple[str, str, str], differs: Mapping[str, Any], seeds: int) -> ModelResult:
    label, setting, series = names
    found = run.find(Verdicts)
    verdicts = found.verdicts if found else ()
    table = run.find(EffectTable)
    facts = table.facts if table else None
    return ModelResult(
        run=run,
        run_id=id,
        label=label,
        setting=setting,
        series=series,
        differs=differs,
        seeds=seeds,
        status=run.status,
        curve=run.curve,
        provenance=run.provenance,
        scores=run.find(Scores),
        facts=facts,
        grids=grids_of(table, {verdict.slot: _places(verdict) for verdict in verdicts}) if table else {},
        printed=printed_of(table) if table else {},
        first=first_documents(table) if table else {},
        lanes=tuple(lanes_of(facts, verdicts, run.find(Proof), _rules(run))) if facts else (),
        verdicts=verdicts,
        self_test=run.find(SelfTest),
        emergence=run.find(Emergence),
        patterns=run.find(Patterns),
        tracked=tracked_of(run),
        reason=run.reason,
    )


def _places(verdict: Verdict) -> set[str]:
    """Where a verdict says that the information stands."""
    carriers = {boundary.carrier for boundary in verdict.boundaries if boundary.carrier}
    return carriers | {move.target for move in verdict.moves}
