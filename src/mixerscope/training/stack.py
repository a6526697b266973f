"""K models of one shape on one device: stacked parameters, optimiser state, and one training step for all of them.

A step reads its batch, its learning rate and its bias corrections from tables on the device by a counter on the
device, so that it needs nothing from the host: on a GPU it is captured as a CUDA graph and replayed.
"""

import math
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from mixerscope import kernels
from mixerscope.machine import Machine
from mixerscope.model import Model
from mixerscope.spec import TrainSpec
from mixerscope.training.batches import Batches
from mixerscope.training.memory import BUILDING
from mixerscope.training.objective import Answer, Objective
from mixerscope.training.schedule import rate_factor
from mixerscope.training.update import BETA1, BETA2, LARGE, adamw, add_rows, look_up

TABLE = "model.token_embedding.weight"
WARM_UPS = 2
"""Before a capture, in which libraries allocate what a graph may not."""
UNROLLED = 8
"""Steps in one graph where they can be: a host that is busy with other cohorts then has to launch less often."""
ALIGNED = 4
"""Rows of parameters start at multiples of 16 bytes, which fast kernels ask for."""

LAUNCHED_AHEAD = 4
"""Graphs that wait on the device at most, and none while another cohort gets ready: whoever loads a kernel may have to
wait for all that the device has been given to do, and getting ready means loading a hundred kernels."""
LITTLE_ROOM = 0.25
"""Of the device's memory: with less than this free, what is kept for later use is handed back before a capture, which
cannot do so itself. Doing it every time would stop all cohorts until the device has done all its work."""


Lengths = tuple[int, ...]
"""Positions of a batch, of each of its parts."""


class _Part(NamedTuple):
    """Documents of a batch that are computed together: tokens [n, t], cut; scored positions and targets [n, q]; what
    the objective knows of them; and which order [n t] sorts the tokens."""

    tokens: Tensor
    read: Tensor
    targets: Tensor
    more: dict[str, Tensor]
    order: Tensor


