"""The study's models as its claims see them: one object a model, those that learned, and the best rate of each seed."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import polars as pl

from mixerscope.artifacts.erasures import LEAST_READ, MOST_LEFT
from mixerscope.experiments.task_flip.study import settings
from mixerscope.experiments.task_flip.tables import NOT_OF_VERDICTS, lacking

CONVOLVED = "conv_out"
"""How the sites behind short convolutions end."""
GATE = 0.99
"""Accuracy at the training length that a model must have for anything to be said of how it does it."""
TWO, FOUR = 2, 4
"""Lengths of training: how long the documents are in which erasures are tried too, and those that verdicts are to
foretell."""
HOLDS = 0.5
"""Share of the way from guessing to right at which a last answer holds."""
Cell = tuple[str, str, int]
"""Task, architecture, blocks."""


@dataclass(frozen=True)
class Erasure:
    """One way of erasing at one boundary, at the training length and at the next longer one."""

    boundary: int
    method: str
    before: float
    residual: float
    speaks: bool
    damage: float | None
    longer: float | None
    """Damage in longer documents."""
    controls: float | None
    """Damage by random subspaces of the same variance."""
    longer_controls: float | None = None
    """The same in longer documents."""
    longer_left: bool = True
    """Whether a fresh probe of longer documents still reads it there, or could not before."""
    refitted: float | None = None
    """Damage in longer documents by an erasure that was found there, where a fresh probe then reads nothing."""
    by_rank: float | None = None
    """Damage by random subspaces of the same rank."""
    alike: float | None = None
    """Of what probes read in longer documents and at the training length: mean squared cosine."""
    variance: float | None = None
    """Share of the vectors' variance that it takes."""
    gone_there: bool = False
    """`speaks` by the documents alone that it was found in, in which LEACE leaves nothing by construction."""
    refitted_there: float | None = None
    """`refitted` by these alone."""

    def by_its_own_documents(self) -> "Erasure":
        """As if nothing were left elsewhere that is not left there."""
        return replace(self, speaks=self.gone_there, refitted=self.refitted_there)


@dataclass(frozen=True)
class Model:
    """One model."""

    run_id: str
    cell: Cell
    lr: float
    seed: int
    dev_accuracy: float | None
    verdict: str | None
    tests: dict[str, float | None]
    accuracy: dict[int, float]
    """Over all questions, by length in lengths of training."""
    last: dict[int, float]
    """Of the last question."""
    guessing: dict[int, float]
    curves: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    """Label and positions to readability at the boundaries; those where it has no meaning are absent."""
    erasures: list[Erasure] = field(default_factory=list)
    taps: list[float] = field(default_factory=list)
    """Damage when short convolutions see the current position alone, block by block; empty where not measured."""
    convolved: list[float] = field(default_factory=list)
    """What is brought back, behind a changed input, by the unchanged document's output of short convolutions, block by
    block; empty where not measured."""
    whole: bool = True
    """Whether every stage that its verdict asks was there when it was made."""
    width: int | None = None
    """None of runs from before it was kept."""

    @property
    def held_out(self) -> bool:
        """Whether it is of those that nobody had seen when the rules of verdicts were settled."""
        return self.width == settings()["held_out"]["width"]

    @property
    def cohort(self) -> str:
        return ", ".join(map(str, self.cell))

    @property
    def passed(self) -> bool:
        return self.accuracy.get(1, 0.0) >= GATE

    @property
    def curve(self) -> list[float] | None:
        """Readability of the answer at the boundaries, over every position."""
        return self.curves.get(("answer", "every"))

    @property
    def hard_curve(self) -> list[float] | None:
        """The same over positions where the last token does not tell the answer: after closing brackets. Where there
        is no such difference, over every position."""
        return self.curves.get(("answer", "hard"), self.curve)

    def holds(self, times: int = FOUR) -> bool | None:
        """Whether the last answer of longer documents is nearer right than guessed; None where not measured."""
        if times not in self.last:
            return None
        return self.last[times] >= self.guessing[times] + HOLDS * (1 - self.guessing[times])

    def beyond_guessing(self, times: int) -> float:
        """The last answer of longer documents: 0 as guessed, 1 always right."""
        return (self.last[times] - self.guessing[times]) / (1 - self.guessing[times])


def models_of(tables: dict[str, pl.DataFrame]) -> list[Model]:
    """All of them."""
    lengths, curves, erasures, again, recovered = (
        _by_run(tables[name]) for name in ("lengths", "probes", "erasures", "refitted", "recoveries")
    )
    older = set[str]().union(*(ids for stage, ids in lacking(tables).items() if stage not in NOT_OF_VERDICTS))
    found: list[Model] = []
    for row in tables["models"].iter_rows(named=True):
        own = lengths.get(row["run_id"], [])
        found.append(
            Model(
                *(row["run_id"], (row["task"], row["architecture"], row["layers"]), row["lr"], row["seed"]),
                *(row["dev_accuracy"], row["verdict"], json.loads(row["tests"] or "{}")),
                accuracy={one["times"]: one["accuracy"] for one in own},
                last={one["times"]: one["last"] for one in own},
                guessing={one["times"]: one["guessing"] for one in own},
                curves=_curves(curves.get(row["run_id"], [])),
                erasures=_erasures(erasures.get(row["run_id"], []), again.get(row["run_id"], [])),
                taps=_taps(recovered.get(row["run_id"], [])),
                convolved=_convolved(recovered.get(row["run_id"], [])),
                whole=row["run_id"] not in older,
                width=row["width"],
            )
        )
    return found


