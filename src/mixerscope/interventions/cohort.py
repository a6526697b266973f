"""One grid for K models of one shape at once, their parameters stacked along a leading axis."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from mixerscope.errors import SelfTestFailed, UserError
from mixerscope.interventions.cache import evaluating
from mixerscope.interventions.edits import Edit
from mixerscope.interventions.effects import Effects
from mixerscope.interventions.engine import (
    SAME,
    Grid,
    Key,
    Measured,
    Measurement,
    Status,
    assemble,
    interchange,
    join_chunks,
)
from mixerscope.interventions.pairs import Pairs
from mixerscope.interventions.plan import Cell, check_plan, plan_grid
from mixerscope.interventions.selftest import SelfTest, self_test
from mixerscope.model import Model


class _Running(nn.Module):
    """A module whose forward pass is any program that uses the model, so that the program can run on other weights."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, program: Callable[[Model], Any]) -> Any:
        return program(self.model)


def interchange_cohort(
    models: Sequence[Model],
    pairs: Pairs,
    plan: list[Cell] | None = None,
    batch_documents: int = 64,
    progress: Callable[[int, int], None] | None = None,
    edits: Mapping[str, Edit] | None = None,
) -> list[Grid]:
    """`interchange` of every model, in one go: the same table as one by one, up to rounding."""
    grids: list[Grid] = []
    for found in grids_or_failures(models, pairs, plan, batch_documents, progress, edits):
        if isinstance(found, SelfTestFailed):
            raise found
        grids.append(found)
    return grids


def grids_or_failures(
    models: Sequence[Model],
    pairs: Pairs,
    plan: list[Cell] | None = None,
    batch_documents: int = 64,
    progress: Callable[[int, int], None] | None = None,
    edits: Mapping[str, Edit] | None = None,
) -> list[Grid | SelfTestFailed]:
    """`interchange_cohort`, but a model that fails the self-test gives its error and does not stop the others."""
    if any(model.spec != models[0].spec for model in models):
        raise UserError("models of one cohort must have the same model spec")
    if len(models) < 2:
        return [_alone(model, pairs, plan, batch_documents, progress, edits) for model in models]
    plan = plan_grid(models[0], pairs) if plan is None else plan
    check_plan(models[0], pairs, plan)
    with ExitStack() as stack, torch.no_grad():
        for model in models:
            stack.enter_context(evaluating(model))
        prepared = [Measurement(model, pairs, plan, edits or {}, batch_documents) for model in models]
        tested = [_tested(model, pairs, ready.sites) for model, ready in zip(models, prepared, strict=True)]
        sound = [index for index, test in enumerate(tested) if isinstance(test, SelfTest)]
        parts: dict[int, dict[Key, list[Measured]]] = {index: defaultdict(list) for index in sound}
        if sound:
            stacked = _Stacked([models[index] for index in sound], [prepared[index] for index in sound])
            chunks = list(pairs.chunks(batch_documents))
            for number, chunk in enumerate(chunks):
                for index, found in zip(sound, stacked.chunk(chunk, number * batch_documents), strict=True):
                    for key, measured in found:
                        parts[index][key].append(measured)
                if progress is not None:
                    progress(number + 1, len(chunks))
    return [
        assemble(pairs, plan, {key: join_chunks(found) for key, found in parts[index].items()}, test)
        if isinstance(test, SelfTest)
        else test
        for index, test in enumerate(tested)
    ]


def _alone(
    model: Model,
    pairs: Pairs,
    plan: list[Cell] | None,
    batch_documents: int,
    progress: Callable[[int, int], None] | None,
    edits: Mapping[str, Edit] | None,
) -> Grid | SelfTestFailed:
    try:
        return interchange(model, pairs, plan, batch_documents, progress, edits)
    except SelfTestFailed as failure:
        return failure


def _tested(model: Model, pairs: Pairs, sites: list[str]) -> SelfTest | SelfTestFailed:
    try:
        return self_test(model, pairs, sites)
    except SelfTestFailed as failure:
        return failure


class _Stacked:
    """Models, and what their edits must know of all documents, stacked."""

    def __init__(self, models: Sequence[Model], prepared: list[Measurement]) -> None:
        self.count = len(models)
        self.running = _Running(models[0])
        # By hand, since torch's own stacking refuses members of which only some are frozen.
        states = [_Running(model).state_dict() for model in models]
        self.weights = {name: torch.stack([state[name] for state in states]) for name in states[0]}
        self.measurement = prepared[0]
        self.keys = list(prepared[0].everyone)
        self.everyone = [torch.stack([one.everyone[key] for one in prepared]) for key in self.keys]

    def chunk(self, pairs: Pairs, first: int) -> list[list[tuple[Key, Measured]]]:
        """Per model, what `Measurement.chunk` gives."""
        facts: list[tuple[Key, Status, str]] = []
        run: list[Cell] = []

        def program(weights: dict[str, Tensor], everyone: list[Tensor]) -> Any:
            def measure(model: Model) -> Any:
                same: dict[Cell, Tensor] = {}
                known = dict(zip(self.keys, everyone, strict=True))
                found = self.measurement.with_everyone(known).chunk(model, pairs, first, same)
                # What can be proven without looking at weights is the same for all models, and so is the order.
                facts[:] = [(key, measured.status, measured.reason) for key, measured in found]
                run[:] = list(same)
                return [measured.effects.columns() for _, measured in found], list(same.values())

            return functional_call(self.running, weights, (measure,))

        columns, same = torch.vmap(program, randomness="same")(self.weights, self.everyone)
        return [self._member(k, facts, columns, dict(zip(run, same, strict=True))) for k in range(self.count)]

    @staticmethod
    def _member(
        k: int, facts: list[tuple[Key, Status, str]], columns: list[tuple[Tensor, ...]], same: dict[Cell, Tensor]
    ) -> list[tuple[Key, Measured]]:
        found: list[tuple[Key, Measured]] = []
        for (key, status, reason), stacked in zip(facts, columns, strict=True):
            effects = Effects(*(column[k] for column in stacked))
            if isinstance(key, Cell) and key in same and bool(same[key][k]):
                status, reason = "same", SAME
            found.append((key, Measured(effects, status, reason)))
        return found
