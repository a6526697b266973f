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
        self.buffers: dict[str, Tensor] = {name: b.detach() for name, b in buffers.items()}
        # All parameters of a member lie in one row, so that an update is a few operations and not a few per tensor.
        self.shapes = {name: p.shape[1:] for name, p in stacked.items()}
        self.flat = torch.cat([p.detach().flatten(1) for p in stacked.values()], 1)  # [k, p]
        self.params = self._views()
        self.first, self.second = torch.zeros_like(self.flat), torch.zeros_like(self.flat)
        # The forward pass is that of one module; which parameters it uses is decided at each call.
        self.template = models[0].to("meta")
        self.data, self.train, self.device = data, train, device
        dtype = self.flat.dtype
        self.rates = torch.tensor(rates, dtype=dtype, device=device)  # [k]
        self.factors = torch.tensor([_factors(train, step) for step in range(train.steps)], dtype=dtype, device=device)
        self.within = torch.arange(train.batch_size, device=device)
        self.counter = torch.zeros((), dtype=torch.int64, device=device)
        self.loss_sum = torch.zeros(len(models), dtype=torch.float64, device=device)
        self._graph: torch.cuda.CUDAGraph | None = None

    def logits(self, tokens: Tensor, read: Tensor) -> Tensor:
        """[k, n, q, v], without gradients."""
        with torch.no_grad():
            return torch.vmap(self._logits, (0, 0, None, None))(self.params, self.buffers, tokens, read)

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
        self.flat, self.first, self.second = self.flat[slots], self.first[slots], self.second[slots]
        self.params = self._views()
        self.buffers = {name: b[slots] for name, b in self.buffers.items()}
        self.rates, self.loss_sum = self.rates[slots], self.loss_sum[slots]
        self._graph = None

    def _views(self) -> dict[str, Tensor]:
        """Each parameter [k, ...] as a view into the rows."""
        parts = self.flat.split([shape.numel() for shape in self.shapes.values()], 1)
        named = zip(self.shapes.items(), parts, strict=True)
        return {name: part.unflatten(1, shape).requires_grad_() for (name, shape), part in named}

    def _logits(self, params: dict[str, Tensor], buffers: dict[str, Tensor], tokens: Tensor, read: Tensor) -> Tensor:
        return functional_call(self.template, (params, buffers), (tokens, read))

    def _step(self) -> None:
        rows = (self.counter * self.train.batch_size + self.within) % len(self.data.tokens)
        tokens, read, targets = self.data.tokens[rows], self.data.read[rows], self.data.targets[rows]

        def loss(params: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
            return cross_entropy(self._logits(params, buffers, tokens, read), targets)

        losses = torch.vmap(loss)(self.params, self.buffers)
        grads = torch.autograd.grad(losses.sum(), list(self.params.values()))
        with torch.no_grad():
            self._update(torch.cat([g.flatten(1) for g in grads], 1))
            self.loss_sum += losses.detach()
            self.counter += 1

    def _update(self, grads: Tensor) -> None:
        """AdamW with decoupled weight decay, a learning rate per member; grads [k, p]."""
        # Indexing by a number on the device would ask the host for it.
        rate_factor, step_factor, second_factor = self.factors.index_select(0, self.counter.view(1))[0].unbind()
        self.first.lerp_(grads, 1 - BETA1)
        self.second.mul_(BETA2).addcmul_(grads, grads, value=1 - BETA2)
        if self.train.weight_decay:
            self.flat.mul_(1 - (self.rates * rate_factor * self.train.weight_decay)[:, None])
        scale = (self.second.sqrt() * second_factor).add_(EPSILON)
        self.flat.sub_(self.first / scale * (self.rates * step_factor)[:, None])

    def _captured(self) -> torch.cuda.CUDAGraph:
        """The step as a CUDA graph. Warming up trains, so what it changed is put back before the capture."""
        state = [self.flat, self.first, self.second, self.counter, self.loss_sum]
        before = [tensor.clone() for tensor in state]
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_STEPS):
                self._step()
        torch.cuda.current_stream(self.device).wait_stream(side)
        with torch.no_grad():
            for tensor, value in zip(state, before, strict=True):
                tensor.copy_(value)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        return graph


def _factors(train: TrainSpec, step: int) -> tuple[float, float, float]:
    """Of one step: the schedule, the schedule over the first moment's correction, and one over the second's root."""
    schedule = rate_factor(train, step)
    return schedule, schedule / (1 - BETA1 ** (step + 1)), 1 / math.sqrt(1 - BETA2 ** (step + 1))
