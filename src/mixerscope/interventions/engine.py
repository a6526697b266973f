"""The intervention grid: every cell of a plan, measured, for one model or for K of one shape at once."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import torch

from mixerscope.artifacts.base import Frames
from mixerscope.artifacts.effects import ORIGINAL, Cell, CellStatus, EffectTable, against, corrupted
from mixerscope.artifacts.self_test import SelfTest
from mixerscope.errors import SelfTestFailed, UnknownName, UserError
from mixerscope.interventions.adapt import Adapted
from mixerscope.interventions.batching import batching, device_of
from mixerscope.interventions.cache import evaluating
from mixerscope.interventions.edits import Edit, find_edit
from mixerscope.interventions.effects import Effects, counterfactual_or_runner_up, non_finite
from mixerscope.interventions.measure import Key, Measurement
from mixerscope.interventions.members import Members
from mixerscope.interventions.pairs import Pairs
from mixerscope.interventions.plan import check_plan, full_plan
from mixerscope.interventions.programs import runner_of
from mixerscope.interventions.schedule import Scheduler
from mixerscope.interventions.selftest import self_tests
from mixerscope.machine import keep_freed_memory
from mixerscope.model import Model
from mixerscope.progress import Cancelled, Stop
from mixerscope.showing import Shown


@dataclass(frozen=True, repr=False)
class Measured(Shown):
    """What became of a cell.

    `measured`: run, itself or, as `reason` then says, at another site where it is the same edit.
    `no path`: the edit cannot reach what is read, so the effects are those of the unedited run, proven and not run.
    `same`: the edit writes the very bits that are there, so it changes nothing. `invalid`: some number is not finite.
    """

    effects: Effects
    status: CellStatus = "measured"
    reason: str = ""

    def sentence(self) -> str:
        """One line for people."""
        return f"{self.status}{f' ({self.reason})' if self.reason else ''}, {self.effects.sentence()}"


@dataclass(frozen=True, repr=False)
class Grid(Frames):
    """The outcome of a plan: per cell and document, beside the unedited runs. Effects are [n], or [n, q] where the
    pairs say that several reads are measured; `reading` gives one of those."""

    pairs: Pairs
    original: Effects
    corrupted: Mapping[str, Effects]
    """By slot."""
    against: Mapping[str, Effects]
    """By slot: the original documents, their logit difference taken against the symbols of that slot."""
    cells: Mapping[Cell, Measured]
    self_test: SelfTest

    def reading(self, name: str) -> "Grid":
        """The grid of one read alone, where several were measured together."""
        names = self.pairs.reads.names
        if name not in names:
            raise UnknownName("read", name, names)
        if len(names) == 1:
            return self
        number = names.index(name)
        return Grid(
            replace(self.pairs, asked=self.pairs.reads.only([name])),
            self.original.read(number),
            {slot: effects.read(number) for slot, effects in self.corrupted.items()},
            {slot: effects.read(number) for slot, effects in self.against.items()},
            {cell: replace(measured, effects=measured.effects.read(number)) for cell, measured in self.cells.items()},
            self.self_test,
        )

    def sentence(self) -> str:
        """One line for people."""
        sites, slots = len({cell.site for cell in self.cells}), ", ".join(self.pairs.patched)
        return f"{len(self.cells)} cells at {sites} sites, {slots} corrupted, {len(self.pairs)} documents"

    @cached_property
    def table(self) -> EffectTable:
        """All cells with their means and intervals; `effect_table` knows the model too, which judging needs."""
        from mixerscope.interventions.table import table_of  # it makes tables of grids

        return table_of(self)

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row per cell and metric, as of its `effect_table`."""
        return self.table.rows()

    def shown(self) -> Iterator[dict[str, Any]]:
        """The rows that a notebook shows."""
        return self.table.shown()

    def shaded(self) -> tuple[str, ...]:
        """The columns of shares."""
        return self.table.shaded()


AnyKey = TypeVar("AnyKey")
Progress = Callable[[int, int], Stop | None]
"""Called with the chunks done and all there are; may answer with a `Stop`, as everyone who is told of progress may."""


def interchange(
    model: Model | Adapted,
    pairs: Pairs,
    plan: list[Cell] | None = None,
    batch_documents: int = 64,
    progress: Progress | None = None,
    edits: Mapping[str, Edit] | None = None,
) -> Grid:
    """Measures every cell of the plan (default: all slots, directions, sites and roles, and what a verdict looks at
    beyond them) after a self-test.

    `edits` gives names to edits with settings of their own, such as {"steer": Add(vector)}, for cells to call.
    """
    members = Members([model])
    return _sound(_grids(members, pairs, plan, batch_documents, progress, edits))[0]


def interchange_cohort(
    models: Sequence[Model],
    pairs: Pairs,
    plan: list[Cell] | None = None,
    batch_documents: int = 64,
    progress: Progress | None = None,
    edits: Mapping[str, Edit] | None = None,
) -> list[Grid]:
    """`interchange` of every model, in one go: the same table as one by one, up to rounding."""
    return _sound(grids_or_failures(models, pairs, plan, batch_documents, progress, edits))


