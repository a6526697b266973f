"""A run, from spec to folder: train, evaluate, intervene, judge. The only place where compute meets disk."""

import copy
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from mixerscope import kernels
from mixerscope.analysis import cell_rows, mean_estimate, observe, proportion_estimate, verdict
from mixerscope.errors import SelfTestFailed, UserError
from mixerscope.interventions import Grid, Pairs, grids_or_failures, make_pairs, plan_grid
from mixerscope.machine import CPU, Machine, matmuls, torch_threads
from mixerscope.model import Model, build_model, load_weights, parameter_count
from mixerscope.provenance import provenance
from mixerscope.randomness import stream
from mixerscope.spec import RunSpec, parse
from mixerscope.store import (
    RunFolder,
    read_json,
    read_jsonl,
    read_tensors,
    write_json,
    write_jsonl,
    write_tensors,
)
from mixerscope.tasks import Task
from mixerscope.training import Member, Observer, check_stackable, log_spaced, train_cohort

Progress = Callable[[str, int, int, str], None]
"""Called with the stage ('train' or 'intervene'), the work done, the work in all, and a note such as the accuracy."""

WEIGHTS = "weights.safetensors"


@dataclass(frozen=True)
class RunResult:
    """A finished run as it lies on disk. Tables are lists of rows; every file is checked against its hash when read."""

    folder: RunFolder
    spec: RunSpec

    @property
    def task(self) -> Task:
        return self.spec.task

    def model(self) -> Model:
        """The trained model, in single precision whatever it was trained in."""
        if not self.folder.holds(WEIGHTS):
            raise UserError(f"{self.folder.path} was made without keeping the weights, so there is no model to load")
        model = build_model(self.spec.model, self.task.vocab_size, self.spec.seed)
        load_weights(model, read_tensors(self.folder.checked(WEIGHTS)))
        return model.eval()

    def json(self, name: str) -> dict[str, Any]:
        """One of 'status', 'evaluation', 'verdicts', 'self_test', 'provenance'."""
        return read_json(self.folder.checked(f"{name}.json"))

    def cells(self) -> list[dict[str, Any]]:
        """The intervention table."""
        return read_jsonl(self.folder.checked("cells.jsonl"))

    def curve(self) -> list[dict[str, Any]]:
        """The learning curve: a row per evaluation."""
        return read_jsonl(self.folder.checked("curve.jsonl"))

    def emergence(self) -> list[dict[str, Any]]:
        """The share of every role at the block boundaries during training, where the spec asked for it."""
        if not self.spec.interventions.emergence:
            raise UserError("this run did not measure emergence; set interventions.emergence to a number of steps")
        return read_jsonl(self.folder.checked("emergence.jsonl"))

    def predictions(self) -> dict[str, Tensor]:
        """Per test document: likelihood, accuracy and logit of the answer, and the same with each slot corrupted."""
        return read_tensors(self.folder.checked("predictions.safetensors"))


def run_folder(spec: RunSpec, root: Path) -> RunFolder:
    return RunFolder(root / f"{spec.model.architecture.replace('/', '-')}-{spec.run_id}")


def load_run(path: str | Path) -> RunResult:
    """A finished run from its folder."""
    folder = RunFolder(Path(path))
    return RunResult(folder, parse(RunSpec, read_json(folder.checked("spec.json"))))


def run(
    spec: RunSpec,
    root: str | Path,
    progress: Progress | None = None,
    fresh: bool = False,
    machine: Machine = CPU,
) -> RunResult:
    """The finished run of a spec below `root`: loaded if it is there, made if it is not."""
    return run_cohort([spec], root, progress, machine, fresh=fresh)[0]


def run_cohort(
    specs: Sequence[RunSpec],
    root: str | Path,
    progress: Progress | None = None,
    machine: Machine = CPU,
    keep_weights: bool = True,
    fresh: bool = False,
) -> list[RunResult]:
    """The finished runs of specs that can be stacked, in their order; those that are not there are made, all at once.

    Each run gets the folder it would get alone. A member with a site that fails the self-test gets none, and the error
    is raised once all others have theirs. Without `keep_weights` the folders hold every table but no weights.
    """
    check_stackable(list(specs))
    check_runnable(specs[0])  # the others differ in what decides nothing here
    folders = [run_folder(spec, Path(root)) for spec in specs]
    missing = {
        folder.path: (spec, folder) for spec, folder in zip(specs, folders, strict=True) if fresh or not folder.finished
    }
    if missing:
        # Interventions too: beside a cohort that trains in TF32 they could not be computed in any other precision.
        precision = specs[0].train.precision
        with torch_threads(machine.threads), matmuls(precision), kernels.switched(machine.kernels):
            _Making(list(missing.values()), progress, machine).make(keep_weights)
    return [load_run(folder.path) for folder in folders]


