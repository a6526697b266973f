"""One grid for K models of one shape at once, their parameters stacked along a leading axis."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import torch
from torch import Tensor

from mixerscope.artifacts.effects import Cell
from mixerscope.artifacts.self_test import SelfTest
from mixerscope.errors import SelfTestFailed, UserError
from mixerscope.interventions.batching import batching, device_of
from mixerscope.interventions.cache import evaluating
from mixerscope.interventions.cohort_selftest import self_tests
from mixerscope.interventions.edits import Edit
from mixerscope.interventions.engine import (
    SAME,
    Fact,
    Grid,
    Key,
    Measured,
    Measurement,
    Outcomes,
    assemble,
    interchange,
    join_chunks,
)
from mixerscope.interventions.pairs import Pairs
from mixerscope.interventions.plan import check_plan, full_plan
from mixerscope.interventions.stacked import Stacked
from mixerscope.model import Model


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
    plan = full_plan(models[0], pairs) if plan is None else plan
    check_plan(models[0], pairs, plan)
    here, batch = pairs.to(device_of(models[0])), batching(models[0], pairs, batch_documents, len(models))
    with ExitStack() as stack, torch.no_grad():
        for model in models:
            stack.enter_context(evaluating(model))
        prepared = [Measurement(model, here, plan, edits or {}, batch) for model in models]
        tested = self_tests(models, here, prepared[0].sites)
        sound = [index for index, test in enumerate(tested) if isinstance(test, SelfTest)]
        parts: dict[int, dict[Key, list[Measured]]] = {index: defaultdict(list) for index in sound}
        if sound:
            cohort = _Cohort([models[index] for index in sound], [prepared[index] for index in sound])
            chunks = list(here.chunks(batch.documents))
            for number, chunk in enumerate(chunks):
                for index, found in zip(sound, cohort.chunk(chunk, number * batch.documents), strict=True):
                    for key, measured in found.measured():
                        parts[index][key].append(measured)
                if progress is not None:
                    progress(number + 1, len(chunks))
    return [
        assemble(pairs, plan, join_chunks(parts[index]), test) if isinstance(test, SelfTest) else test
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


class _Cohort:
    """Models, and what their edits must know of all documents, stacked."""

    def __init__(self, models: Sequence[Model], prepared: list[Measurement]) -> None:
        self.stacked, self.measurement = Stacked(models), prepared[0]
        self.keys = list(prepared[0].everyone)
        self.everyone = [torch.stack([one.everyone[key] for one in prepared]) for key in self.keys]

    def chunk(self, pairs: Pairs, first: int) -> list[Outcomes]:
        """Per model, what `Measurement.chunk` gives."""
        outcomes: list[Outcomes] = []
        run: list[Cell] = []

        def program(model: Model, everyone: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
            same: dict[Cell, Tensor] = {}
            known = dict(zip(self.keys, everyone, strict=True))
            # What can be proven without looking at weights is the same for all models, and so is the order.
            outcomes.append(self.measurement.with_everyone(known).chunk(model, pairs, first, same))
            run.extend(same)
            return outcomes[0].table, list(same.values())

        tables, same = self.stacked.map(program, self.everyone)
        nothing_new = torch.stack(same).cpu().tolist() if same else []  # by cell and model
        return [
            Outcomes(_with_same(outcomes[0].facts, {c for c, by in zip(run, nothing_new, strict=True) if by[k]}), table)
            for k, table in enumerate(tables.cpu())
        ]


def _with_same(facts: list[Fact], same: set[Cell]) -> list[Fact]:
    """The facts of a model for which some cells write what is already there."""
    return [(fact[0], "same", SAME, fact[3]) if fact[0] in same else fact for fact in facts]