def _by_run(table: pl.DataFrame) -> dict[str, list[dict[str, Any]]]:
    rows = table.sort("run_id", maintain_order=True).iter_rows(named=True)
    return {run_id: list(own) for run_id, own in groupby(rows, key=lambda row: row["run_id"])}


def _curves(rows: Iterable[dict[str, Any]]) -> dict[tuple[str, str], list[float]]:
    found: dict[tuple[str, str], dict[int, float | None]] = {}
    for row in rows:
        if row["boundary"] is not None:
            found.setdefault((row["label"], row["positions"]), {})[row["boundary"]] = row["readability"]
    whole: dict[tuple[str, str], list[float]] = {}
    for key, by_boundary in found.items():
        values = [value for _, value in sorted(by_boundary.items()) if value is not None]
        if len(values) == len(by_boundary):
            whole[key] = values
    return whole


def _erasures(rows: Iterable[dict[str, Any]], again: Iterable[dict[str, Any]]) -> list[Erasure]:
    refitted = {(row["boundary"], row["method"], row["length"]): row for row in again}
    found: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row["boundary"] is not None:
            found.setdefault((row["boundary"], row["method"]), []).append(row)
    whole: list[Erasure] = []
    for (boundary, method), own in sorted(found.items()):
        short, *longer = sorted(own, key=lambda row: row["length"])
        there = refitted.get((boundary, method, longer[0]["length"])) if longer else None
        whole.append(
            Erasure(
                *(boundary, method, short["before"], short["residual"], _speaks(short), short["damage"]),
                longer=longer[0]["damage"] if longer else None,
                controls=_damage(short, short["random_variance"]),
                longer_controls=_damage(longer[0], longer[0]["random_variance"]) if longer else None,
                # None of these documents is one that it was found in.
                longer_left=there is None or not _took(there, there["kept_residual"]),
                refitted=there["damage"] if there is not None and _speaks(there) else None,
                by_rank=_damage(short, short["random_rank"]),
                alike=there["alike"] if there is not None else None,
                variance=short["variance"],
                gone_there=_gone_there(short),
                refitted_there=there["damage"] if there is not None and _gone_there(there) else None,
            )
        )
    return whole


def _speaks(row: dict[str, Any]) -> bool:
    """What was said of an erasure before it was looked for in other documents is not known of these."""
    return row["speaks"] and row.get("unseen") is not None


def _gone_there(row: dict[str, Any]) -> bool:
    """By the documents alone that it was found in: what is said of an erasure that was looked for in others, too, is
    said of both."""
    return row["speaks"] if row.get("unseen") is None else _took(row, row["residual"])


def _took(row: dict[str, Any], residual: float) -> bool:
    """Whether there was something to read, and a fresh probe reads nothing any more."""
    return row["before"] > row["chance"] + LEAST_READ and residual <= row["chance"] + MOST_LEFT


def _taps(rows: Iterable[dict[str, Any]]) -> list[float]:
    cut = sorted((row["site"], row["taps_damage"]) for row in rows if row["taps_damage"] is not None)
    return [damage for _, damage in cut]


def _convolved(rows: Iterable[dict[str, Any]]) -> list[float]:
    back = sorted((row["site"], row["later"]) for row in rows if row["site"].endswith(CONVOLVED))
    return [] if any(value is None for _, value in back) else [value for _, value in back]


def _damage(row: dict[str, Any], accuracy: float | None) -> float | None:
    """As that of an erasure, where it has one."""
    if accuracy is None or row["damage"] is None:
        return None
    return (row["clean"] - accuracy) / (row["clean"] - row["guessing"])


def best_of_seeds(models: Iterable[Model], highest: bool = False) -> dict[Cell, list[Model]]:
    """Of each cell and seed the model with the best rate, on dev documents, and of rates that are equally good the
    lowest, or the `highest`; then those of them that passed the gate."""
    best: dict[tuple[Cell, int], Model] = {}
    for model in sorted(models, key=lambda one: (-(one.dev_accuracy or 0.0), -one.lr if highest else one.lr)):
        best.setdefault((model.cell, model.seed), model)
    found: dict[Cell, list[Model]] = {}
    for (cell, _), model in sorted(best.items()):
        own = found.setdefault(cell, [])
        if model.passed:
            own.append(model)
    return found
