"""What is written of the study: tables of runs, the figure, claims and predictions as data and in words."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from mixerscope.analysis.prediction import Area
from mixerscope.experiments.paper.records import ASKED, changing, note_packs, read_about, sha256, write_tables
from mixerscope.experiments.task_flip.claims import Claim, Found, decided
from mixerscope.experiments.task_flip.drawing import figure
from mixerscope.experiments.task_flip.evidence import LAYERS
from mixerscope.experiments.task_flip.models import FOUR, GATE, Model, best_of_seeds, models_of
from mixerscope.experiments.task_flip.predictions import Predicted, by_verdict, foreseen, predictions
from mixerscope.experiments.task_flip.pretrained import tuned_of
from mixerscope.experiments.task_flip.study import NAME, Asked, not_run
from mixerscope.experiments.task_flip.tables import Tables, collect, lacking, load, merged, stored
from mixerscope.report.charts import save_chart
from mixerscope.stages.track import TrackStates
from mixerscope.store import write_bytes

INTERVALS = (
    "Open: tested, and not told, as the interval holds what supports a sentence and what contradicts it. Intervals are"
    " over seeds, drawn again within each cell, and stretched for how few they are: the truth of one cell, and of"
    " fifteen together, then lies in 95 of 100. Those of C1 and C9 are of a share, as if models of a"
    " cell were no more alike than others. What would contradict C12, ranks alike in every cell, hardly could be."
)
INSIDE = (
    "Inside: pairs of one cohort, which differ in rate and seed alone; cohorts in which all hold, or none, have none."
)
LEFT_OUT = (
    "Architecture and task foretell a cohort by the other cohorts of theirs, together by what each of the two adds;"
    " where few cohorts share one, those that are left tell the opposite of the one that is left out, so that an area"
    " below 0.5 is no finding. Parts of the verdict are those of the models in which they were measured. The rules of"
    " verdicts were settled when all runs that lack a stage had been seen, and of the others Transformers."
)
HELD_OUT = (
    "Models of two blocks and width 32 that a CPU trains, of which none had been seen when the rules of verdicts were"
    " settled; the sentences were written down before the first was trained."
)
FOUND, TABLE = "found.json", "table.md"


def take_in(root: Path, sources: Sequence[Path], asked: Asked, command: str) -> tuple[int, int]:
    """Puts the runs of packs and run folders into the tables below `root`; gives how many there are then, and how many
    fine-tuned models."""
    folder, found = root / NAME, collect(sources)
    with changing(root):
        before, tables = read_about(folder, ASKED), merged(folder, found)
        models = tables["models"]
        said = {
            "preset": "clean",
            "toy": asked.toy,
            "settings": dict(asked.settings),
            "commands": list(dict.fromkeys([*before.get("commands", ()), command])),
            "sources": {**before.get("sources", {}), **{path.name: sha256(path) for path in sources if path.is_file()}},
            "runs": len(models),
            "diverged": int((models["outcome"] == "diverged").sum()),
            "seeds": sorted(models["seed"].unique().to_list()),
            "devices": sorted(models["device"].unique().to_list()),
            "made_by": sorted(models["made_by"].unique().to_list()),
            "judged_by_revision": TrackStates.revision,
        }
        write_tables(folder, tables, said)
    return len(models), len(tables["tuned"])


def judge_again(folder: Path) -> Tables:
    """The tables of a folder, judged by the rules of this version; those that this changes are written, where it is on
    record how they were made."""
    # The record first: it tells whether the tables are still those that were read.
    said, before, found = read_about(folder, ASKED), stored(folder), load(folder)
    changed = {name: frame for name, frame in found.items() if not frame.equals(before[name])}
    if said and (changed or said.get("judged_by_revision") != TrackStates.revision):
        with changing(folder.parent):
            if read_about(folder, ASKED) == said:  # or somebody added to them, and judged them all
                write_tables(folder, changed, {**said, "judged_by_revision": TrackStates.revision})
    return found


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


@dataclass(frozen=True)
class Study:
    """What is said of the tables."""

    claims: Sequence[tuple[Claim, Found]]
    foretold: Sequence[Predicted]
    models: Sequence[Model]
    """Those that the sentences are about."""
    held_out: Sequence[Model]
    """Those that nobody had seen when the rules of verdicts were settled: nothing above is of them."""
    left: Sequence[str]
    """Cells that were not run."""
    older: Mapping[str, Sequence[str]]
    """Stage to the cells that were taken in before it was there."""
    highest: Mapping[str, Found]
    """Claim to what is found with the highest of equally good rates."""

    @staticmethod
    def of(tables: dict[str, pl.DataFrame]) -> "Study":
        every, tuned = models_of(tables), tuned_of(tables)
        models, held_out = ([one for one in every if one.held_out is asked] for asked in (False, True))
        claims = decided(best_of_seeds(models), tuned)
        highest = {claim.id: found for claim, found in decided(best_of_seeds(models, highest=True), tuned)}
        left = not_run([model.cell for model in every])
        return Study(claims, predictions(models), models, held_out, left, _older(tables), highest)

    def otherwise(self) -> dict[str, str]:
        """Claim to its outcome with the highest of equally good rates, where that is another one."""
        return {
            claim.id: self.highest[claim.id].outcome
            for claim, found in self.claims
            if self.highest[claim.id].outcome != found.outcome
        }

    def as_json(self) -> dict[str, Any]:
        return {
            "claims": [{"id": claim.id, "version": claim.version, **found.as_json()} for claim, found in self.claims],
            "with_highest_rates": {
                id: {"outcome": one.outcome, "value": one.value} for id, one in self.highest.items()
            },
            "predictions": [_as_json(one) for one in self.foretold],
            "cells": _cells(self.models),
            "held_out": {
                "foreseen": [one.__dict__ for one in foreseen(self.held_out)],
                "predictions": [_as_json(one) for one in predictions(self.held_out)],
                "cells": _cells(self.held_out),
            },
            "not_run": self.left,
            "kept_without": self.older,
        }

    def text(self) -> str:
        """In words and tables."""
        without = "; ".join(f"{stage}: {', '.join(cells)}" for stage, cells in self.older.items())
        lines = _text(self.claims, _rates(self.models, self.otherwise()), self.foretold, self.models)
        lines += _of_held_out(self.held_out)
        lines += ["", f"Not run: {'; '.join(self.left) or 'nothing'}."]
        lines += ["", f"Kept from before a stage was there: {without or 'nothing'}."]
        return "\n".join(lines) + "\n"


def write_study(root: Path) -> Path:
    """Judges what is kept below `root` by the rules of this version, draws the study and tests its claims; gives its
    folder."""
    folder = root / NAME
    study = Study.of(judge_again(folder))
    note_packs(folder)
    drawn = figure(best_of_seeds(study.models), study.models)
    for ending in ("svg", "png"):
        save_chart(drawn, folder / f"figure.{ending}")
    write_bytes(folder / FOUND, _json(study.as_json()))
    write_bytes(folder / TABLE, study.text().encode())
    return folder


def _older(tables: dict[str, pl.DataFrame]) -> dict[str, list[str]]:
    """Stage to the cells of runs that were taken in before it was there."""

    def said(row: dict[str, Any]) -> str:
        blocks = "" if row["layers"] == LAYERS else f" of {row['layers']} blocks"
        return f"{row['task']} {row['architecture']}{blocks}"

    cells = {row["run_id"]: said(row) for row in tables["models"].iter_rows(named=True)}
    every = Counter(cells.values())

    def named(own: Counter[str]) -> list[str]:
        if own == every:
            return ["every cell"]
        return [cell if n == every[cell] else f"{cell} ({n} of {every[cell]})" for cell, n in sorted(own.items())]

    return {stage: named(Counter(cells[run_id] for run_id in ids)) for stage, ids in lacking(tables).items()}


def _as_json(one: Predicted) -> dict[str, Any]:
    def area(found: Area | None) -> dict[str, Any] | None:
        return None if found is None else found.__dict__

    found = {"overall": area(one.overall), "within": area(one.within), "inside": area(one.inside)}
    return {"by": one.by, "models": one.models, **found}


def _cells(models: Sequence[Model]) -> list[dict[str, Any]]:
    """Every cell that was attempted: models, those that passed the gate and their seeds, verdicts, longer documents."""
    rows: list[dict[str, Any]] = []
    for cell in sorted({model.cell for model in models}):
        own = [model for model in models if model.cell == cell]
        passed = [model for model in own if model.passed]
        names = [model.verdict or "none" for model in passed]
        rows.append(
            {
                "task": cell[0],
                "architecture": cell[1],
                "blocks": cell[2],
                "models": len(own),
                "passed": len(passed),
                "seeds_passed": sorted({model.seed for model in passed}),
                "verdicts": {name: names.count(name) for name in sorted(set(names))},
                "hold": sum(bool(model.holds(FOUR)) for model in passed),
            }
        )
    return rows


def _rates(models: Sequence[Model], otherwise: Mapping[str, str]) -> str:
    """Which rate the claims are of, and which of them end otherwise by another one that is equally good."""
    chosen = [model.lr for own in best_of_seeds(models).values() for model in own]
    if not chosen:
        return "No model passed the gate."
    most = max(sorted(set(chosen)), key=chosen.count)
    other = ", ".join(f"{claim} {outcome}" for claim, outcome in otherwise.items())
    return (
        "A model a seed: that of the rate that is best on dev documents, and the lowest of those that are equally good,"
        f" which is {most:g} in {chosen.count(most)} of {len(chosen)}. With the highest of them claims end"
        f" {f'otherwise: {other}' if other else 'the same'}."
    )


def _text(
    claims: Sequence[tuple[Claim, Found]], rates: str, foretold: Sequence[Predicted], models: Sequence[Model]
) -> list[str]:
    lines = ["# Task flip", "", "## Claims", "", "| | sentence | from | outcome | effect | 95% | seeds |"]
    lines.append("|---|---|---|---|---|---|---|")
    for claim, found in claims:
        ends = _ends(found.low, found.high)
        words = (claim.id, claim.sentence, claim.version, found.outcome, found.effect, ends, str(found.seeds))
        lines.append(f"| {' | '.join(words)} |")
    lines += ["", INTERVALS, "", rates, "", f"## What foretells documents {FOUR} times as long", ""]
    lines += ["Area under the ROC curve, cohorts resampled; within: pairs of one architecture.", INSIDE, LEFT_OUT, ""]
    lines += [*_areas(foretold, models), "", f"## Cells (gate: accuracy {GATE})", ""]
    return lines + _table_of_cells(models)


def _of_held_out(models: Sequence[Model]) -> list[str]:
    if not models:
        return []
    lines = ["", "## Held out", "", HELD_OUT, "", "| | sentence | what came | so it is |", "|---|---|---|---|"]
    for one in foreseen(models):
        words = "nothing could have refuted it" if one.true is None else "as foreseen" if one.true else "not so"
        lines.append(f"| {one.id} | {one.sentence} | {one.came} | {words} |")
    return [*lines, "", *_areas(predictions(models), models), "", *_table_of_cells(models)]


def _areas(foretold: Sequence[Predicted], models: Sequence[Model]) -> list[str]:
    lines = ["| by | models | overall | 95% | within | 95% | inside | 95% |", "|---|---|---|---|---|---|---|---|"]
    for one in foretold:
        words = [one.by, str(one.models)]
        for found in (one.overall, one.within, one.inside):
            words += ["not told", ""] if found is None else [f"{found.value:.3f}", _ends(found.low, found.high)]
        lines.append(f"| {' | '.join(words)} |")
    held = "; ".join(f"{name}: {held} of {count}" for name, (count, held) in by_verdict(models).items())
    return [*lines, "", f"Models that hold, by verdict: {held or 'none passed the gate'}."]


def _table_of_cells(models: Sequence[Model]) -> list[str]:
    lines = [
        "| task | architecture | blocks | models | passed | seeds | verdicts | hold |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in _cells(models):
        seeds = ", ".join(map(str, row["seeds_passed"])) or "none"
        verdicts = ", ".join(f"{count} {name}" for name, count in row["verdicts"].items())
        words = (
            row["task"],
            row["architecture"],
            row["blocks"],
            row["models"],
            row["passed"],
            seeds,
            verdicts,
            row["hold"],
        )
        lines.append(f"| {' | '.join(map(str, words))} |")
    return lines


def _ends(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:.2f} to {high:.2f}"
