"""One grid for K models of one shape at once, their parameters stacked along a leading axis."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from mixerscope.errors import UserError
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
    join_chunks,
)
from mixerscope.interventions.pairs import Pairs
from mixerscope.interventions.plan import Cell, check_plan, plan_grid
from mixerscope.interventions.selftest import self_test
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
    edits: Mapping[str, Edit] | None = None,
) -> list[Grid]:
    """`interchange` of every model, in one go: the same table as one by one, up to rounding."""
    if any(model.spec != models[0].spec for model in models):
        raise UserError("models of one cohort must have the same model spec")
    plan = plan_grid(models[0], pairs) if plan is None else plan
    check_plan(models[0], pairs, plan)
    parts: list[dict[Key, list[Measured]]] = [defaultdict(list) for _ in models]
    with ExitStack() as stack, torch.no_grad():
        for model in models:
            stack.enter_context(evaluating(model))
        prepared = [Measurement(model, pairs, plan, edits or {}, batch_documents) for model in models]
        tested = [self_test(model, pairs, ready.sites) for model, ready in zip(models, prepared, strict=True)]
        stacked = _Stacked(models, prepared)
        for number, chunk in enumerate(pairs.chunks(batch_documents)):
            for part, found in zip(parts, stacked.chunk(chunk, number * batch_documents), strict=True):
                for key, measured in found:
                    part[key].append(measured)
    return [
        assemble(pairs, plan, {key: join_chunks(found) for key, found in part.items()}, test)
        for part, test in zip(parts, tested, strict=True)
    ]


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
