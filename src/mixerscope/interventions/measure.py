"""The cells of a plan over some documents: which programs run, and what their numbers are numbers of."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from mixerscope.artifacts.effects import JOINT, ORIGINAL, Cell, CellStatus, against, corrupted
from mixerscope.interventions.adapt import Adapted
from mixerscope.interventions.batching import Batching
from mixerscope.interventions.cache import activations
from mixerscope.interventions.members import Members
from mixerscope.interventions.pairs import Pairs
from mixerscope.interventions.programs import Chunk, Everyone, Programs, Ran
from mixerscope.interventions.schedule import SAME, Schedule, Scheduler, Spot
from mixerscope.interventions.states import demand_one_size, is_state, mixer_of
from mixerscope.model import Model

Key = Cell | str
"""A cell, or `original`, or `corrupted <slot>`."""
Fact = tuple[Key, CellStatus, str, int]
"""Key, status, reason, and the row of a table that holds the numbers."""


@dataclass
class Outcomes:
    """What became of a plan over some documents. Cells that are the same run share a row of the tables."""

    members: int
    facts: list[Fact] = field(default_factory=list)
    """Of every model, but for `own`."""
    own: list[dict[Key, Fact]] = field(init=False)
    """By model: the facts that hold for it instead."""
    parts: list[Tensor] = field(default_factory=list)
    rows: int = 0

    def __post_init__(self) -> None:
        self.own = [{} for _ in range(self.members)]

    def tables(self) -> Tensor:
        """[k, rows, metrics, n, q], on the CPU."""
        return torch.cat(self.parts, 1).cpu()

    def of(self, member: int) -> list[Fact]:
        """The facts of one model."""
        own = self.own[member]
        return [own.get(fact[0], fact) for fact in self.facts] if own else self.facts

    def add_unedited(self, key: Key, row: Tensor) -> int:
        """An unedited run [k, 1, metrics, n, q]; gives the row it has."""
        at = self._add(row)
        self.facts.append((key, "measured", "", at))
        return at

    def add_edited(self, schedule: Schedule, table: Tensor, unedited: int, idle: list[set[Cell]]) -> None:
        """All runs of a schedule [k, runs, metrics, n, q], the row without an edit, and by model, cells that change
        nothing.

        A cell that changes nothing in some models only was run for all of them; those have the unedited run's numbers.
        """
        self.facts.extend((cell, status, reason, unedited) for cell, status, reason in schedule.proven)
        runs = [schedule.other] if schedule.other else []
        runs += [run.cells for together in schedule.passes for run in together]
        for row, shared in enumerate(runs, self._add(table)):
            for cell, reason in shared:
                self.facts.append((cell, "measured", reason, row))
                for own, still in zip(self.own, idle, strict=True):
                    if cell in still:
                        own[cell] = (cell, "same", SAME, unedited)

    def _add(self, table: Tensor) -> int:
        start, self.rows = self.rows, self.rows + table.shape[1]
        self.parts.append(table)
        return start


class Measurement:
    """A plan made ready for some documents."""

    def __init__(self, model: Model | Adapted, scheduler: Scheduler, pairs: Pairs, batch: Batching) -> None:
        self.scheduler, self.pairs, self.batch = scheduler, pairs, batch
        size, parts = batch.documents, enumerate(pairs.chunks(batch.documents))
        self.chunks = [Chunk(part, slice(i * size, i * size + len(part)), scheduler.roles) for i, part in parts]
        for cell in scheduler.cells:
            if scheduler.edits[cell.edit].mixes_documents and is_state(cell.site):
                demand_one_size(mixer_of(model, cell.site), cell.site, pairs.places(cell.role))

    def everyone(self, members: Members) -> Everyone:
        """What edits must know of all documents before any of them runs, the models in front."""
        found: Everyone = {}
        for cell in self.scheduler.cells:
            key = (cell.slot, cell.direction, cell.site, cell.role)
            if self.scheduler.edits[cell.edit].sees_everyone and key not in found:
                base = self.pairs.corrupted[cell.slot] if cell.direction == "restore" else self.pairs.original
                at = ([cell.site], [cell.role], self.batch.documents)
                seen = torch.stack([activations(model, base, *at)[cell.site, cell.role] for model in members.models])
                found[key] = seen if JOINT in cell.role else seen[:, :, None]
        return found

    def chunk(self, members: Members, chunk: Chunk, everyone: Everyone) -> Outcomes:
        """All cells over some documents, and the unedited runs."""
        programs, found, pairs = Programs(self.scheduler, chunk), Outcomes(len(members)), chunk.pairs
        original: Ran = members.map(programs.unedited(pairs.original.tokens, None))
        found.add_unedited(ORIGINAL, original.row)
        per_read, per_pass = (max(1, rows // len(pairs)) for rows in (self.batch.rows, self.batch.short_rows))
        for slot, batch in pairs.corrupted.items():
            changed: Ran = members.map(programs.unedited(batch.tokens, slot))
            against_slot = members.map(programs.compared, original.row, original.logits, changed.others)
            rows = {
                "restore": found.add_unedited(corrupted(slot), changed.row),
                "break": found.add_unedited(against(slot), against_slot),
            }
            agreed = self._agreed(members, programs, slot, original, changed)
            for direction in self.scheduler.directions(slot):
                cells = self.scheduler.of(slot, direction)
                restoring = direction == "restore"
                base, source = (changed, original) if restoring else (original, changed)
                values, idle = self._values(members, programs, cells, agreed, base, source, everyone)
                in_all = set.intersection(*agreed), set.intersection(*idle)
                schedule = self.scheduler.schedule(cells, chunk.standings(slot), *in_all, per_pass)
                tokens = (batch if restoring else pairs.original).tokens
                program = programs.effects(tokens, schedule, self.scheduler.others(cells), per_read)
                table = members.map(program, base, source, changed.others, values)
                found.add_edited(schedule, table, rows[direction], idle)
        return found

    def _agreed(self, members: Members, programs: Programs, slot: str, original: Ran, changed: Ran) -> list[set[Spot]]:
        """By model: where both documents of a pair hold the same, for the cells of both directions."""
        standings = programs.chunk.standings(slot)
        asked = self.scheduler.compared(slot, standings)
        if not asked:
            return [set() for _ in members.models]
        spots = [(site, role) for site, roles in asked.items() for role in roles]
        flags = members.map(programs.compare(asked), original.cache, changed.cache).cpu()
        by_spot = [part.all(1).tolist() for part in flags.split([standings[role].positions for _, role in spots], 1)]
        return [{spot for spot, by in zip(spots, by_spot, strict=True) if by[k]} for k in range(len(members))]

    def _values(
        self,
        members: Members,
        programs: Programs,
        cells: list[Cell],
        agreed: list[set[Spot]],
        base: Ran,
        source: Ran,
        everyone: Everyone,
    ) -> tuple[list[Tensor], list[set[Cell]]]:
        """What cells that are more than a swap write; and by model, all cells that write what is there."""
        others = self.scheduler.others(cells)
        swaps = [cell for cell in cells if self.scheduler.is_swap(cell)]
        idle = [{cell for cell in swaps if (cell.site, cell.role) in spots} for spots in agreed]
        if not others:
            return [], idle
        values, same = members.map(programs.values(others), base.cache, source.cache, everyone)
        for own, flags in zip(idle, same.cpu().tolist(), strict=True):
            own.update(cell for cell, flag in zip(others, flags, strict=True) if flag)
        return values, idle
