"""A run, from spec to folder: train a cohort, then each stage on it. The only place where compute meets disk.

Nothing here knows what a stage does: a stage gets trained models and gives artifacts, which are written and sealed.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from mixerscope import kernels
from mixerscope.artifacts import (
    Artifact,
    Curve,
    Provenance,
    Record,
    StageOutcome,
    StageRecord,
    Status,
    Timing,
    Weights,
)
from mixerscope.checkpoints import CohortCheckpoint
from mixerscope.errors import CorruptFile, UserError
from mixerscope.machine import CPU, Machine, matmuls, torch_threads
from mixerscope.model import Model, build_model, parameter_count, state_size, trained_models
from mixerscope.progress import Progress, told
from mixerscope.provenance import provenance
from mixerscope.results import RunResult, Runs, StageResult, load_run, run_folder
from mixerscope.runnable import check_runnable
from mixerscope.signals import refuse_signals
from mixerscope.spec import RunSpec, id_of, parse, read_by, stage_identity
from mixerscope.stages import Done, Impossible, Result, Stage, Trained
from mixerscope.stages.looking import Looking
from mixerscope.store import Locks, RunFolder, StageFolder, locked
from mixerscope.training import Member, check_stackable, train_cohort

A = TypeVar("A", bound=Artifact)
TRAINING = (Record, Status, Curve, Provenance, Weights)
"""What a training leaves, beside its times."""
ALWAYS = (StageRecord, StageOutcome, Provenance)
"""What every stage leaves beside its own."""


def run(
    spec: RunSpec | Mapping[str, Any],
    root: str | Path,
    progress: Progress | bool = True,
    fresh: bool = False,
    machine: Machine = CPU,
    wait: bool = True,
) -> RunResult:
    """The finished run of a spec below `root`: what is there is loaded, what is missing is made.

    `spec` may be a `RunSpec` or the same as a dict. How far it is, is told on stderr; `progress=False` keeps it quiet,
    a function is told in their place. `machine` says where it is computed: `Machine("cuda")`. A run that another
    process is making is waited for, unless `wait` is False. The result has `status`, `curve`, `scores`, `effects`,
    `verdicts`, `model()` and more:

        result = run(preset("small", "ar", "mamba"), "runs")
        print(result.verdicts["key"].sentence())
    """
    one: RunSpec = spec if isinstance(spec, RunSpec) else parse(RunSpec, spec)
    return run_cohort([one], root, progress, machine, fresh=fresh, wait=wait)[0]


def run_cohort(
    specs: Sequence[RunSpec],
    root: str | Path,
    progress: Progress | bool = False,
    machine: Machine = CPU,
    keep_weights: bool = True,
    fresh: bool = False,
    wait: bool = True,
    locks: Locks | None = None,
) -> Runs:
    """The finished runs of specs that can be stacked, in their order; what is missing is made, for all at once.

    Each run gets the folder it would get alone. Without `keep_weights` the weights are dropped once all stages are
    done, so the folders hold every result but no model. Runs that another process is making are waited for; without
    `wait`, `Held` is raised. Whoever holds their locks already gives them as `locks`.
    """
    check_stackable(list(specs))
    check_runnable(specs[0])  # the others differ in what decides nothing here
    each_once = {run_folder(spec, Path(root)).path: spec for spec in specs}

    def missing() -> list[RunSpec]:
        return [spec for spec in each_once.values() if fresh or not is_finished(spec, Path(root))]

    # A kill may have come before weights were dropped.
    wanted = [*missing(), *(spec for path, spec in each_once.items() if RunFolder(path).is_passing(Weights))]
    if wanted:
        names = [run_folder(spec, Path(root)).path.name for spec in wanted]
        holding = nullcontext(locks) if locks is not None else locked(Path(root), names, wait, refuse_signals)
        with told(progress, specs[0].model.architecture) as tell, holding as held:
            if left := missing():  # another process may have made some while they were waited for
                _Making(left, Path(root), tell, machine, held).make(fresh, keep_weights)
            for spec in wanted:
                run_folder(spec, Path(root)).settle(Weights, keep_weights)
    return Runs(load_run(run_folder(spec, Path(root)).path, stages=spec) for spec in specs)


def is_finished(spec: RunSpec, root: Path) -> bool:
    """Whether the training and all stages of a spec are there; a folder that is not what its name says is refused."""
    folder = run_folder(spec, root)
    return _is_there(folder) and all(_is_there(folder.stage(name, spec.stage_id(name))) for name in spec.stages)


def seems_finished(spec: RunSpec, root: Path) -> bool:
    """The same for those who look at many: one that is damaged is not finished, and whoever makes it says so."""
    with suppress(CorruptFile):
        return is_finished(spec, root)
    return False


def _is_there(folder: RunFolder | StageFolder) -> bool:
    return folder.sealed and bool(folder.seal())


@dataclass
class _Member:
    """One run in the making."""

    spec: RunSpec
    folder: RunFolder
    status: Status | None = None
    weights: Mapping[str, Tensor] | None = None
    """Where they are at hand; else they are in the folder, or were not kept."""

    def find(self, name: str, artifact: type[Artifact]) -> Any:
        """An artifact of a stage that may not be asked for, or may have been impossible."""
        return found_in(StageResult.of(self.stage(name)), artifact) if name in self.spec.stages else None

    def trained(self) -> Status:
        assert self.status is not None, "stages come after training"
        return self.status

    def stage(self, name: str) -> StageFolder:
        return self.folder.stage(name, self.spec.stage_id(name))

    def lacks(self, name: str) -> bool:
        return not _is_there(self.stage(name))

    def load(self) -> Mapping[str, Tensor]:
        if self.weights is None:
            if not self.folder.holds(Weights):
                raise UserError(
                    f"{self.folder.path} was trained without keeping its weights, so nothing new can be measured on it;"
                    " to train it again use --fresh, or remove the folder, and to keep them --keep-weights"
                )
            self.weights = self.folder.read(Weights).tensors
        return self.weights


class _Making:
    """Some runs in the making: trained as one cohort, then taken through every stage together."""

    def __init__(
        self, specs: Sequence[RunSpec], root: Path, tell: Callable[..., None], machine: Machine, locks: Locks
    ) -> None:
        self.members = [_Member(spec, run_folder(spec, root)) for spec in specs]
        self.first = specs[0]  # speaks for all where they do not differ
        self.root, self.tell, self.machine, self.locks = root, tell, machine, locks

    def make(self, fresh: bool, keep_weights: bool) -> None:
        # Stages too: beside a cohort that trains in TF32 they could not be computed in any other precision.
        precision = matmuls(self.first.train.precision)
        with torch_threads(self.machine.threads), precision, kernels.switched(self.machine.kernels):
            self._make(fresh, keep_weights)

    def _make(self, fresh: bool, keep_weights: bool) -> None:
        untrained = [member for member in self.members if fresh or not _is_there(member.folder)]
        known = {id(member) for member in untrained}
        for member in self.members:
            if id(member) not in known:
                member.status = member.folder.read(Status)
                self._refuse_watching(member)
        if untrained:
            self._train(untrained, keep_weights)
        for name, stage in self.first.stages.items():
            if not stage.watches:
                self._stage(name, stage, [member for member in self.members if member.lacks(name)])

    def _refuse_watching(self, member: _Member) -> None:
        for name, stage in self.first.stages.items():
            if stage.watches and member.lacks(name):
                raise UserError(
                    f"{name} is measured while training, and {member.folder.path} is trained already; to measure it"
                    " means training again, with --fresh"
                )

    def _train(self, members: list[_Member], keep_weights: bool) -> None:
        names = [artifact.file for artifact in (*TRAINING, Timing)]
        for member in members:
            member.folder.check_free(names)
        watching = {name: stage for name, stage in self.first.stages.items() if stage.watches}
        looking = Looking({name: stage.watch(self.first, self.machine) for name, stage in watching.items()})
        specs = [member.spec for member in members]
        checkpoint = CohortCheckpoint(specs, self.root, self.machine, looking)
        with kernels.tallied() as tally:
            checkpoint.used = tally.used
            start = checkpoint.found()
            if start is not None and start.complete:
                trained = start.members
            else:
                watched = looking.observer()
                trained = train_cohort(specs, self._training, watched, self.machine, None, checkpoint, start)
                checkpoint.keep_ended(trained)
        self.locks.check()
        used = checkpoint.all_used()
        # From here on it is the checkpoint that a kill leaves: what was there before can go.
        for member in members:
            for analysis in member.folder.stages():
                analysis.discard()  # it was measured on another model
            member.folder.begin(names)
            member.folder.write(Record(member.spec.identity, member.spec.training()))
        ended = [(found.steps, found.weights) for found in trained]
        # What watched training is sealed before it: it cannot be had again without training again.
        for name, stage in watching.items():
            found = looking.results(name, ended)
            results = {index: found[number] for index, number in enumerate(checkpoint.chosen)}
            self._write_stage(name, stage, members, results, looking.seconds[name], used)
        for member, number in zip(members, checkpoint.chosen, strict=True):
            self._write_training(member, trained[number], used, keep_weights)
        # All seals at the end, so that what is sealed was trained as one stack.
        for member in members:
            member.folder.close(member.spec.identity, [artifact.file for artifact in TRAINING])
        checkpoint.remove()

    def _write_training(self, member: _Member, found: Member, used: dict[str, str], keep_weights: bool) -> None:
        assert found.outcome is not None, "training ends in some way"
        spec, folder = member.spec, member.folder
        model = build_model(spec.model, spec.task.vocab_size, spec.seed)
        length = spec.task.single_query().max_length
        member.status = Status(found.outcome, found.steps, parameter_count(model), state_size(model, length))
        member.weights = found.weights
        # Results may depend on the size of the stack in their last bits.
        made = provenance(spec, self.machine, spec.train.precision, found.data_sha256, found.stack_size, used)
        folder.write(member.status, Curve(tuple(found.history)), made, Weights(found.weights))
        seconds = found.build_seconds + found.train_seconds
        rate = found.stack_steps / found.train_seconds
        folder.write(Timing(found.stack_size, seconds, found.build_seconds, rate, time.time()))
        if not keep_weights:
            folder.mark_passing(Weights)

    def _stage(self, name: str, stage: Stage, members: list[_Member]) -> None:
        """Runs one stage on all members that lack it; those that cannot have it get the reason in its place."""
        if not members:
            return
        started = time.perf_counter()
        results: dict[int, Result] = {}
        for index, member in enumerate(members):
            reason = self._impossible(stage, member)
            if reason:
                results[index] = Impossible(reason)
        able = [index for index in range(len(members)) if index not in results]
        used: dict[str, str] = {}
        if able:
            here = [members[index] for index in able]
            trained = Trained(
                size=len(here),
                machine=self.machine,
                parse=lambda: [member.spec for member in here],
                build=lambda: self._models(here),
                read=lambda index, needed, artifact: here[index].stage(needed).read(artifact),
                find=lambda index, needed, artifact: here[index].find(needed, artifact),
                progress=lambda done, total: self.tell(name, done, total, ""),
            )
            with kernels.tallied() as tally:
                results |= dict(zip(able, checked_results(name, stage, stage.run(trained), len(able)), strict=True))
            used = tally.used()
        self._write_stage(name, stage, members, results, time.perf_counter() - started, used)

    def _impossible(self, stage: Stage, member: _Member) -> str:
        """Why a stage cannot be had of a member, whatever the stage is."""
        if stage.uses_model and member.trained().outcome == "diverged":
            return f"training diverged by step {member.trained().steps}"
        for need in stage.needs:
            outcome = member.stage(need).read(StageOutcome)
            if outcome.state == "impossible":
                return outcome.reason
        return ""

    def _models(self, members: Sequence[_Member]) -> list[Model]:
        weights = [member.load() for member in members]
        return trained_models(self.first.model, self.first.task.vocab_size, weights, self.machine.device)

    def _write_stage(
        self,
        name: str,
        stage: Stage,
        members: list[_Member],
        results: Mapping[int, Result],
        seconds: float,
        used: dict[str, str],
    ) -> None:
        self.locks.check()
        precision = "tf32" if self.first.train.precision == "tf32" else "float32"
        for index, result in sorted(results.items()):
            member, folder = members[index], members[index].stage(name)
            made: tuple[Artifact, ...] = ()
            if stage.uses_model and result.documents:
                timing = Timing(len(members), seconds, finished=time.time())
                sha = result.documents
                made = (provenance(member.spec, self.machine, precision, sha, len(members), used), timing)
            begin_stage(folder, member.spec.stage_identity(name), member.spec.stages[name], result, made)
        for index in sorted(results):
            close_stage(members[index].stage(name), members[index].spec.stage_identity(name), stage)

    def _training(self, done: int, members: list[Member]) -> None:
        accuracy = max((member.history[-1].accuracy for member in members if member.history), default=0.0)
        note = f"accuracy {accuracy:.1%}" if len(members) == 1 else f"best accuracy {accuracy:.1%}"
        self.tell("train", done, self.first.train.steps, note)


def found_in(stage: StageResult | None, artifact: type[Artifact]) -> Any:
    """An artifact of a stage that may not be there, or may have been impossible."""
    return None if stage is None or stage.outcome.state != "done" else stage.folder.read(artifact)


def checked_results(name: str, stage: Stage, results: Any, count: int) -> list[Result]:
    """What a stage gave, or a `UserError` that says what it should have given."""
    declared = tuple(stage.artifacts)
    if not isinstance(results, list) or len(results) != count:
        raise UserError(f"the stage {name!r} must give a list of {count} results, one a model, got {results!r:.80}")
    usual = "Done((artifact, ...)) or Impossible(reason)"
    for result in results:
        if not isinstance(result, Done | Impossible) or not isinstance(result.artifacts, tuple):
            raise UserError(f"the stage {name!r} must give {usual}, got {result!r:.80}")
        for artifact in result.artifacts:
            if not isinstance(artifact, declared):
                names = ", ".join(kind.__name__ for kind in declared) or "nothing"
                gave = type(artifact).__name__
                raise UserError(f"the stage {name!r} gave {gave}, but declares {names} as `artifacts`")
            try:
                artifact.to_bytes()
            except (TypeError, ValueError) as error:
                raise UserError(f"the stage {name!r} gave a {artifact.file} that cannot be written: {error}") from error
    return results


def begin_stage(
    folder: StageFolder, identity: dict[str, Any], stage: Stage, result: Result, made: Sequence[Artifact] = ()
) -> None:
    """Writes what a stage found of one model, without sealing it; `made` says how, where it says so."""
    folder.begin([artifact.file for artifact in (*ALWAYS, *stage.artifacts, Timing)])
    done = isinstance(result, Done)
    folder.write(
        StageRecord(identity, stage.model_dump(mode="json")),
        StageOutcome("done", "", result.notes) if done else StageOutcome("impossible", result.reason),
        *result.artifacts,
        *made,
    )


def close_stage(folder: StageFolder, identity: dict[str, Any], stage: Stage) -> None:
    """Seals what `begin_stage` wrote."""
    folder.close(identity, [artifact.file for artifact in (*ALWAYS, *stage.artifacts)])


def redo(result: RunResult, name: str, stage: Stage, fresh: bool = False) -> RunResult:
    """A finished run with a stage that needs no model worked out from what is stored; what is there stays.

    No component of the run need be at hand.
    """
    if stage.uses_model:
        raise UserError(f"the stage {name!r} needs the model, so it cannot be worked out from stored results")
    for need in stage.needs:
        if need not in result.stages:
            raise UserError(f"{result.folder.path} has no finished stage {need!r}, which {name!r} needs")
    needs = {need: result.stages[need].id for need in read_by(stage, result.stages)}
    identity = stage_identity(name, stage, needs)
    folder = result.folder.stage(name, id_of(identity))
    if fresh or not _is_there(folder):
        impossible = [s.outcome.reason for n in stage.needs if (s := result.stages[n]).outcome.state == "impossible"]
        if impossible:
            found: Result = Impossible(impossible[0])
        else:
            trained = Trained(
                size=1,
                machine=CPU,
                parse=lambda: [result.spec],
                build=lambda: [result.model()],
                read=lambda _, needed, artifact: result.stages[needed].folder.read(artifact),
                find=lambda _, needed, artifact: found_in(result.stages.get(needed), artifact),
            )
            [found] = checked_results(name, stage, stage.run(trained), 1)
        run = result.folder.path.resolve()
        with locked(run.parent, [run.name], True, refuse_signals):
            begin_stage(folder, identity, stage, found)
            close_stage(folder, identity, stage)
    return RunResult(result.folder, {**{n: s.id for n, s in result.stages.items()}, name: id_of(identity)})
