"""What a grid runs on each of its models: functions of a model and of tensors that give tensors, and do nothing else.

They may run on stacked weights (`Members.map`), so nothing here decides by a number and nothing is written down
elsewhere. Which cells the tensors belong to is worked out around them (`measure`), once for all models.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mixerscope.artifacts.effects import JOINT, Cell
from mixerscope.errors import UserError
from mixerscope.interventions.adapt import Adapted
from mixerscope.interventions.edits import Here
from mixerscope.interventions.effects import Distribution, Effects, counterfactual_or_runner_up
from mixerscope.interventions.pairs import Pairs
from mixerscope.interventions.resume import Resumed, pick
from mixerscope.interventions.runner import Runner, Standing, Unedited
from mixerscope.interventions.schedule import Run, Schedule, Scheduler
from mixerscope.interventions.whole_pass import WholePass
from mixerscope.model import Model

Everyone = dict[tuple[str, str, str, str], Tensor]
"""By slot, direction, site and role: what the documents that run hold there, [all documents, p, ...]."""
Program = Callable[..., Any]


def runner_of(model: Model | Adapted) -> Runner:
    """On from the edit in our own models, the whole pass again in a foreign module."""
    return WholePass(model) if isinstance(model, Adapted) else Resumed(model)


@dataclass(frozen=True)
class Chunk:
    """Some documents, where the models are."""

    pairs: Pairs
    rows: slice
    """Which of all documents these are."""
    roles: Sequence[str]

    @cached_property
    def places(self) -> dict[str, Tensor]:
        """By role, [n, p]."""
        return {role: self.pairs.places(role) for role in self.roles}

    @cached_property
    def all_places(self) -> Tensor:
        """[n, p] positions of all roles, each once."""
        names = {part: None for role in self.roles for part in role.split(JOINT)}
        found = [self.pairs.positions(name) for name in names]
        return torch.stack(found, 1) if found else self.pairs.reads.positions[:, :0]

    def standings(self, slot: str) -> dict[str, Standing]:
        """By role, of the pairs with this slot corrupted."""
        return self._standings[slot]

    @cached_property
    def _standings(self) -> dict[str, dict[str, Standing]]:
        if not self.places:
            return {slot: {} for slot in self.pairs.corrupted}
        # On the CPU, in one go: a GPU would be waited for at each of these questions.
        places = torch.cat([*self.places.values()], 1).cpu().split([at.shape[1] for at in self.places.values()], 1)
        read, tokens = self.pairs.reads.positions.cpu(), self.pairs.original.tokens.cpu()
        changed = {slot: batch.tokens.cpu() != tokens for slot, batch in self.pairs.corrupted.items()}
        return {
            slot: {role: Standing.of(at, read, where) for role, at in zip(self.places, places, strict=True)}
            for slot, where in changed.items()
        }


class Ran(NamedTuple):
    """An unedited run, as programs hand it on; outside of them every tensor has the models in front."""

    logits: Tensor
    """[n, q, v]"""
    says: Distribution
    """By them, [n, q, v] each."""
    cache: dict[str, Tensor]
    """By site, [n, t, ...]."""
    others: Tensor
    """[n, q] the symbols that those asked for are compared with."""
    row: Tensor
    """[1, metrics, n, q] what is measured of it."""


class Programs:
    """The programs of a plan over some documents."""

    def __init__(self, scheduler: Scheduler, chunk: Chunk) -> None:
        self.scheduler, self.chunk = scheduler, chunk
        reads = chunk.pairs.reads
        self.read, self.targets, self.others = reads.positions, reads.targets, reads.others

    def unedited(self, tokens: Tensor, slot: str | None) -> Program:
        """Gives `Ran`, of the original documents or of those with a slot corrupted, which have these tokens."""

        def program(model: Model | Adapted) -> Ran:
            run = runner_of(model).run(tokens, self.read, self.scheduler.sites, self.chunk.all_places)
            others = None if slot is None else self.others.get(slot)
            found = counterfactual_or_runner_up(others, run.logits, self.targets)
            says = Distribution.of(run.logits)
            row = Effects.unedited(run.logits, says.log_p, self.targets, found).table()[None]
            return Ran(run.logits, says, dict(run.cache), found, row)

        return program

    def compared(self, model: Model | Adapted, row: Tensor, logits: Tensor, others: Tensor) -> Tensor:
        """[1, metrics, n, q] of an unedited run, against other symbols."""
        return Effects.of_table(row).against(logits, others).table()

    def compare(self, asked: Mapping[str, list[str]]) -> Program:
        """For each position of the roles asked about at each site: whether two runs hold the same bits there, in all
        documents."""
        at = {site: torch.cat([self.chunk.places[role] for role in roles], 1) for site, roles in asked.items()}

        def program(model: Model | Adapted, one: dict[str, Tensor], other: dict[str, Tensor]) -> Tensor:
            equal = [pick(one[site], places) == pick(other[site], places) for site, places in at.items()]
            return torch.cat([flags.reshape(*flags.shape[:2], -1).all(2).all(0) for flags in equal])

        return program

    def values(self, cells: Sequence[Cell]) -> Program:
        """For cells that are more than a swap: what each writes [n, p, ...], and [cells] whether that is there."""
        by_site: dict[str, list[Cell]] = {}
        for cell in cells:
            by_site.setdefault(cell.site, []).append(cell)

        def program(
            model: Model | Adapted, base: dict[str, Tensor], source: dict[str, Tensor], everyone: Everyone
        ) -> tuple[list[Tensor], Tensor]:
            found: dict[Cell, tuple[Tensor, Tensor]] = {}
            for site, group in by_site.items():
                # All roles are picked together: one by one, a GPU would wait for the next request most of the time.
                at = [self.chunk.places[cell.role] for cell in group]
                sizes = [part.shape[1] for part in at]
                there = pick(base[site], torch.cat(at, 1)).split(sizes, 1)
                others = pick(source[site], torch.cat(at, 1)).split(sizes, 1)
                for cell, now, other in zip(group, there, others, strict=True):
                    value = self._value(cell, now, other, everyone)
                    found[cell] = value, (value == now).all()
            return [found[cell][0] for cell in cells], torch.stack([found[cell][1] for cell in cells])

        return program

    def _value(self, cell: Cell, there: Tensor, other: Tensor, everyone: Everyone) -> Tensor:
        known = everyone.get((cell.slot, cell.direction, cell.site, cell.role))
        # A copy: what an edit writes is compared with what is there, also where it writes into what it is given.
        here = Here(cell.site, cell.role, there.clone(), other, self.chunk.rows, known)
        value = self.scheduler.edits[cell.edit].value(here)
        if not isinstance(value, Tensor) or value.shape != there.shape or not value.is_floating_point():
            found = f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else repr(value)
            stands = f"{there.dtype} {list(there.shape)} stands, at site {cell.site!r}"
            raise UserError(f"edit {cell.edit!r} gives {found} where {stands}")
        value = value.to(there)
        if cell.head < 0:
            return value
        h = cell.head  # [n, p, h, ...]: the other heads stay as they are
        return torch.cat([there[:, :, :h], value[:, :, h : h + 1], there[:, :, h + 1 :]], 2)

    def effects(self, tokens: Tensor, schedule: Schedule, others: Sequence[Cell], per_read: int) -> Program:
        """[runs, metrics, n, q]: the other document's run, if the schedule has cells that are, and those of its passes.
        `others`: cells that have values; `per_read`: runs whose logits are held at once."""

        def program(
            model: Model | Adapted, base: Ran, source: Ran, compared_with: Tensor, values: list[Tensor]
        ) -> Tensor:
            runner, unedited = runner_of(model), Unedited(tokens, self.read, base.logits, base.cache)
            by_cell = dict(zip(others, values, strict=True))

            def table(logits: Tensor) -> Tensor:
                return Effects.of(logits, self.targets, compared_with, base.says).table()

            tables = [table(source.logits[None])] if schedule.other else [base.row[:0]]
            for together in schedule.passes:
                places = torch.cat([self.chunk.places[run.cell.role] for run in together])
                written = self._written(together, places, source.cache, by_cell)
                left = leaves_in_parts(runner, unedited, together[0].site, places, written)
                left = left.unflatten(0, (len(together), len(tokens)))
                tables += [table(runner.read_out(part)) for part in left.split(per_read)]
            return torch.cat(tables)

        return program

    def _written(
        self, together: Sequence[Run], places: Tensor, source: Mapping[str, Tensor], values: Mapping[Cell, Tensor]
    ) -> Tensor:
        """[r n, p, ...] what the runs of a pass write at places [r n, p]."""
        sources = source[together[0].site]
        if not any(run.cell in values for run in together):
            return pick(sources, places)
        roles = self.chunk.places
        return torch.cat([values[c] if (c := run.cell) in values else pick(sources, roles[c.role]) for run in together])


def leaves_in_parts(runner: Runner, base: Unedited, site: str, places: Tensor, values: Tensor) -> Tensor:
    """`runner.leaves`, in halves where a GPU has no room for all edits at once: some mixers need more than others."""
    try:
        return runner.leaves(base, site, places, values)
    except torch.OutOfMemoryError:
        edits = len(places) // len(base.tokens)
        if edits == 1:
            raise
    # Out here, where the error no longer holds on to what was computed.
    half = edits // 2 * len(base.tokens)
    parts = ((places[:half], values[:half]), (places[half:], values[half:]))
    return torch.cat([leaves_in_parts(runner, base, site, *part) for part in parts])
