"""Fewer numbers of single documents, with fewer digits, as long as no verdict changes. Means and intervals stay exact.

A model with many heads has most of its rows from single heads; of those only the means and intervals travel.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mixerscope.analysis import Rules, judge
from mixerscope.artifacts import Verdicts
from mixerscope.artifacts.effects import ORIGINAL, Documents, EffectTable, against, corrupted, half, read_at
from mixerscope.artifacts.proof import Proof

FINENESS = (256, 1024, 4096)
"""Steps into which the gap between clean and corrupted documents is divided; a finer one is tried where needed."""


@dataclass(frozen=True)
class Judged:
    """Verdicts of a table, and the rules and the proof that led to them."""

    rules: Rules
    verdicts: Verdicts
    proof: Proof | None = None


def reduced(table: EffectTable, judged: Sequence[Judged]) -> tuple[EffectTable, int | None]:
    """The table without documents of single heads, and with the coarsest rounding of the others that leaves all these
    verdicts as they are; and how fine that is.

    The table itself, and None, where every rounding changes one, or where there are no verdicts to compare with.
    """
    for fineness in FINENESS if judged else ():
        found = rounded(whole_activations(table), fineness, min(each.rules.min_gap for each in judged))
        if all(_says(judge(found, each.rules, each.proof)) == _says(each.verdicts) for each in judged):
            return found, fineness
    return table, None


def whole_activations(table: EffectTable) -> EffectTable:
    """The table without the documents of edits of single heads."""
    kept = [-1 if cell.head >= 0 else row for cell, row in zip(table.cells, table.kept.tolist(), strict=True)]
    rows = sorted({*table.unedited.values(), *kept} - {-1})
    place = {row: at for at, row in enumerate(rows)} | {-1: -1}
    documents = table.documents
    return replace(
        table,
        unedited={name: place[row] for name, row in table.unedited.items()},
        kept=torch.tensor([place[row] for row in kept], dtype=torch.int32),
        documents=Documents(documents.likelihood[rows], documents.logit_difference[rows], documents.correct[rows]),
    )


def rounded(table: EffectTable, fineness: int, min_gap: float = 0.0) -> EffectTable:
    """The table with likelihoods and logit differences of documents as multiples of a power of two, which is at most
    1/`fineness` of the slot's gap. A gap of likelihoods under `min_gap` is as good as none, and counts as that."""
    documents = table.documents
    likelihood = _steps(table, documents.likelihood, fineness, min_gap, lambda gaps: gaps.mean().abs())
    logit = _steps(table, documents.logit_difference, fineness, 0.0, lambda gaps: gaps.abs().mean())
    return replace(
        table,
        documents=replace(
            documents,
            likelihood=_multiples(documents.likelihood, likelihood),
            logit_difference=_multiples(documents.logit_difference, logit),
        ),
    )


def _steps(table: EffectTable, values: Tensor, fineness: int, least: float, size: Callable[[Tensor], Tensor]) -> Tensor:
    """[rows] a power of two each, 0 where nothing is rounded: runs that serve several slots get the finest."""
    steps = torch.full((len(values),), math.inf, dtype=torch.float64)

    def at_most(row: int, step: float) -> None:
        steps[row] = min(steps[row].item(), step)

    step_of: dict[tuple[str, str], float] = {}
    reads = {cell.read for cell in table.cells} | {""}
    for slot in dict.fromkeys([*(cell.slot for cell in table.cells), *table.facts.together]):
        for read in sorted(reads):
            runs = [read_at(run, read) for run in (against(slot), ORIGINAL, corrupted(slot))]
            *clean, row = (table.unedited.get(run, -1) for run in runs)
            if row < 0:
                continue
            clean = [one for one in clean if one >= 0]  # tables from before have no difference of the slot's own
            found = size(values[clean[0]].double() - values[row].double()).item()
            gap = max(found, least) if math.isfinite(found) else 0.0
            step_of[slot, read] = 2.0 ** math.floor(math.log2(gap / fineness)) if gap else 0.0
            for each in (*clean, row):
                at_most(each, step_of[slot, read])
    for cell, row in zip(table.cells, table.kept.tolist(), strict=True):
        if row >= 0:
            at_most(row, step_of[cell.slot, cell.read])
    return steps.where(steps.isfinite(), torch.zeros_like(steps))


def _multiples(values: Tensor, steps: Tensor) -> Tensor:
    some = (steps[:, None] > 0) & values.isfinite()
    step = steps[:, None].where(some, torch.ones_like(steps[:, None]))
    return half((values.double() / step).round() * step + 0.0).where(some, values)  # a zero without a sign


def _says(verdicts: Verdicts) -> list[object]:
    """What must not change: of every slot the mechanism, the route, who moves and who carries."""
    return [
        (
            verdict.slot,
            verdict.mechanism,
            verdict.route,
            [(move.block, move.component, move.source, move.target) for move in verdict.moves],
            [(boundary.site, boundary.carrier) for boundary in verdict.boundaries],
        )
        for verdict in verdicts
    ]
