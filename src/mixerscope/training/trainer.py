"""Training a cohort: K models of one shape at once, parameters stacked along a leading axis.

The members share the documents and their order and differ in seed, learning rate and weight decay; K = 1 is the
ordinary run. The sum of the members' losses is differentiated once: each loss depends on its own member alone, so the
gradient of the sum is every member's own gradient. A member that diverges or finishes leaves the stack with the
weights it had.
"""

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mixerscope import kernels
from mixerscope.artifacts.training import Evaluation, Outcome
from mixerscope.errors import Interrupted, UserError
from mixerscope.machine import CPU, Machine, matmuls
from mixerscope.model import build_model
from mixerscope.progress import Cancelled
from mixerscope.randomness import stream
from mixerscope.spec import RunSpec, TrainSpec
from mixerscope.tasks import Batch
from mixerscope.training.batches import Batches, Documents
from mixerscope.training.kept import Keeper, Kept, Member, Point
from mixerscope.training.memory import fitting
from mixerscope.training.objective import Answer, answer_correct, answer_likelihood
from mixerscope.training.stack import Stack

LENGTHS = {"cpu": 1, "cuda": 4}
"""What lengths of batches are multiples of: the faster kernels for products of matrices ask for rows of 16 bytes."""
IN_PARTS = {"cuda"}
"""Where the longest documents of a batch are computed for themselves; a CPU's bytes stay as they were."""


Progress = Callable[[int, list[Member]], None]
"""Called every few steps with the steps done and the members."""


@dataclass(frozen=True)
class Observer:
    """Looks into the models during training."""

    steps: tuple[int, ...]
    """After how many steps."""
    look: Callable[[int, Mapping[int, dict[str, Tensor]]], None]
    """Called with the steps done and the weights, by member, of those still in training."""


def check_stackable(specs: list[RunSpec]) -> None:
    """Members of a cohort may differ in seed, learning rate and weight decay only."""
    if any(stack_shape(spec) != stack_shape(specs[0]) for spec in specs[1:]):
        raise UserError("runs of one cohort may differ in seed, train.lr and train.weight_decay only")


def stack_shape(spec: RunSpec) -> RunSpec:
    """The spec with all in which members of a cohort may differ taken out: equal for runs that can be stacked."""
    return spec.changed(seed=0, train=spec.train.changed(lr=1.0, weight_decay=0.0))