class _Loss(nn.Module):
    """A model as the function that a step differentiates: from looked-up rows [b, t, d] to the loss."""

    def __init__(self, model: Model, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.loss = objective.loss

    def forward(self, rows: Tensor, read: Tensor, targets: Tensor, more: dict[str, Tensor]) -> Tensor:
        return self.loss(self.model, rows, read, targets, more)


class Stack:
    """The members of a cohort that are still in training."""

    def __init__(
        self,
        models: list[Model],
        rates: list[float],
        decays: list[float],
        train: TrainSpec,
        batches: Batches,
        machine: Machine,
        objective: Objective | None = None,
    ) -> None:
        device = torch.device(machine.device)
        objective = Answer() if objective is None else objective
        stacked, buffers = stack_module_state([_Loss(model.to(device), objective) for model in models])
        self.buffers: dict[str, Tensor] = {name: b.detach() for name, b in buffers.items()}
        # All parameters of a member lie in one row, so that an update is a few operations and not a few per tensor:
        # large ones first, then the rest; what would put others off their alignment, last.
        sizes = {name: p[0].numel() for name, p in stacked.items()}
        large = {name for name, size in sizes.items() if size * len(models) >= LARGE}
        names = sorted(sizes, key=lambda name: (name != TABLE, name not in large, sizes[name] % ALIGNED != 0))
        self.shapes = {name: stacked[name].shape[1:] for name in names}
        rows = [stacked[name].detach().flatten(1) for name in names]
        self.unused = -sum(row.shape[1] for row in rows) % ALIGNED
        rows.append(rows[0].new_zeros(len(models), self.unused))
        self.flat = torch.cat(rows, 1)  # [k, p]
        self.params = self._views()
        self.first, self.second = torch.zeros_like(self.flat), torch.zeros_like(self.flat)
        # The forward pass is that of one module; which parameters it uses is decided at each call.
        self.template = _Loss(models[0].to("meta"), objective)
        self.batches, self.machine, self.device = batches, machine, device
        wide = torch.promote_types(self.flat.dtype, torch.float32)
        self.rates = torch.tensor(rates, dtype=wide, device=device)  # [k]
        self.decays = torch.tensor(decays, dtype=wide, device=device)  # [k]
        self.factors = torch.tensor([_factors(train, step) for step in range(train.steps)], dtype=wide, device=device)
        self.counter = torch.zeros(1, dtype=torch.int64, device=device)
        self.offsets = torch.arange(UNROLLED, device=device)
        self.done = 0
        """The same number on the host."""
        self.loss_sum = torch.zeros(len(models), dtype=torch.float64, device=device)
        self._losses = stacked_loss(self.template)
        if machine.compile:
            from mixerscope.training.compiling import compiled

            self._losses = compiled(self._losses)
        self._graphs: dict[tuple[Lengths, int], torch.cuda.CUDAGraph] = {}
        self._launched: deque[torch.cuda.Event] = deque()
        self._side: torch.cuda.Stream | None = None

    @property
    def steps_at_once(self) -> int:
        """How many steps to ask for in one go, so that asking costs nothing and progress is still seen."""
        return 1 if self.device.type == "cpu" else 10 * UNROLLED

    def logits(self, tokens: Tensor, read: Tensor) -> Tensor:
        """[k, n, q, v], without gradients."""

        def of_one(params: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
            named = {name.removeprefix("model."): tensor for name, tensor in (params | buffers).items()}
            return functional_call(self.template.model, named, (tokens, read))

        with torch.no_grad():
            return torch.vmap(of_one)(self.params, self.buffers)

    def advance(self, steps: int) -> None:
        """So many updates of every member, each on the next batch; adds each member's losses to `loss_sum`."""
        end = self.done + steps
        while self.done < end:
            lengths = self._lengths(self.done)
            if self.device.type != "cuda":
                self._steps(lengths, 1)
                self.done += 1
                continue
            together = self._together(end)
            self._graph(lengths, together).replay()
            self.done += together
            self._launched.append(torch.cuda.Event(blocking=True))
            self._launched[-1].record()
            most = 0 if BUILDING.locked() else LAUNCHED_AHEAD
            while len(self._launched) > most:
                self._launched.popleft().synchronize()

    def build(self) -> None:
        """Gets ready for every step there will be, where that takes time and memory: training meets nothing new."""
        if self.device.type == "cuda":
            # Short ones find room where long ones were; and the last step alone is the one to compare kernels on.
            for lengths, steps in sorted(self.spans(), key=lambda span: ([-length for length in span[0]], span[1])):
                self._graph(lengths, steps)

    def compile(self, share: int, of: int) -> None:
        """What `build` would meet that is not compiled yet, or such a share of it."""
        if self.device.type == "cuda":
            for lengths in self.batches.covering[share::of]:
                self._graph(lengths, 1)

    def spans(self) -> set[tuple[Lengths, int]]:
        """All that may be a graph: the lengths of a batch's parts, and how many steps on batches of these lengths."""
        kinds = set(self.batches.lengths)
        return {(lengths, steps) for lengths in kinds for steps in (1, UNROLLED) if self._starts(lengths, steps)}

    def weights(self, slot: int) -> dict[str, Tensor]:
        """A copy of one member's parameters and buffers, on the CPU."""
        tensors = self.params | self.buffers
        return {
            name.removeprefix("model."): tensor[slot].detach().to("cpu", copy=True) for name, tensor in tensors.items()
        }

    def keep(self, slots: list[int]) -> None:
        """Goes on with the members in `slots` only."""
        self.flat, self.first, self.second = self.flat[slots], self.first[slots], self.second[slots]
        self.params = self._views()
        self.buffers = {name: b[slots] for name, b in self.buffers.items()}
        self.rates, self.decays, self.loss_sum = self.rates[slots], self.decays[slots], self.loss_sum[slots]
        self._graphs = {}

    def state(self) -> dict[str, Tensor]:
        """What training has changed, by name: the tensors themselves."""
        return {"flat": self.flat, "first": self.first, "second": self.second, "loss_sum": self.loss_sum}

    def load(self, state: Mapping[str, Tensor], done: int) -> None:
        """Goes on from a `state` after so many steps. Memory stays where it is: captured steps know its address."""
        with torch.no_grad():
            for name, tensor in self.state().items():
                tensor.copy_(state[name])
            self.counter.fill_(done)
        self.done = done

    def _views(self) -> dict[str, Tensor]:
        """Each parameter [k, ...] as a view into the rows."""
        parts = self.flat.split([*(shape.numel() for shape in self.shapes.values()), self.unused], 1)
        named = zip(self.shapes.items(), parts, strict=False)
        return {name: part.unflatten(1, shape).requires_grad_() for (name, shape), part in named}

    def _together(self, end: int) -> int:
        """How many of the next steps are one graph."""
        return UNROLLED if end - self.done >= UNROLLED and self._alike(self.done, UNROLLED) else 1

    def _alike(self, start: int, steps: int) -> bool:
        """Whether so many batches from here on have the same lengths."""
        return len({self._lengths(start + i) for i in range(steps)}) == 1

    def _starts(self, lengths: Lengths, steps: int) -> list[int]:
        """Steps of the first round through the batches from which on so many have these lengths."""
        starts = range(min(self.batches.count, len(self.factors) - steps + 1))
        return [start for start in starts if self._lengths(start) == lengths and self._alike(start, steps)]

    def _lengths(self, step: int) -> Lengths:
        return self.batches.lengths[step % self.batches.count]

    def _steps(self, lengths: Lengths, steps: int) -> None:
        """So many steps on batches of these lengths. Each table they read is looked up once for all of them."""
        now = self.counter + self.offsets[:steps]
        factors = self.factors.index_select(0, now)
        batch = now % self.batches.count
        tokens, read, targets, order = (
            table.index_select(0, batch)
            for table in (self.batches.tokens, self.batches.read, self.batches.targets, self.batches.order)
        )
        more = {name: table.index_select(0, batch) for name, table in self.batches.more.items()}
        losses: list[Tensor] = []
        for i in range(steps):
            own = {name: table[i] for name, table in more.items()}
            parts = self._parts(lengths, tokens[i], read[i], targets[i], own, order[i])
            losses.append(self._step(parts, factors[i, :3]))
        self.loss_sum += torch.stack(losses).sum(0, dtype=torch.float64)
        self.counter += steps

    def _parts(
        self, lengths: Lengths, tokens: Tensor, read: Tensor, targets: Tensor, more: dict[str, Tensor], order: Tensor
    ) -> list[_Part]:
        sizes, parts = self.batches.sizes, list[_Part]()
        places = [size * length for size, length in zip(sizes, lengths, strict=True)]
        by_part = zip(*(tensor.split(sizes) for tensor in (tokens, read, targets)), strict=True)
        orders = order[: sum(places)].split(places)
        for number, (of_tokens, of_read, of_targets) in enumerate(by_part):
            own = {name: table.split(sizes)[number] for name, table in more.items()}
            parts.append(_Part(of_tokens[:, : lengths[number]], of_read, of_targets, own, orders[number]))
        return parts

    def _step(self, parts: list[_Part], factors: Tensor) -> Tensor:
        """One update of every member; its losses [k]."""
        total: Tensor | None = None
        grads: list[Tensor] = []
        in_rows: list[Tensor] = []
        for part, share in zip(parts, self.batches.shares, strict=True):
            # The rows are looked up outside of what is differentiated: their gradient then stays small, and joins the
            # table's, which the head makes, without another pass over the whole vocabulary.
            rows = look_up(self.params[TABLE].detach(), part.tokens).requires_grad_()
            losses = self._losses(self.params, self.buffers, rows, part.read, part.targets, part.more)
            by = torch.full_like(losses, share)
            of_rows, *others = torch.autograd.grad(losses, [rows, *self.params.values()], by)
            in_rows.append(of_rows)
            # All sums in a few launches.
            grads = [*torch._foreach_add(grads, others)] if grads else others  # pyright: ignore[reportPrivateImportUsage]
            own = losses.detach() if len(parts) == 1 else losses.detach() * share
            total = own if total is None else total + own
        assert total is not None
        in_table, *rest = grads
        with torch.no_grad():
            in_table = in_table.contiguous()
            for part, of_rows in zip(parts, in_rows, strict=True):
                add_rows(in_table, part.tokens.flatten(), of_rows.flatten(1, 2), part.order)
            grads = [in_table, *rest]
            adamw(self.flat, self.first, self.second, grads, self.rates, self.decays, factors)
        return total

    def _graph(self, lengths: Lengths, steps: int) -> torch.cuda.CUDAGraph:
        """`steps` steps on batches of these lengths, captured."""
        if (lengths, steps) not in self._graphs:
            with BUILDING:
                self._graphs[lengths, steps] = self._captured(lengths, steps)
        return self._graphs[lengths, steps]

    def _captured(self, lengths: Lengths, steps: int) -> torch.cuda.CUDAGraph:
        # Not `torch.cuda.graph`: it waits until the whole device is idle, frees all memory that is not in use, and
        # captures everything on one stream.
        here = torch.cuda.current_stream(self.device)
        self._side = self._side or _lent_stream(self)
        kernels.tally_stream(self._side)
        self._side.wait_stream(here)
        graph = torch.cuda.CUDAGraph()
        # One graph of a stack at a time runs, and none leaves anything for another, so they share their memory.
        others = list(self._graphs.values())
        pool = others[0].pool() if others else torch.cuda.graph_pool_handle()
        with torch.cuda.stream(self._side):
            if all(steps > warm for known, warm in self._graphs if known == lengths):
                self._warm_up(lengths, steps)
            free, total = torch.cuda.mem_get_info(self.device)
            if free < LITTLE_ROOM * total:
                torch.cuda.empty_cache()
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                self._steps(lengths, steps)
            except BaseException:
                with suppress(RuntimeError):  # there is nothing to end well; why is what counts
                    graph.capture_end()
                raise
            graph.capture_end()
        here.wait_stream(self._side)
        return graph

    def _warm_up(self, lengths: Lengths, steps: int) -> None:
        """What is to be captured, a few times. It trains, so what it changed is put back."""
        state = [*self.state().values(), self.counter]
        before = [tensor.clone() for tensor in state]
        # The batches that come next may be longer; and the first of all may be trained on with a rate of zero, which
        # would hide a wrong update from those who compare.
        start = self._starts(lengths, steps)[-1]
        start += (len(self.factors) - steps - start) // self.batches.count * self.batches.count
        for _ in range(WARM_UPS):
            self.counter.fill_(start)
            self._steps(lengths, steps)
        with torch.no_grad():
            for tensor, value in zip(state, before, strict=True):
                tensor.copy_(value)


_free_streams: list[torch.cuda.Stream] = []


def _lent_stream(stack: Stack) -> torch.cuda.Stream:
    """A stream on which to capture a stack, which no other has while it lives.

    Gradients of all cohorts are computed in one thread, and matrix products of one thread and one stream share a
    workspace, in graphs too: captured on one stream and run at the same time, cohorts would write into each other's.
    """
    stream = _free_streams.pop() if _free_streams else torch.cuda.Stream(stack.device)
    weakref.finalize(stack, _free_streams.append, stream)
    return stream


def stacked_loss(template: _Loss) -> Callable[..., Tensor]:
    """The function from parameters, buffers and rows [k, ...] to losses [k].

    Not a method: a stack that held a function that holds the stack would keep its memory until Python next collects
    garbage, and the stack after it would find no room.
    """

    def losses(
        params: dict[str, Tensor],
        buffers: dict[str, Tensor],
        rows: Tensor,
        read: Tensor,
        targets: Tensor,
        more: dict[str, Tensor],
    ) -> Tensor:
        def of_one(params: dict[str, Tensor], buffers: dict[str, Tensor], rows: Tensor) -> Tensor:
            return functional_call(template, (params, buffers), (rows, read, targets, more))

        return torch.vmap(of_one)(params, buffers, rows)

    return losses


def _factors(train: TrainSpec, step: int) -> tuple[float, float, float, float]:
    """Of one step: the schedule, the schedule over the first moment's correction, and one over the second's root.

    And nothing, so that every step's start at a multiple of 16 bytes.
    """
    schedule = rate_factor(train, step)
    return schedule, schedule / (1 - BETA1 ** (step + 1)), 1 / math.sqrt(1 - BETA2 ** (step + 1)), 0.0
