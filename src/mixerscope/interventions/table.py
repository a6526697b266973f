"""From a measured grid to the table that is kept and judged."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mixerscope.analysis.stats import (
    likelihood_estimates,
    mean_estimates,
    proportion_estimates,
    ratio_estimate,
    ratio_estimates,
)
from mixerscope.artifacts.effects import (
    BEST,
    COLUMNS,
    JOINT,
    METRICS,
    NO_GAP,
    ORIGINAL,
    SHARE,
    Cell,
    Documents,
    EffectTable,
    Facts,
    against,
    corrupted,
    half,
    read_at,
)
from mixerscope.artifacts.estimate import Estimate
from mixerscope.artifacts.scores import Scores
from mixerscope.interventions.adapt import Adapted
from mixerscope.interventions.effects import Effects
from mixerscope.interventions.engine import Grid, Measured
from mixerscope.interventions.pairs import Pairs
from mixerscope.interventions.paths import PathGrid
from mixerscope.interventions.plan import boundary_sites, distinct_roles, parts_of
from mixerscope.model import Model

ESTIMATES = {"accuracy": proportion_estimates, "likelihood": likelihood_estimates}
"""Metrics that are yes or no for each document, or lie between 0 and 1; of others the mean alone is known."""


def estimates(metric: str, values: Tensor) -> list[Estimate]:
    """Means over documents with their intervals, one for each row [c, n]."""
    return ESTIMATES.get(metric, mean_estimates)(values)


def facts_of(model: Model | Adapted | None, pairs: Pairs) -> Facts:
    """What judging must know of the documents and the model beside the numbers; without a model, of the documents."""
    read = pairs.reads.positions[:, 0]
    return Facts(
        documents=len(pairs),
        roles=tuple(distinct_roles(pairs)),
        read=tuple(role for role, at in pairs.original.roles.items() if torch.equal(at, read)),
        boundaries=() if model is None else tuple(boundary_sites(model)),
        blocks=() if model is None else parts_of(model),
        mechanisms=pairs.mechanisms,
        together=pairs.together,
        first_read=pairs.reads.names[0],
        guessing=None if pairs.task is None else pairs.task.guessing(),
        patched=pairs.patched,
    )


def effect_table(grid: Grid, model: Model | Adapted) -> EffectTable:
    """All cells with their means and intervals, and the documents one by one where judging looks. Of several reads, a
    cell each."""
    return table_of(grid, model)


def table_of(grid: Grid, model: Model | Adapted | None = None) -> EffectTable:
    """The same without the model, which nobody can judge: rows for those who look."""
    facts = facts_of(model, grid.pairs)
    rows, looked_at = _Rows(), set(facts.sites)
    cells: dict[Cell, Measured] = {}
    summaries: list[dict[str, Tensor]] = []
    unedited: dict[str, int] = {}
    for number, name in enumerate(grid.pairs.reads.names):
        one, read = grid.reading(name), name if number else ""
        unedited[read_at(ORIGINAL, read)] = rows.of(one.original)
        unedited |= {read_at(corrupted(slot), read): rows.of(effects) for slot, effects in one.corrupted.items()}
        unedited |= {read_at(against(slot), read): rows.of(effects) for slot, effects in one.against.items()}
        cells |= {replace(cell, read=read): measured for cell, measured in one.cells.items()}
        summaries.append(summary(one))
    kept = [
        rows.of(measured.effects) if cell.site in looked_at and measured.status != "invalid" else -1
        for cell, measured in cells.items()
    ]
    places = dict.fromkeys([*facts.roles, *(cell.role for cell in cells if JOINT not in cell.role)])
    return EffectTable(
        cells=tuple(cells),
        statuses=tuple(measured.status for measured in cells.values()),
        reasons=tuple(measured.reason for measured in cells.values()),
        summary={metric: torch.cat([part[metric] for part in summaries]) for metric in COLUMNS},
        unedited=unedited,
        kept=torch.tensor(kept, dtype=torch.int32),
        documents=rows.documents(len(grid.pairs)),
        facts=facts,
        positions={place: grid.pairs.positions(place).cpu() for place in places},
    )


class _Rows:
    """Runs over the documents, each kept once."""

    def __init__(self) -> None:
        self.known: dict[bytes, int] = {}
        self.seen: dict[int, int] = {}
        self.found: list[tuple[Tensor, Tensor, Tensor]] = []
        self.alive: list[Effects] = []
        """So that no two have one address."""

    def of(self, effects: Effects) -> int:
        """The row of a run; cells that share one mostly share the object too."""
        if id(effects) not in self.seen:
            parts = (half(effects.likelihood), half(effects.logit_difference), effects.accuracy > 0)
            key = b"".join(part.numpy().tobytes() for part in parts)
            if key not in self.known:
                self.known[key] = len(self.found)
                self.found.append(parts)
            self.seen[id(effects)] = self.known[key]
            self.alive.append(effects)
        return self.seen[id(effects)]

    def documents(self, count: int) -> Documents:
        if not self.found:
            empty = torch.empty(0, count, dtype=torch.float16)
            return Documents(empty, empty, empty > 0)
        return Documents(*(torch.stack(column) for column in zip(*self.found, strict=True)))


def scores(grid: Grid) -> Scores:
    """What the model scores where nothing is edited, at the first read."""
    grid = grid.reading(grid.pairs.reads.names[0])
    return scores_of(grid.original, grid.corrupted)


def scores_of(original: Effects, by_slot: Any) -> Scores:
    runs = {ORIGINAL: original, **{f"corrupted.{slot}": effects for slot, effects in by_slot.items()}}
    found: dict[str, Estimate] = {}
    for name, effects in runs.items():
        for metric in METRICS:
            values = getattr(effects, metric)
            # The divergence is one from the unedited run, which these are.
            if metric != "kl" and bool(values.isfinite().all()):
                [found[f"{name}.{metric}"]] = estimates(metric, values[None])
    return Scores(found)


def share_estimates(grid: Grid, cells: Sequence[Cell]) -> Sequence[Estimate | None]:
    """How much of the gap between original and corrupted each edit closes, as a ratio of means over documents.

    All cells of one slot. None where corrupting changes so little that the gap cannot be told from zero.
    """
    if not cells:
        return []
    [slot] = {cell.slot for cell in cells}
    original, other = grid.original.likelihood.double(), grid.corrupted[slot].likelihood.double()
    edited = torch.stack([grid.cells[cell].effects.likelihood for cell in cells]).double()
    restores = torch.tensor([cell.direction == "restore" for cell in cells], device=edited.device)[:, None]
    return ratio_estimates((edited - other).where(restores, original - edited), original - other)


def best_roles(grid: Grid) -> dict[Cell, Tensor]:
    """Per valid cell that takes part: [n] whether it is the best one of its group for each document."""
    everywhere: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    sites: dict[tuple[str, str, str, str], set[str]] = defaultdict(set)
    for cell in grid.cells:
        everywhere[cell.slot, cell.direction, cell.edit].add(cell.site)
        sites[cell.slot, cell.direction, cell.edit, cell.role].add(cell.site)

    def takes_part(cell: Cell) -> bool:
        # Of a slot that is not patched, only what a verdict looks at is there: not every role has its chance.
        if JOINT in cell.role or cell.head >= 0 or cell.slot not in grid.pairs.patched:
            return False
        # What is looked at for a verdict here and there must not take the place of a role at these sites alone.
        kind = cell.slot, cell.direction, cell.edit
        return cell.role in grid.pairs.original.roles or sites[*kind, cell.role] == everywhere[kind]

    groups: dict[tuple[str, str, str, str], list[Cell]] = defaultdict(list)
    for cell, measured in grid.cells.items():
        if measured.status != "invalid" and takes_part(cell):
            groups[cell.slot, cell.direction, cell.site, cell.edit].append(cell)
    best: dict[Cell, Tensor] = {}
    for (slot, direction, _, _), cells in groups.items():
        edited = torch.stack([grid.cells[cell].effects.likelihood for cell in cells])
        restoring = direction == "restore"
        moved = edited - grid.corrupted[slot].likelihood if restoring else grid.original.likelihood - edited
        most, which = moved.max(0)
        best |= {cell: (which == i) & (most > 0) for i, cell in enumerate(cells)}
    return best


def summary(grid: Grid) -> dict[str, Tensor]:
    """Metric to [cells, 3]: value and interval, not a number where there is none."""
    index = {cell: i for i, cell in enumerate(grid.cells)}
    table = {metric: torch.full((len(index), 3), float("nan"), dtype=torch.float64) for metric in COLUMNS}

    def put(metric: str, cells: Sequence[Cell], estimates: Sequence[Estimate | None]) -> None:
        known = [(index[cell], e) for cell, e in zip(cells, estimates, strict=True) if e is not None]
        if known:
            at = torch.tensor([i for i, _ in known])
            table[metric][at] = torch.tensor([(e.value, e.low, e.high) for _, e in known], dtype=torch.float64)

    valid = [cell for cell, measured in grid.cells.items() if measured.status != "invalid"]
    for metric in METRICS if valid else ():
        values = torch.stack([getattr(grid.cells[cell].effects, metric) for cell in valid])
        put(metric, valid, estimates(metric, values))
    best = best_roles(grid)
    if best:
        put(BEST, list(best), proportion_estimates(torch.stack(list(best.values())).double()))
    for slot in dict.fromkeys(cell.slot for cell in valid):
        cells = [cell for cell in valid if cell.slot == slot]
        put(SHARE, cells, share_estimates(grid, cells))
    return {metric: values.to(torch.float32) for metric, values in table.items()}


def edge_rows(grid: PathGrid) -> Iterator[dict[str, Any]]:
    """The table of path patching: one row per edge and metric. One that is not a number has the reason, no value."""
    for edge, measured in grid.edges.items():
        original, other = grid.original.likelihood.double(), grid.corrupted[edge.slot].likelihood.double()
        for metric in (*METRICS, SHARE):
            estimate: Estimate | None = None
            if measured.status != "invalid" and metric == SHARE:
                edited = measured.effects.likelihood.double()
                moved = edited - other if edge.direction == "restore" else original - edited
                estimate = ratio_estimate(moved, original - other)
            elif measured.status != "invalid":
                [estimate] = estimates(metric, getattr(measured.effects, metric)[None])
            yield {
                "slot": edge.slot,
                "direction": edge.direction,
                "sender": edge.sender,
                "sender_role": edge.sender_role,
                "receiver": edge.receiver,
                "receiver_role": edge.receiver_role,
                "metric": metric,
                "value": None if estimate is None else estimate.value,
                "low": None if estimate is None else estimate.low,
                "high": None if estimate is None else estimate.high,
                "n": len(grid.pairs),
                "status": measured.status,
                "reason": measured.reason if estimate is not None or measured.reason else NO_GAP,
            }