class _Making:
    """Some runs in the making: trained as one cohort, taken apart together, each written to its own folder."""

    def __init__(self, missing: list[tuple[RunSpec, RunFolder]], progress: Progress | None, machine: Machine) -> None:
        self.specs, self.folders = [spec for spec, _ in missing], [folder for _, folder in missing]
        self.first = self.specs[0]  # speaks for all where they do not differ
        self.progress, self.machine = progress, machine
        self.pairs = make_pairs(self.first.task, self.first.interventions, self.first.data_seed)
        self.roles = list(dict.fromkeys([*self.pairs.original.roles, *self.first.interventions.also_at]))
        for role in self.roles:
            self.pairs.places(role)  # before anything is written: it may refuse

    def make(self, keep_weights: bool) -> None:
        for spec, folder in zip(self.specs, self.folders, strict=True):
            folder.begin()
            write_json(folder.path / "spec.json", spec.model_dump(mode="json"))
        started = time.perf_counter()
        emergence = _Emergence(self.first, self.pairs, self.machine) if self.first.interventions.emergence else None
        members = train_cohort(self.specs, self._training, emergence.observer() if emergence else None, self.machine)
        if emergence is not None:
            emergence.finish(members)
        self._write_training(members, emergence, keep_weights)
        trained = time.perf_counter()
        failures = self._intervene(members)
        now = time.perf_counter()
        shared = {"models": len(members), "intervene_seconds": now - trained, "total_seconds": now - started}
        for index, (folder, member) in enumerate(zip(self.folders, members, strict=True)):
            if index not in failures:
                write_json(folder.path / "timing.json", {**_training_times(member), **shared, "finished": time.time()})
                folder.seal()
        for index, failure in failures.items():
            raise SelfTestFailed(f"{self.folders[index].path.name}: {failure}") from failure

    def _training(self, done: int, members: list[Member]) -> None:
        if self.progress is not None:
            accuracy = max((member.history[-1].accuracy for member in members if member.history), default=0.0)
            note = f"accuracy {accuracy:.1%}" if len(members) == 1 else f"best accuracy {accuracy:.1%}"
            self.progress("train", done, self.first.train.steps, note)

    def _intervening(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress("intervene", done, total, "")

    def _write_training(self, members: list[Member], emergence: "_Emergence | None", keep_weights: bool) -> None:
        shared = {
            **provenance(self.machine),
            "precision": self.first.train.precision,
            "interventions_precision": "tf32" if self.first.train.precision == "tf32" else "float32",
            "repeatable": self.machine.repeatable,
            "data_sha256": members[0].data_sha256,
            "pairs_sha256": self.pairs.sha256(),
        }
        if self.machine.device == "cuda":
            shared["kernels_used"] = kernels.used()  # by all cohorts of this process so far
        for index, (folder, member) in enumerate(zip(self.folders, members, strict=True)):
            write_jsonl(folder.path / "curve.jsonl", (asdict(point) for point in member.history))
            write_json(folder.path / "status.json", {"outcome": member.outcome, "steps": member.steps})
            # Results may depend on the size of the stack in their last bits.
            write_json(folder.path / "provenance.json", {**shared, "stack": member.stack_size})
            if keep_weights:
                write_tensors(folder.path / WEIGHTS, member.weights)
            if emergence is not None:
                write_jsonl(folder.path / "emergence.jsonl", emergence.rows[index])

    def _intervene(self, members: list[Member]) -> dict[int, SelfTestFailed]:
        """Measures and judges all members that did not diverge; gives those that cannot be measured, and why."""
        sound = [index for index, member in enumerate(members) if member.outcome != "diverged"]
        models = trained_models(self.first, [members[index].weights for index in sound], self.machine)
        plan = plan_grid(models[0], self.pairs, roles=self.roles) if models else None
        batch = self.first.interventions.batch_documents
        found = grids_or_failures(models, self.pairs, plan, batch, self._intervening)
        failures: dict[int, SelfTestFailed] = {}
        for index, model, grid in zip(sound, models, found, strict=True):
            if isinstance(grid, SelfTestFailed):
                failures[index] = grid
            else:
                _write_interventions(self.folders[index], model, grid)
        return failures


class _Emergence:
    """Measures the routes of all members during training, where the spec asks for it and wherever training ends."""

    def __init__(self, spec: RunSpec, pairs: Pairs, machine: Machine) -> None:
        self.spec, self.pairs, self.machine = spec, pairs, machine
        self.rows: dict[int, list[dict[str, Any]]] = defaultdict(list)

    def observer(self) -> Observer:
        return Observer(log_spaced(self.spec.interventions.emergence, self.spec.train.steps), self._measure)

    def _measure(self, step: int, weights: Mapping[int, dict[str, Tensor]]) -> None:
        models = trained_models(self.spec, list(weights.values()), self.machine)
        found = observe(step, models, self.pairs, self.spec.interventions.batch_documents)
        for index, rows in zip(weights, found, strict=True):
            self.rows[index] += rows

    def finish(self, members: list[Member]) -> None:
        ended: dict[int, dict[int, dict[str, Tensor]]] = defaultdict(dict)
        for index, member in enumerate(members):
            if member.steps not in {row["step"] for row in self.rows[index]}:
                ended[member.steps][index] = member.weights
        for step, weights in ended.items():
            self._measure(step, weights)


def _training_times(member: Member) -> dict[str, float]:
    """Of the stack the member was in; building is part of training."""
    return {
        "build_seconds": member.build_seconds,
        "train_seconds": member.build_seconds + member.train_seconds,
        "steps_per_second": member.stack_steps / member.train_seconds,
    }


def trained_models(spec: RunSpec, weights: Sequence[Mapping[str, Tensor]], machine: Machine) -> list[Model]:
    """Models of one shape with these weights, where they will be taken apart."""
    models: list[Model] = []
    for one in weights:
        # Initialising takes longer than copying, and what it gives is overwritten.
        models.append(copy.deepcopy(models[0]) if models else build_model(spec.model, spec.task.vocab_size, spec.seed))
        load_weights(models[-1], one)
    return [model.to(machine.device) for model in models]


def check_runnable(spec: RunSpec) -> None:
    """Refuses what could only fail after training."""
    known = set(spec.task.slots)
    for slot in spec.interventions.slots:
        if slot not in known:
            raise UserError(f"interventions.slots: this task has no slot {slot!r}, only {', '.join(sorted(known))}")
    if spec.model.positions == "learned" and spec.task.max_length > spec.model.max_length:
        raise UserError(
            f"documents of {spec.task.max_length} tokens do not fit model.max_length = {spec.model.max_length}"
        )
    build_model(spec.model, spec.task.vocab_size, spec.seed)
    for task, split in ((spec.task, "train"), (spec.task.single_query(), "dev")):
        task.sample(1, stream(spec.data_seed, "check"), split)


def _write_interventions(folder: RunFolder, model: Model, grid: Grid) -> None:
    unedited = {"original": grid.original, **{f"corrupted.{slot}": e for slot, e in grid.corrupted.items()}}
    predictions = {
        f"{name}.{metric}": values for name, effects in unedited.items() for metric, values in vars(effects).items()
    }
    write_tensors(folder.path / "predictions.safetensors", predictions)
    evaluation = {
        name: asdict((proportion_estimate if name.endswith(".accuracy") else mean_estimate)(values))
        for name, values in predictions.items()
    }
    write_json(
        folder.path / "evaluation.json",
        {"parameters": parameter_count(model), "estimates": evaluation},
    )
    write_jsonl(folder.path / "cells.jsonl", cell_rows(grid))
    verdicts = {slot: verdict(grid, model, slot).to_json() for slot in grid.corrupted}
    write_json(folder.path / "verdicts.json", verdicts)
    write_json(folder.path / "self_test.json", grid.self_test.to_json())
