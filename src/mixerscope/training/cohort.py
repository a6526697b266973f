"""Training a cohort: K models of one shape at once, parameters stacked along a leading axis.

The members share the documents and their order and differ in seed and learning rate; K = 1 is the ordinary run. The
sum of the members' losses is differentiated once: each loss depends on its own member alone, so the gradient of the
sum is every member's own gradient. A member that diverges or finishes leaves the stack with the weights it had.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from mixerscope.errors import UserError
from mixerscope.machine import CPU, Machine
from mixerscope.model import build_model
from mixerscope.randomness import stream
from mixerscope.spec import RunSpec, TrainSpec
from mixerscope.tasks import Task
from mixerscope.training.objective import answer_correct, answer_likelihood
from mixerscope.training.stack import Documents, Stack

Outcome = Literal["finished", "reached", "diverged"]


@dataclass(frozen=True)
class Evaluation:
    """A member's scores on the dev set at one step, and its mean training loss since the evaluation before."""

    step: int
    loss: float | None
    accuracy: float
    likelihood: float


@dataclass
class Member:
    """One model of a cohort: where it started and what became of it."""

    spec: RunSpec
    outcome: Outcome | None = None
    steps: int = 0
    weights: dict[str, Tensor] = field(default_factory=dict)
    history: list[Evaluation] = field(default_factory=list)
    data_sha256: str = ""
    """Of the training documents, which all members share."""


Progress = Callable[[int, list[Member]], None]
"""Called after every step with the steps done and the members."""


@dataclass(frozen=True)
class Observer:
    """Looks into the models during training."""

    steps: tuple[int, ...]
    """After how many steps."""
    look: Callable[[int, Mapping[int, dict[str, Tensor]]], None]
    """Called with the steps done and the weights, by member, of those still in training."""


def check_stackable(specs: list[RunSpec]) -> None:
    """Members of a cohort may differ in seed and learning rate only."""

    def shape(spec: RunSpec) -> RunSpec:
        return spec.changed(seed=0, train=spec.train.changed(lr=1.0))

    if any(shape(spec) != shape(specs[0]) for spec in specs):
        raise UserError("runs of one cohort may differ in seed and train.lr only")


def train_cohort(
    specs: list[RunSpec],
    progress: Progress | None = None,
    observer: Observer | None = None,
    machine: Machine = CPU,
    dtype: torch.dtype = torch.float32,
) -> list[Member]:
    """Trains all members and returns them with their final weights and learning curves."""
    check_stackable(specs)
    task: Task = specs[0].task
    train, data_seed, device = specs[0].train, specs[0].data_seed, torch.device(machine.device)
    data = task.sample(train.documents, stream(data_seed, "train"), "train")
    dev = task.single_query().sample(train.eval_documents, stream(data_seed, "dev"), "dev")
    models = [build_model(spec.model, task.vocab_size, spec.seed).to(dtype) for spec in specs]
    stack = Stack(models, [spec.train.lr for spec in specs], train, Documents.of(data, device), device)
    members = [Member(spec, data_sha256=data.sha256()) for spec in specs]
    return _Cohort(members, stack, Documents.of(dev, device), train).run(progress, observer)


class _Cohort:
    """Trains a stack, evaluates it, and lets members go that have diverged or reached what they were to reach."""

    def __init__(self, members: list[Member], stack: Stack, dev: Documents, train: TrainSpec) -> None:
        self.members, self.stack, self.dev, self.train = members, stack, dev, train
        self.active = list(range(len(members)))
        self.losses_since = 0

    def run(self, progress: Progress | None, observer: Observer | None = None) -> list[Member]:
        self._show(0, observer)
        self._evaluate(0)
        for step in range(self.train.steps):
            if not self.active:
                break
            self.stack.step()
            self.losses_since += 1
            done = step + 1
            self._show(done, observer)
            if done % self.train.eval_every == 0 or done == self.train.steps:
                self._evaluate(done)
            if progress is not None:
                progress(done, self.members)
        for slot, index in enumerate(self.active):
            self._close(slot, index, "finished", self.train.steps)
        return self.members

    def _evaluate(self, done: int) -> None:
        logits = self.stack.logits(self.dev.tokens, self.dev.read)
        targets = self.dev.targets.expand(logits.shape[:-1])
        accuracy = answer_correct(logits, targets).double().mean((1, 2)).tolist()
        likelihood = answer_likelihood(logits, targets).double().mean((1, 2)).tolist()
        losses = (self.stack.loss_sum / self.losses_since).tolist() if self.losses_since else [None] * len(accuracy)
        keep: list[int] = []
        for slot, index in enumerate(self.active):
            loss = losses[slot]
            if not math.isfinite(likelihood[slot]) or (loss is not None and not math.isfinite(loss)):
                self._close(slot, index, "diverged", done)
                continue
            self.members[index].history.append(Evaluation(done, loss, accuracy[slot], likelihood[slot]))
            target = self.train.stop_at_accuracy
            if target is not None and accuracy[slot] >= target:
                self._close(slot, index, "reached", done)
            else:
                keep.append(slot)
        self.stack.loss_sum.zero_()
        self.losses_since = 0
        if len(keep) < len(self.active):
            self.active = [self.active[slot] for slot in keep]
            self.stack.keep(keep)

    def _close(self, slot: int, index: int, outcome: Outcome, steps: int) -> None:
        member = self.members[index]
        member.outcome, member.steps = outcome, steps
        member.weights = self.stack.weights(slot)

    def _show(self, done: int, observer: Observer | None) -> None:
        if observer is not None and done in observer.steps:
            observer.look(done, {index: self.stack.weights(slot) for slot, index in enumerate(self.active)})
