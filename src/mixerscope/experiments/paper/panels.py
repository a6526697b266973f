"""Panels that several figures have: likelihood as it is, corrupted and restored; accuracy over width."""

from collections.abc import Sequence

import polars as pl

from mixerscope.experiments.paper.data import NEXT_INPUT, Results, Row, rows_of
from mixerscope.experiments.paper.drawing import NAMES

ORIGINAL, CORRUPTED = "Original", "Corrupted key"
RESTORED = {"key": "Restored @ key", "value": "Restored @ value", "query": "Restored @ query"}
FIVE = (ORIGINAL, CORRUPTED, *RESTORED.values())
ACCURACY = "Accuracy"


def named(runs: pl.DataFrame) -> pl.DataFrame:
    """With a column `name`: the architecture as the paper writes it."""
    return runs.with_columns(pl.col("architecture").replace_strict(NAMES, default=pl.col("architecture")).alias("name"))


def likelihood_rows(results: Results, best: pl.DataFrame, row: str, panels: Sequence[str] = FIVE) -> list[Row]:
    """Of the best runs: likelihood of the answer as it is, with the key corrupted, and with the input of the second
    block restored at key, value and query."""
    found: list[Row] = []
    if ORIGINAL in panels:
        found += rows_of(best, ORIGINAL, row, "likelihood")
    if CORRUPTED in panels:
        found += rows_of(best, CORRUPTED, row, "corrupted")
    for role, panel in RESTORED.items():
        if panel in panels:
            found += rows_of(results.restored(best, NEXT_INPUT, role), panel, row, "restored")
    if ACCURACY in panels:
        found += rows_of(best, ACCURACY, row, "accuracy")
    return sorted(found, key=lambda one: panels.index(one["panel"]))


def accuracy_rows(results: Results, figure: str, part: str, panel: str, split: str | None = None) -> list[Row]:
    """Accuracy of the best runs of a part, by architecture; `split` is a column that tells lines of one apart."""
    best = named(results.best(results.part(figure, part)))
    if split is not None and not best.is_empty():
        best = best.with_columns((pl.col("name") + ", " + pl.col(split).cast(pl.String)).alias("name"))
    return rows_of(best, panel, "name", "accuracy") if not best.is_empty() else []
