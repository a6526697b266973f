"""Finished runs as they lie on disk. Every file is checked against its hash when it is read; no model is needed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mixerscope.artifacts import (
    Artifact,
    Curve,
    Emergence,
    Frames,
    Provenance,
    Record,
    Scores,
    SelfTest,
    StageOutcome,
    StageRecord,
    Status,
    Verdicts,
    Weights,
)
from mixerscope.artifacts.estimate import as_columns
from mixerscope.artifacts.state_verdict import StateVerdict
from mixerscope.errors import CorruptFile, UserError
from mixerscope.showing import Shown, counted
from mixerscope.spec import RunSpec, parse
from mixerscope.spec.labels import flat, labels, plain, varying
from mixerscope.store import RunFolder, Seal, StageFolder, find_runs

if TYPE_CHECKING:  # listing runs should not wait for torch
    from mixerscope.artifacts.effects import EffectTable
    from mixerscope.model import Model

A = TypeVar("A", bound=Artifact)


@dataclass(frozen=True, repr=False)
class StageResult(Shown):
    """One analysis of a trained model."""

    folder: StageFolder
    record: StageRecord
    outcome: StageOutcome
    seal: Seal

    def sentence(self) -> str:
        """One line for people."""
        why = f" ({self.outcome.reason})" if self.outcome.reason else ""
        return f"{self.record.sentence()}, {self.outcome.state}{why}"

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def id(self) -> str:
        return self.seal.id

    @staticmethod
    def of(folder: StageFolder) -> "StageResult":
        seal = folder.seal()
        record = folder.read_sealed(StageRecord, seal)
        if record.name.replace("/", "-") != folder.name:
            raise CorruptFile(f"{folder.path} is misnamed: it holds the stage {record.name!r}")
        return StageResult(folder, record, folder.read_sealed(StageOutcome, seal), seal)


class RunResult(Shown):
    """A finished run: a training, and the analyses of its model that were asked for."""

    def __init__(self, folder: RunFolder, asked: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.asked = asked
        """Stages by name: the ids of their analyses; None to take those that are there."""

    def sentence(self) -> str:
        """One line for people."""
        return f"{self.folder.path.name}, {self.status.outcome} after {self.status.steps} steps"

    def shown(self) -> Iterator[dict[str, Any]]:
        """The rows that a notebook shows."""
        yield {"": "training", "found": self.record.sentence()}
        yield {
            "": "model",
            "found": f"{self.status.parameters:,} parameters, state of {self.status.state_size:,} numbers",
        }
        for name, found in (("learning curve", self.curve), ("fresh documents", self.find(Scores))):
            if found is not None:
                yield {"": name, "found": found.sentence()}
        for verdict in self.find(Verdicts) or ():
            yield {"": f"verdict of the {verdict.slot}", "found": verdict.sentence()}
        if self.reason:
            yield {"": "not measured", "found": self.reason}

    @cached_property
    def record(self) -> Record:
        return self.folder.recorded(self.folder.seal())

    @property
    def run_id(self) -> str:
        return self.folder.seal().id

    @property
    def training(self) -> dict[str, Any]:
        """The training in full, as JSON; needs none of its components to be installed."""
        return self.record.spec

    @cached_property
    def spec(self) -> RunSpec:
        """The training and the stages as a spec, for which all components must be at hand."""
        stages = {name: stage.record.settings for name, stage in self.stages.items()}
        return self._parsed(stages)

    @property
    def task(self) -> Any:
        return self._parsed({}).task

    def _parsed(self, stages: Mapping[str, Any]) -> RunSpec:
        found: RunSpec = parse(RunSpec, {**self.training, "stages": dict(stages)})
        if found.run_id != self.run_id:
            raise UserError(f"{self.folder.path} was made by other code: {_difference(self.record.identity, found)}")
        return found

    @cached_property
    def stages(self) -> dict[str, StageResult]:
        """The analyses, by the name of their stage."""
        if self.asked is not None:
            return {name: StageResult.of(self.folder.stage(name, id)) for name, id in self.asked.items()}
        return _chosen(self.folder)

    @cached_property
    def status(self) -> Status:
        return self.folder.read(Status)

    @cached_property
    def curve(self) -> Curve:
        """The learning curve."""
        return self.folder.read(Curve)

    @cached_property
    def provenance(self) -> Provenance:
        return self.folder.read(Provenance)

    def find(self, artifact: type[A]) -> A | None:
        """What some stage found, or None where none of them has it."""
        for stage in self.stages.values():
            if stage.folder.holds(artifact):
                return stage.folder.read(artifact)
        return None

    def read(self, artifact: type[A]) -> A:
        """What some stage found; where none of them has it, an error says why."""
        found = self.find(artifact)
        if found is None:
            reasons = dict.fromkeys(s.outcome.reason for s in self.stages.values() if s.outcome.reason)
            why = "; ".join(reasons) or f"its stages are {', '.join(self.stages) or 'none'}"
            raise UserError(f"{self.folder.path} has no {artifact.file}: {why}")
        return found

    @property
    def effects(self) -> "EffectTable":
        """What activation patching measured."""
        from mixerscope.artifacts.effects import EffectTable

        return self.read(EffectTable)

    @property
    def verdicts(self) -> Verdicts:
        return self.read(Verdicts)

    @cached_property
    def state_verdict(self) -> StateVerdict | None:
        """How its state is tracked; None where the task has none, or nobody asked."""
        return self.find(StateVerdict)

    @property
    def scores(self) -> Scores:
        """Accuracy, likelihood and the like on fresh documents."""
        return self.read(Scores)

    @property
    def self_test(self) -> SelfTest:
        return self.read(SelfTest)

    @property
    def emergence(self) -> Emergence:
        """The share of every role at the block boundaries during training."""
        if self.find(Emergence) is None:
            raise UserError("this run did not measure emergence; ask for it with --set stages.emergence.looks=12")
        return self.read(Emergence)

    @property
    def reason(self) -> str:
        """Why something that was asked for is not there; empty where all is."""
        return next((s.outcome.reason for s in self.stages.values() if s.outcome.state == "impossible"), "")

    def model(self) -> "Model":
        """The trained model, in single precision whatever it was trained in."""
        from mixerscope.model import trained_models

        if not self.folder.holds(Weights):
            raise UserError(f"{self.folder.path} was made without keeping the weights, so there is no model to load")
        spec = self._parsed({})  # a model needs none of the stages' code
        return trained_models(spec.model, spec.task.vocab_size, [self.folder.read(Weights).tensors])[0]


class Runs(Frames, list[RunResult]):
    """Finished runs, in order: a list that is shown, and made a frame of, as a table."""

    def sentence(self) -> str:
        """One line for people."""
        names = ", ".join(dict.fromkeys(run.training["model"]["architecture"] for run in self))
        return f"{counted(len(self), 'run')}{f' of {names}' if names else ''}"

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row per run: the settings in which they differ, what became of it, and the first of its verdicts."""
        trainings = [run.training for run in self]
        differing = list(dict.fromkeys(path for settings in varying(trainings) for path in settings))
        for run, label in zip(self, labels(trainings), strict=True):
            scores, verdict = run.find(Scores), next(iter(run.find(Verdicts) or ()), None)
            settings, last, state = flat(run.training), run.curve.last, run.state_verdict
            yield {
                "model": label,
                "run_id": run.run_id,
                "task": settings["task.name"],
                "architecture": settings["model.architecture"],
                **{path: plain(settings.get(path)) for path in differing if path != "task.name"},
                "outcome": run.status.outcome,
                "steps": run.status.steps,
                "parameters": run.status.parameters,
                "state_size": run.status.state_size,
                "dev_accuracy": last.accuracy if last else None,
                **as_columns("accuracy", scores.accuracy if scores else None),
                **as_columns("likelihood", scores.likelihood if scores else None),
                "mechanism": verdict.mechanism if verdict else state.name if state else None,
                "route": " → ".join(verdict.route) if verdict else None,
                **as_columns("share", verdict.share if verdict else None),
                "reason": verdict.reason if verdict else state.reason if state else run.reason,
            }

    def shown(self) -> Iterator[dict[str, Any]]:
        """The rows that a notebook shows."""
        for row in self.rows():
            yield {name: row[name] for name in ("model", "task", "outcome", "steps", "accuracy", "mechanism", "route")}


