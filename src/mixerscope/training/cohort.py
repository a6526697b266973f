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
from torch.func import functional_call, stack_module_state

from mixerscope.errors import UserError
from mixerscope.model import Model, build_model
from mixerscope.randomness import stream
from mixerscope.spec import RunSpec, TrainSpec
from mixerscope.tasks import Batch, Task
from mixerscope.training.objective import answer_correct, answer_likelihood, cross_entropy
from mixerscope.training.schedule import rate_factor

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8

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
    dtype: torch.dtype = torch.float32,
    observer: Observer | None = None,
) -> list[Member]:
    """Trains all members and returns them with their final weights and learning curves."""
    check_stackable(specs)
    task: Task = specs[0].task
    train, data_seed = specs[0].train, specs[0].data_seed
    data = task.sample(train.documents, stream(data_seed, "train"), "train")
    dev = task.single_query().sample(train.eval_documents, stream(data_seed, "dev"), "dev")
    models = [build_model(spec.model, task.vocab_size, spec.seed).to(dtype) for spec in specs]
    return _Cohort(specs, models, data, dev).run(progress, observer)


class _Cohort:
    """The members still in training, stacked."""

    def __init__(self, specs: list[RunSpec], models: list[Model], data: Batch, dev: Batch) -> None:
        self.members = [Member(spec, data_sha256=data.sha256()) for spec in specs]
        self.active = list(range(len(specs)))
        self.train: TrainSpec = specs[0].train
        self.tokens, (self.read, self.targets) = data.tokens, data.scored()
        self.dev_tokens, (self.dev_read, self.dev_targets) = dev.tokens, dev.scored()
        stacked, buffers = stack_module_state(list(models))
        self.params: dict[str, Tensor] = {name: p.detach() for name, p in stacked.items()}
        self.buffers: dict[str, Tensor] = {name: b.detach() for name, b in buffers.items()}
        self.first = {name: torch.zeros_like(p) for name, p in self.params.items()}
        self.second = {name: torch.zeros_like(p) for name, p in self.params.items()}
        # The forward pass is that of one module; which parameters it uses is decided at each call.
        self.template = models[0].to("meta")
        dtype = next(iter(self.params.values())).dtype
        self.lr = torch.tensor([spec.train.lr for spec in specs], dtype=dtype)
        self.loss_sum = torch.zeros(len(specs), dtype=torch.float64)
        self.loss_count = 0

    def run(self, progress: Progress | None, observer: Observer | None = None) -> list[Member]:
        self._show(0, observer)
        self._evaluate(0)
        for step in range(self.train.steps):
            if not self.active:
                break
            self._step(step)
            done = step + 1
            self._show(done, observer)
            if done % self.train.eval_every == 0 or done == self.train.steps:
                self._evaluate(done)
            if progress is not None:
                progress(done, self.members)
        for slot, index in enumerate(self.active):
            self._close(slot, index, "finished", self.train.steps)
        return self.members

    def _logits(self, params: dict[str, Tensor], buffers: dict[str, Tensor], tokens: Tensor, read: Tensor) -> Tensor:
        return functional_call(self.template, (params, buffers), (tokens, read))

    def _step(self, step: int) -> None:
        size = self.train.batch_size
        rows = torch.arange(step * size, (step + 1) * size) % len(self.tokens)
        tokens, read, targets = self.tokens[rows], self.read[rows], self.targets[rows]

        def loss(params: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
            return cross_entropy(self._logits(params, buffers, tokens, read), targets)

        params = {name: p.requires_grad_() for name, p in self.params.items()}
        losses = torch.vmap(loss)(params, self.buffers)
        grads = torch.autograd.grad(losses.sum(), list(params.values()))
        with torch.no_grad():
            self._update(step, grads)
        self.loss_sum += losses.detach()
        self.loss_count += 1

    def _update(self, step: int, grads: tuple[Tensor, ...]) -> None:
        """AdamW with decoupled weight decay, a learning rate per member."""
        rate = self.lr * rate_factor(self.train, step)
        correction1, correction2 = 1 - BETA1 ** (step + 1), math.sqrt(1 - BETA2 ** (step + 1))
        for (name, p), g in zip(self.params.items(), grads, strict=True):
            p = p.detach()
            m, v = self.first[name], self.second[name]
            m.lerp_(g, 1 - BETA1)
            v.mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
            r = rate.view(-1, *[1] * (p.dim() - 1))
            if self.train.weight_decay:
                p.mul_(1 - r * self.train.weight_decay)
            p.sub_(m / (v.sqrt() / correction2).add_(EPSILON) * (r / correction1))
            self.params[name] = p

    @torch.no_grad()
    def _evaluate(self, done: int) -> None:
        params = {name: p.detach() for name, p in self.params.items()}
        logits = torch.vmap(self._logits, (0, 0, None, None))(params, self.buffers, self.dev_tokens, self.dev_read)
        targets = self.dev_targets.expand(logits.shape[:-1])
        accuracy = answer_correct(logits, targets).double().mean((1, 2))
        likelihood = answer_likelihood(logits, targets).double().mean((1, 2))
        losses = self.loss_sum / self.loss_count if self.loss_count else None
        keep: list[int] = []
        for slot, index in enumerate(self.active):
            loss = None if losses is None else losses[slot].item()
            if not math.isfinite(likelihood[slot].item()) or (loss is not None and not math.isfinite(loss)):
                self._close(slot, index, "diverged", done)
                continue
            member = self.members[index]
            member.history.append(Evaluation(done, loss, accuracy[slot].item(), likelihood[slot].item()))
            target = self.train.stop_at_accuracy
            if target is not None and accuracy[slot].item() >= target:
                self._close(slot, index, "reached", done)
            else:
                keep.append(slot)
        self.loss_sum.zero_()
        self.loss_count = 0
        if len(keep) < len(self.active):
            self._keep(keep)

    def _close(self, slot: int, index: int, outcome: Outcome, steps: int) -> None:
        member = self.members[index]
        member.outcome, member.steps = outcome, steps
        member.weights = self._weights(slot)

    def _weights(self, slot: int) -> dict[str, Tensor]:
        return {name: p[slot].detach().clone() for name, p in (self.params | self.buffers).items()}

    def _show(self, done: int, observer: Observer | None) -> None:
        if observer is not None and done in observer.steps:
            observer.look(done, {index: self._weights(slot) for slot, index in enumerate(self.active)})

    def _keep(self, slots: list[int]) -> None:
        self.active = [self.active[slot] for slot in slots]
        for tensors in (self.params, self.buffers, self.first, self.second):
            for name in tensors:
                tensors[name] = tensors[name].detach()[slots]
        self.lr, self.loss_sum = self.lr[slots], self.loss_sum[slots]
