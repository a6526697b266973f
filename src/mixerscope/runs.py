"""A run, from spec to folder: train, evaluate, intervene, judge. The only place where compute meets disk."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from mixerscope.analysis import cell_rows, mean_estimate, observe, proportion_estimate, verdict
from mixerscope.errors import UserError
from mixerscope.interventions import Grid, Pairs, interchange, make_pairs
from mixerscope.machine import CPU, Machine, torch_threads
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
from mixerscope.training import Member, Observer, log_spaced, train_cohort

Progress = Callable[[str, int, int, str], None]
"""Called with the stage ('train' or 'intervene'), the work done, the work in all, and a note such as the accuracy."""


@dataclass(frozen=True)
class RunResult:
    """A finished run as it lies on disk. Tables are lists of rows; every file is checked against its hash when read."""

    folder: RunFolder
    spec: RunSpec

    @property
    def task(self) -> Task:
        return self.spec.task

    def model(self) -> Model:
        """The trained model."""
        model = build_model(self.spec.model, self.task.vocab_size, self.spec.seed)
        load_weights(model, read_tensors(self.folder.checked("weights.safetensors")))
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
    check_runnable(spec)
    folder = run_folder(spec, Path(root))
    if folder.finished and not fresh:
        return load_run(folder.path)
    with torch_threads(machine.threads):
        _make(spec, folder, progress, machine)
    return load_run(folder.path)


def _make(spec: RunSpec, folder: RunFolder, progress: Progress | None, machine: Machine) -> None:
    pairs = make_pairs(spec.task, spec.interventions, spec.data_seed)  # before anything is written: it may refuse
    folder.begin()
    write_json(folder.path / "spec.json", spec.model_dump(mode="json"))
    started = time.perf_counter()

    def training(done: int, members: list[Member]) -> None:
        if progress is not None:
            latest = members[0].history[-1]
            progress("train", done, spec.train.steps, f"accuracy {latest.accuracy:.1%}")

    def intervening(done: int, total: int) -> None:
        if progress is not None:
            progress("intervene", done, total, "")

    emergence = _Emergence(spec, pairs) if spec.interventions.emergence else None
    [member] = train_cohort([spec], training, emergence.observer() if emergence else None, machine)
    trained = time.perf_counter()
    _write_training(folder, member)
    if emergence is not None:
        emergence.finish(folder, member)
    hashes = {"data_sha256": member.data_sha256, "pairs_sha256": pairs.sha256()}
    write_json(folder.path / "provenance.json", {**provenance(machine), **hashes})
    if member.outcome != "diverged":
        model = build_model(spec.model, spec.task.vocab_size, spec.seed)
        load_weights(model, member.weights)
        grid = interchange(model, pairs, batch_documents=spec.interventions.batch_documents, progress=intervening)
        _write_interventions(folder, model, grid)
    write_json(
        folder.path / "timing.json",
        {"train_seconds": trained - started, "total_seconds": time.perf_counter() - started, "finished": time.time()},
    )
    folder.seal()


class _Emergence:
    """Measures the route during training, at the steps the spec asks for and wherever training ends."""

    def __init__(self, spec: RunSpec, pairs: Pairs) -> None:
        self.spec, self.pairs = spec, pairs
        self.rows: list[dict[str, Any]] = []
        self.model = build_model(spec.model, spec.task.vocab_size, spec.seed)

    def observer(self) -> Observer:
        steps = log_spaced(self.spec.interventions.emergence, self.spec.train.steps)
        return Observer(steps, lambda done, members: self._measure(done, members[0]))

    def _measure(self, step: int, weights: dict[str, Tensor]) -> None:
        load_weights(self.model, weights)
        self.rows += observe(step, self.model, self.pairs, self.spec.interventions.batch_documents)

    def finish(self, folder: RunFolder, member: Member) -> None:
        if member.steps not in {row["step"] for row in self.rows}:
            self._measure(member.steps, member.weights)
        write_jsonl(folder.path / "emergence.jsonl", self.rows)


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


def _write_training(folder: RunFolder, member: Member) -> None:
    write_jsonl(folder.path / "curve.jsonl", (asdict(point) for point in member.history))
    write_tensors(folder.path / "weights.safetensors", member.weights)
    write_json(folder.path / "status.json", {"outcome": member.outcome, "steps": member.steps})


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
