"""The interchange grid: every cell of a plan, measured."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mixerscope.interventions.effects import Effects
from mixerscope.interventions.pairs import Pairs
from mixerscope.interventions.plan import Cell, plan_grid
from mixerscope.interventions.resume import Resumption, pick, run_and_record
from mixerscope.interventions.selftest import SelfTest, self_test
from mixerscope.model import Model

Status = Literal["measured", "no path", "same", "invalid"]

ROWS_PER_PASS = 128
"""Documents times edits that run together; more leaves the processor's cache and is slower."""


@dataclass(frozen=True)
class Measured:
    """What became of a cell.

    `no path`: the edit cannot reach what is read, so the effects are those of the unedited run, proven and not run.
    `same`: both documents have the same bits there, so the edit changes nothing. `invalid`: some number is not finite.
    """

    effects: Effects
    status: Status = "measured"
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


def interchange(
    model: Model,
    pairs: Pairs,
    plan: list[Cell] | None = None,
    batch_documents: int = 64,
    progress: Callable[[int, int], None] | None = None,
) -> Grid:
    """Measures every cell of the plan (default: all slots, directions, sites and roles) after a self-test."""
    plan = plan_grid(model, pairs) if plan is None else plan
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            tested = self_test(model, pairs, sorted({cell.site for cell in plan}))
            parts: dict[Cell | str, list[Measured]] = defaultdict(list)
            chunks = list(pairs.chunks(batch_documents))
            for done, chunk in enumerate(chunks):
                for key, measured in _measure(model, chunk, plan):
                    parts[key].append(measured)
                if progress is not None:
                    progress(done + 1, len(chunks))
    finally:
        model.train(was_training)
    joined = {key: join_chunks(measured) for key, measured in parts.items()}
    return Grid(
        pairs,
        original=joined["original"].effects,
        corrupted={slot: joined[f"corrupted {slot}"].effects for slot in pairs.corrupted},
        cells={cell: joined[cell] for cell in plan},
        self_test=tested,
    )


def join_chunks(parts: list[Measured]) -> Measured:
    """One cell over all its chunks. It counts as measured as soon as one of them had to be run."""
    effects = Effects.join([part.effects for part in parts])
    bad = effects.non_finite()
    if bad:
        return Measured(effects, "invalid", f"not finite in {bad} of {len(effects.likelihood)} documents")
    for status in ("measured", "same", "no path"):
        for part in parts:
            if part.status == status:
                return Measured(effects, status, part.reason)
    raise AssertionError("a cell without parts")


def _measure(model: Model, pairs: Pairs, plan: list[Cell]) -> list[tuple[Cell | str, Measured]]:
    """All cells over one chunk of documents, and the unedited runs under 'original' and 'corrupted <slot>'."""
    read, answers = pairs.original.answers()
    found: list[tuple[Cell | str, Measured]] = []
    by_run: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for cell in plan:
        by_run[cell.slot, cell.direction][cell.site].append(cell.role)
    found.append(("original", Measured(Effects.of(run_and_record(model, pairs.original.tokens, read, [])[0], answers))))
    for slot, corrupted in pairs.corrupted.items():
        found.append(
            (f"corrupted {slot}", Measured(Effects.of(run_and_record(model, corrupted.tokens, read, [])[0], answers)))
        )
    for (slot, direction), by_site in by_run.items():
        base, source = pairs.corrupted[slot], pairs.original
        if direction == "break":
            base, source = source, base
        _, source_cache = run_and_record(model, source.tokens, read, list(by_site))
        resumption = Resumption(model, base.tokens, read)
        resumption.run(list(by_site))
        unedited = Effects.of(resumption.logits, answers)
        for site, roles in by_site.items():
            run = _measure_site(resumption, source_cache[site], site, {r: pairs.positions(r) for r in roles})
            for role, outcome in run.items():
                measured = (
                    Measured(Effects.of(outcome, answers))
                    if isinstance(outcome, Tensor)
                    else Measured(unedited, *outcome)
                )
                found.append((Cell(slot, direction, site, role), measured))  # type: ignore[arg-type]
    return found


def _measure_site(
    resumption: Resumption, source: Tensor, site: str, roles: Mapping[str, Tensor]
) -> dict[str, Tensor | tuple[Status, str]]:
    """Logits per role, or why nothing needed to run."""
    outcome: dict[str, Tensor | tuple[Status, str]] = {}
    to_run: list[tuple[str, Tensor, Tensor]] = []
    for role, positions in roles.items():
        value = pick(source, positions)
        reason = resumption.no_path(site, positions)
        if reason is not None:
            outcome[role] = ("no path", reason)
        elif torch.equal(value, pick(resumption.cache[site], positions)):
            outcome[role] = ("same", "both documents have the same activation there")
        else:
            to_run.append((role, positions, value))
    documents = len(resumption.tokens)
    per_pass = max(1, ROWS_PER_PASS // documents)
    for start in range(0, len(to_run), per_pass):
        part = to_run[start : start + per_pass]
        positions = torch.cat([positions for _, positions, _ in part])
        values = torch.cat([value for _, _, value in part])
        logits = resumption.edited(site, positions, values).split(documents)
        outcome.update({role: rows for (role, _, _), rows in zip(part, logits, strict=True)})
    return outcome
