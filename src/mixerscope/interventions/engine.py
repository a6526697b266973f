"""The intervention grid: every cell of a plan, measured."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import torch
from torch import Tensor

from mixerscope.artifacts.effects import JOINT, ORIGINAL, SWAP, Cell, CellStatus
from mixerscope.artifacts.self_test import SelfTest
from mixerscope.interventions.adapt import Adapted, WholePass
from mixerscope.interventions.batching import Batching, batching, device_of
from mixerscope.interventions.cache import activations, evaluating
from mixerscope.interventions.check_model import self_test_whole
from mixerscope.interventions.edits import Edit, Here, find_edit
from mixerscope.interventions.effects import Distribution, Effects, non_finite, rivals_or_runner_up
from mixerscope.interventions.pairs import Pairs
from mixerscope.interventions.plan import check_plan, full_plan
from mixerscope.interventions.resume import Resumption, pick, stand_ins
from mixerscope.interventions.selftest import DOCUMENTS, self_test
from mixerscope.interventions.states import demand_one_size, is_state, mixer_of
from mixerscope.model import Model

SAME = "the edit writes what is already there"


@dataclass(frozen=True)
class Measured:
    """What became of a cell.

    `measured`: run, itself or, as `reason` then says, at another site where it is the same edit.
    `no path`: the edit cannot reach what is read, so the effects are those of the unedited run, proven and not run.
    `same`: the edit writes the very bits that are there, so it changes nothing. `invalid`: some number is not finite.
    """

    effects: Effects
    status: CellStatus = "measured"
    reason: str = ""


@dataclass(frozen=True)
class Grid:
    """The outcome of a plan: per cell and document, beside the unedited runs."""

    pairs: Pairs
    original: Effects
    corrupted: Mapping[str, Effects]
    """By slot."""
    cells: Mapping[Cell, Measured]
    self_test: SelfTest

    def __repr__(self) -> str:
        sites, slots = len({cell.site for cell in self.cells}), ", ".join(self.pairs.patched)
        return f"<Grid: {len(self.cells)} cells at {sites} sites, {slots} corrupted, {len(self.pairs)} documents>"


Key = Cell | str
"""A cell, or 'original', or 'corrupted <slot>'."""
AnyKey = TypeVar("AnyKey")
Fact = tuple[Key, CellStatus, str, int]
"""Key, status, reason, and the row of a table that holds the numbers."""


def resume(model: Model | Adapted, tokens: Tensor, read: Tensor) -> Resumption:
    """The means to run edits of these documents: on from the edit, or the whole pass again in a foreign module."""
    return WholePass(model, tokens, read) if isinstance(model, Adapted) else Resumption(model, tokens, read)


def interchange(
    model: Model | Adapted,
    pairs: Pairs,
    plan: list[Cell] | None = None,
    batch_documents: int = 64,
    progress: Callable[[int, int], None] | None = None,
    edits: Mapping[str, Edit] | None = None,
) -> Grid:
    """Measures every cell of the plan (default: all slots, directions, sites and roles, and what a verdict looks at
    beyond them) after a self-test.

    `edits` gives names to edits with settings of their own, such as {"steer": Add(vector)}, for cells to call.
    """
    plan = full_plan(model, pairs) if plan is None else plan
    check_plan(model, pairs, plan)
    here, batch = pairs.to(device_of(model)), batching(model, pairs, batch_documents)
    with evaluating(model), torch.inference_mode():
        measurement = Measurement(model, here, plan, edits or {}, batch)
        if isinstance(model, Adapted):
            tested = self_test_whole(model, here.original.tokens[:DOCUMENTS], measurement.sites)
        else:
            tested = self_test(model, here, measurement.sites)
        parts: dict[Key, list[Measured]] = defaultdict(list)
        chunks = list(here.chunks(batch.documents))
        for done, chunk in enumerate(chunks):
            for key, measured in measurement.chunk(model, chunk, done * batch.documents).measured():
                parts[key].append(measured)
            if progress is not None:
                progress(done + 1, len(chunks))
    return assemble(pairs, plan, join_chunks(parts), tested)


def unedited_effects(
    model: Model | Adapted, pairs: Pairs, batch_documents: int = 64
) -> tuple[Effects, dict[str, Effects]]:
    """The original documents and, by slot, the corrupted ones, through a model of which nothing is edited."""
    here, batch = pairs.to(device_of(model)), batching(model, pairs, batch_documents)
    parts: dict[str, list[Effects]] = defaultdict(list)
    with evaluating(model), torch.inference_mode():
        for chunk in here.chunks(batch.documents):
            read, answers = chunk.original.answers()
            parts[ORIGINAL].append(Effects.of(model(chunk.original.tokens, read[:, None])[:, 0], answers).cpu())
            for slot, documents in chunk.corrupted.items():
                logits = model(documents.tokens, read[:, None])[:, 0]
                rivals = rivals_or_runner_up(chunk.rivals.get(slot), logits, answers)
                parts[slot].append(Effects.of(logits, answers, rivals).cpu())
    joined = {name: Effects.join(effects) for name, effects in parts.items()}
    return joined.pop(ORIGINAL), joined


def assemble(pairs: Pairs, plan: list[Cell], found: Mapping[Key, Measured], tested: SelfTest) -> Grid:
    return Grid(
        pairs,
        original=found["original"].effects,
        corrupted={slot: found[f"corrupted {slot}"].effects for slot in pairs.corrupted},
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


@dataclass(frozen=True)
class Outcomes:
    """What became of a plan over some documents. Cells that are the same run share a row of the table."""

    facts: list[Fact]
    table: Tensor
    """[rows, metrics, n]"""

    def measured(self) -> list[tuple[Key, Measured]]:
        """One by one, on the CPU."""
        rows = [Effects(*row.unbind()) for row in self.table.cpu().unbind()]
        return [(key, Measured(rows[row], status, reason)) for key, status, reason, row in self.facts]


class Measurement:
    """A plan made ready: which edits it names, and what those must know of all documents before any chunk runs."""

    def __init__(
        self, model: Model | Adapted, pairs: Pairs, plan: list[Cell], edits: Mapping[str, Edit], batch: Batching
    ) -> None:
        self.plan, self.batch = plan, batch
        self.edits = {cell.edit: find_edit(cell.edit, edits) for cell in plan}
        sites, swapped = {cell.site for cell in plan}, {cell.site for cell in plan if cell.edit == SWAP}
        if isinstance(model, Model):
            sites |= stand_ins(swapped, len(model.blocks))
        self.sites = sorted(sites)
        self.everyone: dict[tuple[str, str, str, str], Tensor] = {}
        """By slot, direction, site and role: what the documents that run hold there, [all documents, p, ...]."""
        for cell in plan:
            edit, key = self.edits[cell.edit], (cell.slot, cell.direction, cell.site, cell.role)
            if edit.mixes_documents and is_state(cell.site) and isinstance(model, Model):
                demand_one_size(mixer_of(model, cell.site), cell.site, pairs.places(cell.role))
            if edit.sees_everyone and key not in self.everyone:
                base = pairs.corrupted[cell.slot] if cell.direction == "restore" else pairs.original
                found = activations(model, base, [cell.site], [cell.role], batch.documents)[cell.site, cell.role]
                self.everyone[key] = found if JOINT in cell.role else found[:, None]

    def with_everyone(self, everyone: dict[tuple[str, str, str, str], Tensor]) -> "Measurement":
        """The same plan, for a model whose documents hold something else."""
        other = copy(self)
        other.everyone = everyone
        return other

    def chunk(
        self, model: Model | Adapted, pairs: Pairs, first: int, stacked_same: dict[Cell, Tensor] | None = None
    ) -> Outcomes:
        """All cells over the documents from number `first` on, and the unedited runs.

        With `stacked_same`, cells are run even if the edit changes nothing, and whether it does is put there: under
        vmap one cell can be `same` in one model and not in another.
        """
        read, answers = pairs.original.answers()
        documents = slice(first, first + len(pairs))
        places = {role: pairs.places(role) for role in {cell.role: None for cell in self.plan}}
        original = resume(model, pairs.original.tokens, read)
        original.run(self.sites)
        facts: list[Fact] = [("original", "measured", "", 0)]
        rows = [Effects.of(original.logits, answers).table()]
        for slot, batch in pairs.corrupted.items():
            corrupted = resume(model, batch.tokens, read)
            corrupted.run(self.sites)
            rivals = rivals_or_runner_up(pairs.rivals.get(slot), corrupted.logits, answers)
            facts.append((f"corrupted {slot}", "measured", "", len(rows)))
            rows.append(Effects.of(corrupted.logits, answers, rivals).table())
            for direction, base, source in (("restore", corrupted, original), ("break", original, corrupted)):
                cells = [cell for cell in self.plan if (cell.slot, cell.direction) == (slot, direction)]
                if not cells:
                    continue
                unedited = len(rows)
                rows.append(Effects.of(base.logits, answers, rivals).table())
                expected = Distribution.of(base.logits)
                writes = self._writes(cells, places, base, source, documents)
                for runs, outcome in run_writes(base, source, writes, self.batch.rows, stacked_same):
                    if isinstance(outcome, Tensor):
                        found = Effects.of(outcome, answers, rivals, expected).table()
                        for members, row in zip(runs, found.unbind(), strict=True):
                            facts.extend((cell, "measured", reason, len(rows)) for cell, reason in members)
                            rows.append(row)
                    else:
                        facts.extend((cell, outcome, reason, unedited) for members in runs for cell, reason in members)
        return Outcomes(facts, torch.stack(rows))

    def _writes(
        self, cells: list[Cell], places: dict[str, Tensor], base: Resumption, source: Resumption, documents: slice
    ) -> list["Write"]:
        by_site: dict[str, list[Cell]] = defaultdict(list)
        for cell in cells:
            by_site[cell.site].append(cell)
        writes: list[Write] = []
        for site, group in by_site.items():
            # All roles are picked together: one by one, a GPU would wait for the next request most of the time.
            at = [places[cell.role] for cell in group]
            sizes = [part.shape[1] for part in at]
            there = pick(base.cache[site], torch.cat(at, 1)).split(sizes, 1)
            twin = pick(source.cache[site], torch.cat(at, 1)).split(sizes, 1)
            for cell, place, now, other in zip(group, at, there, twin, strict=True):
                writes.append(self._write(cell, place, now, other, documents))
        return writes

    def _write(self, cell: Cell, places: Tensor, there: Tensor, twin: Tensor, documents: slice) -> "Write":
        everyone = self.everyone.get((cell.slot, cell.direction, cell.site, cell.role))
        value = self.edits[cell.edit].value(Here(cell.site, cell.role, there, twin, documents, everyone))
        if cell.head >= 0:  # [n, p, h, ...]: the other heads stay as they are
            h = cell.head
            value = torch.cat([there[:, :, :h], value[:, :, h : h + 1], there[:, :, h + 1 :]], 2)
        return Write(cell, places, there, value)


@dataclass(frozen=True)
class Write:
    """What a cell writes into some documents: value [n, p, ...] at places [n, p], where `there` is now."""

    cell: Cell
    places: Tensor
    there: Tensor
    value: Tensor


Run = tuple[str, str, str, int]
"""Site, role, edit and head: cells that agree in these are one run."""
Outcome = Tensor | Literal["no path", "same"]
"""Logits [runs, n, v], or why nothing needed to run."""


def run_writes(
    base: Resumption,
    source: Resumption,
    writes: list[Write],
    rows_per_pass: int,
    stacked_same: dict[Cell, Tensor] | None = None,
) -> Iterator[tuple[list[list[tuple[Cell, str]]], Outcome]]:
    """The outcome of every write, those at one site together: for each run the cells that share it, with reasons."""
    runs: dict[Run, Write] = {}
    members: dict[Run, list[tuple[Cell, str]]] = defaultdict(list)
    for write in writes:
        cell = write.cell
        reason = base.no_path(cell.site, write.places)
        if reason is not None:
            yield [[(cell, reason)]], "no path"
            continue
        if stacked_same is not None:
            stacked_same[cell] = (write.value == write.there).all()
        elif torch.equal(write.value, write.there):
            yield [[(cell, SAME)]], "same"
            continue
        site = cell.site
        if cell.edit == SWAP and cell.head < 0:
            site = base.same_swap(source, site, write.places, by_value=stacked_same is None)
        run = (site, cell.role, cell.edit, cell.head)
        members[run].append((cell, "" if site == cell.site else f"same edit as at {site}"))
        runs[run] = write if site == cell.site else replace(write, value=pick(source.cache[site], write.places))
    together: dict[tuple[str, int], list[Run]] = defaultdict(list)
    for run, write in runs.items():
        together[run[0], write.places.shape[1]].append(run)
    per_pass = max(1, rows_per_pass // len(base.tokens))
    for (site, _), group in together.items():
        for start in range(0, len(group), per_pass):
            part = group[start : start + per_pass]
            places = torch.cat([runs[run].places for run in part])
            values = torch.cat([runs[run].value for run in part])
            logits = _edited(base, site, places, values)
            yield [members[run] for run in part], logits.unflatten(0, (len(part), len(base.tokens)))


def _edited(base: Resumption, site: str, places: Tensor, values: Tensor) -> Tensor:
    """`base.edited`, in halves where a GPU has no room for all edits at once: some mixers need more than others."""
    try:
        return base.edited(site, places, values)
    except torch.OutOfMemoryError:
        edits = len(places) // len(base.tokens)
        if edits == 1:
            raise
    # Out here, where the error no longer holds on to what was computed.
    half = edits // 2 * len(base.tokens)
    parts = ((places[:half], values[:half]), (places[half:], values[half:]))
    return torch.cat([_edited(base, site, *part) for part in parts])
