"""K models of one shape on one device: stacked parameters, optimiser state, and one training step for all of them.

A step reads its batch, its learning rate and its bias corrections from tables on the device by a counter on the
device, so that it needs nothing from the host: on a GPU it is captured once as a CUDA graph and replayed.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state

from mixerscope.model import Model
from mixerscope.spec import TrainSpec
from mixerscope.tasks import Batch
from mixerscope.training.objective import cross_entropy
from mixerscope.training.schedule import rate_factor

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
WARM_UP_STEPS = 2
"""Steps before a capture, in which libraries allocate what a graph may not."""


@dataclass(frozen=True)
class Documents:
    """What a step needs of a batch, on the device: tokens [n, t], scored positions and targets [n, q]."""

    tokens: Tensor
    read: Tensor
    targets: Tensor

    @staticmethod
    def of(batch: Batch, device: torch.device) -> "Documents":
        read, targets = batch.scored()
        return Documents(batch.tokens.to(device), read.to(device), targets.to(device))


class Stack:
    """The members of a cohort that are still in training."""

    def __init__(
        self, models: list[Model], rates: list[float], train: TrainSpec, data: Documents, device: torch.device
    ) -> None:
        stacked, buffers = stack_module_state([model.to(device) for model in models])
        self.params: dict[str, Tensor] = {name: p.detach() for name, p in stacked.items()}
        self.buffers: dict[str, Tensor] = {name: b.detach() for name, b in buffers.items()}
        self.first = {name: torch.zeros_like(p) for name, p in self.params.items()}
        self.second = {name: torch.zeros_like(p) for name, p in self.params.items()}
        # The forward pass is that of one module; which parameters it uses is decided at each call.
        self.template = models[0].to("meta")
        self.data, self.train, self.device = data, train, device
        dtype = next(iter(self.params.values())).dtype
        self.rates = torch.tensor(rates, dtype=dtype, device=device)  # [k]
        self.factors = torch.tensor([_factors(train, step) for step in range(train.steps)], dtype=dtype, device=device)
        self.within = torch.arange(train.batch_size, device=device)
        self.counter = torch.zeros((), dtype=torch.int64, device=device)
        self.loss_sum = torch.zeros(len(models), dtype=torch.float64, device=device)
        self._graph: torch.cuda.CUDAGraph | None = None

    def logits(self, tokens: Tensor, read: Tensor) -> Tensor:
        """[k, n, q, v], without gradients."""
        with torch.no_grad():
            params = {name: p.detach() for name, p in self.params.items()}
            return torch.vmap(self._logits, (0, 0, None, None))(params, self.buffers, tokens, read)

    def step(self) -> None:
        """One update of every member on the next batch; adds each member's loss to `loss_sum`."""
        if self.device.type != "cuda":
            self._step()
            return
        if self._graph is None:
            self._graph = self._captured()
        self._graph.replay()

    def weights(self, slot: int) -> dict[str, Tensor]:
        """A copy of one member's parameters and buffers, on the CPU."""
        return {name: p[slot].detach().to("cpu", copy=True) for name, p in (self.params | self.buffers).items()}

    def keep(self, slots: list[int]) -> None:
        """Goes on with the members in `slots` only."""
        for tensors in (self.params, self.buffers, self.first, self.second):
            for name in tensors:
                tensors[name] = tensors[name].detach()[slots]
        self.rates, self.loss_sum = self.rates[slots], self.loss_sum[slots]
        self._graph = None

    def _logits(self, params: dict[str, Tensor], buffers: dict[str, Tensor], tokens: Tensor, read: Tensor) -> Tensor:
        return functional_call(self.template, (params, buffers), (tokens, read))

    def _step(self) -> None:
        rows = (self.counter * self.train.batch_size + self.within) % len(self.data.tokens)
        tokens, read, targets = self.data.tokens[rows], self.data.read[rows], self.data.targets[rows]

        def loss(params: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
            return cross_entropy(self._logits(params, buffers, tokens, read), targets)

        params = {name: p.requires_grad_() for name, p in self.params.items()}
        losses = torch.vmap(loss)(params, self.buffers)
        grads = torch.autograd.grad(losses.sum(), list(params.values()))
        with torch.no_grad():
            self._update(grads)
            self.loss_sum += losses.detach()
            self.counter += 1

    def _update(self, grads: tuple[Tensor, ...]) -> None:
        """AdamW with decoupled weight decay, a learning rate per member."""
        rate_factor, step_factor, second_factor = self.factors[self.counter].unbind()
        decay, step = self.rates * rate_factor * self.train.weight_decay, self.rates * step_factor
        for (name, p), g in zip(self.params.items(), grads, strict=True):
            m, v = self.first[name], self.second[name]
            m.lerp_(g, 1 - BETA1)
            v.mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
            shape = (-1, *[1] * (p.dim() - 1))
            p = p.detach()
            if self.train.weight_decay:
                p.mul_(1 - decay.view(shape))
            p.sub_(m / (v.sqrt() * second_factor).add_(EPSILON) * step.view(shape))
            self.params[name] = p

    def _captured(self) -> torch.cuda.CUDAGraph:
        """The step as a CUDA graph. Warming up trains, so what it changed is put back before the capture."""
        state = [*self.params.values(), *self.first.values(), *self.second.values(), self.counter, self.loss_sum]
        before = [tensor.detach().clone() for tensor in state]
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_STEPS):
                self._step()
        torch.cuda.current_stream(self.device).wait_stream(side)
        with torch.no_grad():
            for tensor, value in zip(state, before, strict=True):
                tensor.detach().copy_(value)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        return graph


def _factors(train: TrainSpec, step: int) -> tuple[float, float, float]:
    """Of one step: the schedule, the schedule over the first moment's correction, and one over the second's root."""
    schedule = rate_factor(train, step)
    return schedule, schedule / (1 - BETA1 ** (step + 1)), 1 / math.sqrt(1 - BETA2 ** (step + 1))