def train_cohort(
    specs: list[RunSpec],
    progress: Progress | None = None,
    observer: Observer | None = None,
    machine: Machine = CPU,
    dtype: torch.dtype | None = None,
    keeper: Keeper | None = None,
    start: Kept | None = None,
) -> list[Member]:
    """Trains all members and returns them with their final weights and learning curves.

    `dtype` is for checks in float64; left out, it is what the specs' precision says. `keeper` is given where training
    stands whenever it is due, and when `progress` ends it by raising `Cancelled` or `Interrupted`; with that as `start`
    training goes on, and ends with the same bits.
    """
    check_stackable(specs)
    with _settings(specs[0], machine):
        if start is None:
            start = Kept([Member(spec) for spec in specs], fitting(list(range(len(specs))), specs[0], machine))
        members, waiting, point = start.members, list(start.waiting), start.point
        while waiting:
            part = waiting[0]
            trained = len(specs) - sum(map(len, waiting))

            def seen(done: int, members: list[Member], before: int = trained, size: int = len(part)) -> None:
                if progress is not None:  # parts one after the other count as one training
                    progress((before * specs[0].train.steps + size * done) // len(specs), members)

            try:
                _train_stack(part, members, seen, observer, machine, dtype, _Keeping(keeper, members, waiting), point)
                waiting.pop(0)
            except _NoRoom:
                if point is not None:
                    raise UserError("the GPU has less room than when this training began; try again later") from None
                if len(part) == 1:
                    raise UserError("one model alone does not fit on the GPU; make train.batch_size smaller") from None
                waiting[:1] = [part[: len(part) // 2], part[len(part) // 2 :]]
            point = None
            if not members[part[0]].outcome:
                gc.collect()  # torch may hold frames that hold what found no room
    return members


@dataclass(frozen=True)
class _Keeping:
    """A keeper, and the part of what it keeps that is not the present stack's."""

    keeper: Keeper | None
    members: list[Member]
    waiting: list[list[int]]

    def due(self) -> bool:
        return self.keeper is not None and self.keeper.due()

    def keep(self, point: Point) -> None:
        if self.keeper is not None:
            self.keeper.keep(Kept(self.members, self.waiting, point))


class _NoRoom(Exception):
    """A stack needs more memory than was thought; nothing of it has been trained."""


def compile_cohort(specs: list[RunSpec], machine: Machine, share: int = 0, of: int = 1) -> None:
    """Compiles what training needs and trains nothing: it is in the compiler's cache afterwards. Several processes
    may do a share each."""
    check_stackable(specs)
    with _settings(specs[0], machine):
        sizes = {len(part) for part in fitting(list(range(len(specs))), specs[0], machine)}
        for size in sizes:
            _stack(specs[:size], _documents(specs[0], "train"), machine, None).compile(share, of)


@contextmanager
def _settings(spec: RunSpec, machine: Machine) -> Iterator[None]:
    with matmuls(spec.train.precision), kernels.switched(machine.kernels):
        yield


def _documents(spec: RunSpec, split: Literal["train", "dev"]) -> Batch:
    if split == "train":
        return spec.task.sample(spec.train.documents, stream(spec.data_seed, "train"), "train")
    return spec.task.single_query().sample(spec.train.eval_documents, stream(spec.data_seed, "dev"), "dev")


def _stack(specs: list[RunSpec], data: Batch, machine: Machine, dtype: torch.dtype | None) -> Stack:
    train = specs[0].train
    if dtype is None:
        dtype = torch.bfloat16 if train.precision == "bfloat16" else torch.float32
    models = [build_model(spec.model, spec.task.vocab_size, spec.seed).to(dtype) for spec in specs]
    rates, decays = [spec.train.lr for spec in specs], [spec.train.weight_decay for spec in specs]
    batches = batches_of(data, train, torch.device(machine.device), like=machine.device)
    return Stack(models, rates, decays, train, batches, machine, train.objective or Answer())


def batches_of(data: Batch, train: TrainSpec, device: torch.device, *, like: str) -> Batches:
    """The batches of a training, on a device, cut as for training on a device `like` this."""
    objective = train.objective or Answer()
    in_parts = objective.is_mean and like in IN_PARTS
    return Batches.of(data, train, device, LENGTHS[like], objective.columns(data), in_parts=in_parts)


def _train_stack(
    part: list[int],
    members: list[Member],
    progress: Progress,
    observer: Observer | None,
    machine: Machine,
    dtype: torch.dtype | None,
    keeping: _Keeping,
    point: Point | None,
) -> None:
    started = time.perf_counter()
    specs = [members[index].spec for index in part]
    data = _documents(specs[0], "train")
    dev = Documents.of(_documents(specs[0], "dev"), torch.device(machine.device))
    try:
        stack = _stack(specs, data, machine, dtype)
        trainer = _Trainer(members, part, stack, dev, specs[0].train)
        if point is not None:
            trainer.restore(point)  # before anything is captured, which is done with the memory that is then there
        stack.build()
    except torch.OutOfMemoryError as error:
        raise _NoRoom from error
    trainer.built(time.perf_counter() - started)
    trainer.run(progress, observer, keeping)
    for index in part:
        members[index].data_sha256 = data.sha256()
        members[index].build_seconds = trainer.build_seconds
        members[index].train_seconds = trainer.train_seconds
        members[index].stack_steps = stack.done
        members[index].stack_size = len(part)


class _Trainer:
    """Trains a stack, evaluates it, and lets members go that have diverged or reached what they were to reach."""

    def __init__(self, members: list[Member], part: list[int], stack: Stack, dev: Documents, train: TrainSpec) -> None:
        self.members, self.stack, self.dev, self.train = members, stack, dev, train
        self.slots = dict(enumerate(part))
        """Which member is in which slot of the stack; without those that are done."""
        self.losses_since = self.done = 0
        self.build_seconds = self.before = 0.0
        """To build, and to train before this call, if there was one."""
        self.began = time.perf_counter()

    @property
    def train_seconds(self) -> float:
        return self.before + time.perf_counter() - self.began

    def built(self, seconds: float) -> None:
        self.build_seconds += seconds
        self.began = time.perf_counter()

    def point(self) -> Point:
        """Where the stack stands: copies of its tensors on the CPU, for which a GPU's work is waited for."""
        own = {name: tensor.to("cpu", copy=True) for name, tensor in self.stack.state().items()}
        return Point(self.done, self.losses_since, dict(self.slots), self.build_seconds, self.train_seconds, own)

    def restore(self, point: Point) -> None:
        """Puts the stack, as it was when it was new, where it stood."""
        if len(point.tensors["flat"]) < len(self.stack.flat):
            numbers = {member: slot for slot, member in self.slots.items()}
            self.stack.keep([numbers[member] for member in point.slots.values()])
        self.stack.load(point.tensors, point.done)
        self.slots, self.losses_since, self.done = dict(point.slots), point.losses_since, point.done
        self.build_seconds, self.before = point.build_seconds, point.train_seconds

    def run(self, progress: Progress, observer: Observer | None, keeping: _Keeping) -> None:
        looks = set(observer.steps) if observer is not None else set()
        if not self.done:
            self._show(observer)
            self._evaluate()
        while self.done < self.train.steps and self.slots:
            done = self.done
            evaluation = min(self.train.steps, (done // self.train.eval_every + 1) * self.train.eval_every)
            until = min([evaluation, done + self.stack.steps_at_once, *(step for step in looks if step > done)])
            self.stack.advance(until - done)
            self.losses_since += until - done
            self.done = until
            self._show(observer)
            if until == evaluation:
                self._evaluate()
            try:
                progress(until, self.members)
            except (Cancelled, Interrupted):
                keeping.keep(self.point())
                raise
            if keeping.due():
                keeping.keep(self.point())
        for slot in list(self.slots):
            self._close(slot, "finished", self.train.steps)

    def _evaluate(self) -> None:
        done = self.done
        logits = self.stack.logits(self.dev.tokens, self.dev.read)
        targets = self.dev.targets.expand(logits.shape[:-1])
        accuracy = answer_correct(logits, targets).double().mean((1, 2)).tolist()
        likelihood = answer_likelihood(logits, targets).double().mean((1, 2)).tolist()
        losses = (self.stack.loss_sum / self.losses_since).tolist() if self.losses_since else [None] * len(accuracy)
        for slot, index in list(self.slots.items()):
            loss = losses[slot]
            if not math.isfinite(likelihood[slot]) or (loss is not None and not math.isfinite(loss)):
                self._close(slot, "diverged", done)
                continue
            self.members[index].history.append(Evaluation(done, loss, accuracy[slot], likelihood[slot]))
            target = self.train.stop_at_accuracy
            if target is not None and accuracy[slot] >= target:
                self._close(slot, "reached", done)
        self.stack.loss_sum.zero_()
        self.losses_since = 0
        # A compiled stack keeps its size: its losses are independent, and compiling again would take longer.
        if len(self.slots) < len(accuracy) and self.slots and not self.stack.machine.compile:
            self.stack.keep(list(self.slots))
            self.slots = dict(enumerate(self.slots.values()))

    def _close(self, slot: int, outcome: Outcome, steps: int) -> None:
        member = self.members[self.slots.pop(slot)]
        member.outcome, member.steps = outcome, steps
        member.weights = self.stack.weights(slot)

    def _show(self, observer: Observer | None) -> None:
        if observer is not None and self.done in observer.steps:
            observer.look(self.done, {index: self.stack.weights(slot) for slot, index in self.slots.items()})