def run_folder(spec: RunSpec, root: Path) -> RunFolder:
    return RunFolder(root / f"{spec.model.architecture.replace('/', '-')}-{spec.run_id}")


def load_run(path: str | Path, stages: RunSpec | Mapping[str, str] | None = None) -> RunResult:
    """A finished run from its folder; with `stages`, the analyses of these ids, or those that a spec asks for."""
    folder = RunFolder(Path(path))
    folder.seal()
    if isinstance(stages, RunSpec):
        result = RunResult(folder, {name: stages.stage_id(name) for name in stages.stages})
        result.__dict__["spec"] = stages
        return result
    return RunResult(folder, None if stages is None else _with_needs(folder, stages))


def load_runs(root: str | Path, damaged: list[str] | None = None) -> Runs:
    """The finished runs in a folder, by name.

    A damaged one is an error; with a list as `damaged` what is wrong with it is added there and it is left out, for
    which every file is checked.
    """
    if damaged is None:
        return Runs(load_run(folder.path) for folder in find_runs(Path(root)))
    found = Runs()
    for folder in find_runs(Path(root), damaged):
        try:
            folder.verify()
            found.append(_whole(load_run(folder.path)))
        except CorruptFile as error:
            damaged.append(str(error))
    if not found:
        raise CorruptFile("; ".join(damaged))
    return found