def grids_or_failures(
    models: Sequence[Model],
    pairs: Pairs,
    plan: list[Cell] | None = None,
    batch_documents: int = 64,
    progress: Progress | None = None,
    edits: Mapping[str, Edit] | None = None,
) -> list[Grid | SelfTestFailed]:
    """`interchange_cohort`, but a model that fails the self-test gives its error and does not stop the others."""
    return _grids(Members(models), pairs, plan, batch_documents, progress, edits) if models else []


def _sound(found: list[Grid | SelfTestFailed]) -> list[Grid]:
    grids: list[Grid] = []
    for one in found:
        if isinstance(one, SelfTestFailed):
            raise one
        grids.append(one)
    return grids


def _grids(
    members: Members,
    pairs: Pairs,
    plan: list[Cell] | None,
    batch_documents: int,
    progress: Progress | None,
    edits: Mapping[str, Edit] | None,
) -> list[Grid | SelfTestFailed]:
    keep_freed_memory()
    if batch_documents < 1:
        raise UserError(f"batch_documents = {batch_documents} should be at least 1")
    model = members.first
    plan = full_plan(model, pairs) if plan is None else list(plan)
    check_plan(model, pairs, plan)
    here, batch = pairs.to(device_of(model)), batching(model, pairs, batch_documents, len(members))
    named = {cell.edit: find_edit(cell.edit, edits or {}) for cell in plan}
    with members.evaluating():
        measurement = Measurement(model, Scheduler(runner_of(model), plan, named), here, batch)
        tested = self_tests(members, here, measurement.scheduler.sites)
        sound = [number for number, test in enumerate(tested) if isinstance(test, SelfTest)]
        found = _measured(members.only(sound), measurement, progress) if sound else []
    by_member = dict(zip(sound, found, strict=True))
    return [
        _assembled(pairs, plan, by_member[number], test) if isinstance(test, SelfTest) else test
        for number, test in enumerate(tested)
    ]


def _measured(members: Members, measurement: Measurement, progress: Progress | None) -> list[dict[Key, Measured]]:
    """Per model, every cell and unedited run over all documents."""
    everyone = measurement.everyone(members)
    parts: list[dict[Key, list[Measured]]] = [defaultdict(list) for _ in members.models]
    for number, chunk in enumerate(measurement.chunks):
        outcomes = measurement.chunk(members, chunk, everyone)
        for member, table in enumerate(outcomes.tables().unbind()):
            # The usual single read has no axis of its own.
            rows = [Effects(*row.unbind()) for row in (table[..., 0] if table.shape[-1] == 1 else table).unbind()]
            for key, status, reason, row in outcomes.of(member):
                parts[member][key].append(Measured(rows[row], status, reason))
        answer = None if progress is None else progress(number + 1, len(measurement.chunks))
        if isinstance(answer, Stop):
            raise Cancelled(answer)
    return [join_chunks(own) for own in parts]


def _assembled(pairs: Pairs, plan: list[Cell], found: Mapping[Key, Measured], tested: SelfTest) -> Grid:
    return Grid(
        pairs,
        original=found[ORIGINAL].effects,
        corrupted={slot: found[corrupted(slot)].effects for slot in pairs.corrupted},
        against={slot: found[against(slot)].effects for slot in pairs.corrupted},
        cells={cell: found[cell] for cell in plan},
        self_test=tested,
    )


def join_chunks(parts: Mapping[AnyKey, list[Measured]]) -> dict[AnyKey, Measured]:
    """Every cell over all its chunks."""
    effects = [Effects.join([part.effects for part in chunks]) for chunks in parts.values()]
    bad = non_finite(effects)
    joined = (_joined(*found) for found in zip(parts.values(), effects, bad, strict=True))
    return dict(zip(parts, joined, strict=True))


def _joined(parts: list[Measured], effects: Effects, bad: int) -> Measured:
    """It counts as measured as soon as one chunk had to be run."""
    if bad:
        return Measured(effects, "invalid", f"not finite in {bad} of {len(effects.likelihood)} documents")
    order: list[CellStatus] = ["measured", "same", "no path"]
    found = {part.status for part in parts}
    status: CellStatus = next(filter(found.__contains__, order))
    reasons = {part.reason for part in parts if part.status == status}
    return Measured(effects, status, reasons.pop() if len(reasons) == 1 else "")


def unedited_effects(
    model: Model | Adapted, pairs: Pairs, batch_documents: int = 64
) -> tuple[Effects, dict[str, Effects]]:
    """The original documents and, by slot, the corrupted ones, through a model of which nothing is edited."""
    here, batch = pairs.to(device_of(model)), batching(model, pairs, batch_documents)
    parts: dict[str, list[Effects]] = defaultdict(list)
    with evaluating(model), torch.inference_mode():
        for chunk in here.chunks(batch.documents):
            # Of several reads the first, which headlines speak of.
            reads = chunk.reads.only(chunk.reads.names[:1])
            for name, documents in {ORIGINAL: chunk.original, **chunk.corrupted}.items():
                logits = model(documents.tokens, reads.positions)
                others = counterfactual_or_runner_up(reads.others.get(name), logits, reads.targets)
                parts[name].append(Effects.of(logits, reads.targets, others).read(0).cpu())
    joined = {name: Effects.join(effects) for name, effects in parts.items()}
    return joined.pop(ORIGINAL), joined
