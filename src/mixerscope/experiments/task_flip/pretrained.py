"""What is kept of fine-tuned models, and the claims about them: tested as soon as there are results of enough seeds."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import polars as pl

from mixerscope.analysis.readability import profile
from mixerscope.artifacts import Erased, Erasures, Probes
from mixerscope.artifacts.recoveries import Recoveries
from mixerscope.experiments.finetune.results import PRETRAINED, TunedResult
from mixerscope.experiments.task_flip.study import task_name

_NUMBER = pl.Float32
SCHEMAS: dict[str, dict[str, Any]] = {
    "tuned": {
        **dict.fromkeys(("run_id", "model", "type", "weights", "task"), pl.String),
        **dict.fromkeys(("layers", "seed"), pl.Int32),
        "accuracy": _NUMBER,
        "passed": pl.Boolean,
    },
    "tuned_boundaries": {
        "run_id": pl.String,
        "boundary": pl.Int32,
        **dict.fromkeys(("readability", "single_accuracy", "single_damage", "damage", "residual"), _NUMBER),
        "speaks": pl.Boolean,
        "clean": _NUMBER,
        **dict.fromkeys(("recovered", "recovered_later"), _NUMBER),
    },
}
SHAPES = {"Pythia-160M": ("gpt_neox", 12), "Pythia-410M": ("gpt_neox", 24), "Mamba-130M": ("mamba", 24)}
"""Types and blocks of the models that the claims are about."""


def rows_of(result: TunedResult) -> Mapping[str, list[dict[str, Any]]]:
    """Of one fine-tuned model, for each of the tables."""
    about = result.about
    run_id = f"{result.path.parent.name}/{about['weights']}"
    told = {name: about[name] for name in ("model", "type", "weights", "layers", "accuracy", "passed")}
    one = {"run_id": run_id, **told, "task": task_name(about["task"]), "seed": about["settings"]["seed"]}
    return {"tuned": [one], "tuned_boundaries": [{"run_id": run_id, **row} for row in _boundaries(result)]}


def _boundaries(result: TunedResult) -> Iterator[dict[str, Any]]:
    probes, erasures, recovered = result.find(Probes), result.find(Erasures), result.find(Recoveries)
    if probes is None:
        return
    read = dict(zip(probes.sites, probes.readability[0], strict=True))
    erased: dict[tuple[str, str], Erased] = {
        (one.site, one.method): one for one in (erasures.erased if erasures else ())
    }
    for number, site in enumerate(probes.boundaries):
        single, *ways = (erased.get((site, method)) for method in ("single direction", "leace", "iterated projection"))
        found = [way for way in ways if way is not None]
        # That after which a fresh probe reads nothing, if any is.
        whole = max(found, key=erasures.speaks, default=None) if erasures else None
        back = recovered.cell(site, recovered.position) if recovered else None
        yield {
            "boundary": number,
            "readability": read[site],
            "single_accuracy": single.accuracy[0] if single else None,
            "single_damage": single.damage[0] if single else None,
            "damage": whole.damage[0] if whole else None,
            "residual": whole.residual if whole else None,
            "speaks": erasures.speaks(whole) if erasures and whole else None,
            "clean": erasures.clean[0] if erasures else None,
            "recovered": back.same if back else None,
            "recovered_later": back.later if back else None,
        }


@dataclass(frozen=True)
class Tuned:
    """One fine-tuned model; rows are those of its boundaries, from the embedding on."""

    model: str
    type: str
    weights: str
    task: str
    layers: int
    seed: int
    passed: bool
    rows: Sequence[Mapping[str, Any]] = ()

    def column(self, name: str) -> list[float] | None:
        """A number at each boundary; None where some are not known."""
        found = [row[name] for row in self.rows]
        return None if not found or None in found else found

    @property
    def lateness(self) -> float | None:
        """Relative depth at which readability is gained."""
        curve = self.column("readability")
        return None if curve is None else profile(curve).lateness

    def refitted(self) -> dict[int, float]:
        """Inner boundary to the damage by an erasure after which a fresh probe reads nothing."""
        inner = [(at, row) for at, row in enumerate(self.rows) if 0 < at < self.layers and row["speaks"]]
        return {at: row["damage"] for at, row in inner if row["damage"] is not None}

    def peak(self, column: str) -> int | None:
        """The inner boundary, with blocks before and behind it, where a number is largest; None where none is above
        zero."""
        known = self.column(column)
        if known is None or len(known) < 3 or max(known[1:-1]) <= 0:
            return None
        return max(range(1, len(known) - 1), key=lambda at: known[at])


def tuned_of(tables: Mapping[str, pl.DataFrame]) -> list[Tuned]:
    """All of them, as they are kept."""
    rows = tables["tuned_boundaries"].sort("run_id", "boundary").iter_rows(named=True)
    by_run = {run_id: list(own) for run_id, own in groupby(rows, key=lambda row: row["run_id"])}
    names = ("model", "type", "weights", "task", "layers", "seed", "passed")
    return [
        Tuned(**{name: row[name] for name in names}, rows=by_run.get(row["run_id"], []))
        for row in tables["tuned"].iter_rows(named=True)
    ]


def of_shape(tuned: Sequence[Tuned], shape: str, task: str, weights: str = PRETRAINED) -> list[Tuned]:
    """Those that learned a task, one a seed."""
    found = {
        one.seed: one
        for one in tuned
        if (one.type, one.layers) == SHAPES[shape] and (one.task, one.weights) == (task, weights) and one.passed
    }
    return [found[seed] for seed in sorted(found)]


def mean_lateness(models: Sequence[Tuned]) -> float | None:
    found = [one.lateness for one in models if one.lateness is not None]
    return statistics.fmean(found) if found else None