def _whole(result: RunResult) -> RunResult:
    """The run, if all that says what it holds makes sense."""
    _ = result.record, result.status, result.curve, result.provenance, result.stages
    return result


def _with_needs(folder: RunFolder, stages: Mapping[str, str]) -> dict[str, str]:
    """The analyses that were asked for, and those that they read."""
    found: dict[str, str] = {}
    for name, id in stages.items():
        needs = StageResult.of(folder.stage(name, id)).record.needs
        found |= {**_with_needs(folder, needs), name: id}
    return found


def _chosen(folder: RunFolder) -> dict[str, StageResult]:
    """One analysis for each stage: the one with default settings, else the one that was made last."""
    found = [StageResult.of(stage) for stage in folder.stages()]
    chosen: dict[str, StageResult] = {}
    waiting = list(dict.fromkeys(stage.name for stage in found))
    while waiting:
        ready = [
            name for name in waiting if not any(n in waiting for s in found if s.name == name for n in s.record.needs)
        ]
        if not ready:
            raise CorruptFile(f"{folder.path} holds stages that need each other: {', '.join(waiting)}")
        for name in ready:
            waiting.remove(name)
            fitting = [s for s in found if s.name == name and _fits(s, chosen)]
            if fitting:
                chosen[name] = _one(fitting)
    return chosen


def _fits(stage: StageResult, chosen: Mapping[str, StageResult]) -> bool:
    return all(need in chosen and chosen[need].id == id for need, id in stage.record.needs.items())


def _one(stages: list[StageResult]) -> StageResult:
    """The one with default settings, else the one that was made last."""
    if len(stages) == 1:
        return stages[0]
    usual = [stage for stage in stages if not stage.record.identity["settings"]]
    return max(usual or stages, key=lambda stage: ((stage.folder.path / Seal.file).stat().st_mtime_ns, stage.id))


def _difference(stored: Mapping[str, Any], spec: RunSpec) -> str:
    """What differs between the code that made a run and the code at hand, in words."""
    differing = [part for part, value in spec.identity.items() if stored.get(part) != value]
    return f"{', '.join(differing) or 'something'} is not what it was; edit it back, or run again to make a new run"
