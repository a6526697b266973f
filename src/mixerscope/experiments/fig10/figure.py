"""Figure 10: treecall with pairs held out: accuracy, dev against test, and what restoring gives on both."""

import math
from collections.abc import Mapping

import polars as pl

from mixerscope.experiments.paper.data import NEXT_INPUT, PERCENT, Results, Row, rows_of, share_of
from mixerscope.experiments.paper.drawing import Chart, beside_each_other, boxes, lines, scatter
from mixerscope.experiments.paper.panels import named
from mixerscope.experiments.paper.tables import CellKey

DEV, TEST = "Dev", "Test"
LIMITS = (-0.2, 1.5)
"""Of the box plots; what lies outside is left out, as published."""
ROLES = ("key", "query", "value")


def chosen(results: Results) -> pl.DataFrame:
    """The best runs: chosen on dev documents, as published."""
    return named(results.best(results.part("fig10", "split"), "dev"))


def rows(results: Results) -> list[Row]:
    """Figure 10a, a row a seed: documents like those of training, and held-out pairs."""
    best = chosen(results)
    return [*rows_of(best, DEV, "name", "dev_accuracy"), *rows_of(best, TEST, "name", "accuracy")]


def points(results: Results) -> list[Row]:
    """Figure 10b: every checkpoint that was scored on both."""
    best = set(chosen(results)["run_id"].to_list())
    runs = named(results.part("fig10", "split")).drop_nulls(["dev_accuracy", "accuracy"])
    return [
        {
            "row": run["name"],
            "width": run["width"],
            "lr": run["lr"],
            "seed": run["seed"],
            "x": run["dev_accuracy"] * PERCENT,
            "y": run["accuracy"] * PERCENT,
            "chosen": run["run_id"] in best,
        }
        for run in runs.iter_rows(named=True)
    ]


def shares(results: Results) -> list[Row]:
    """Figure 10c: what restoring the input of the second block gives, every checkpoint, no filter."""
    found: list[Row] = []
    runs = named(results.part("fig10", "split"))
    for documents, panel, stem in (("dev", DEV, "dev_"), ("test", TEST, "")):
        for role in ROLES:
            at = results.restored(runs, NEXT_INPUT, role, documents)
            for run in at.iter_rows(named=True):
                value = share_of(run["restored"], run[f"{stem}likelihood"], run[f"{stem}corrupted"], -math.inf)
                found.append({"row": run["name"], "where": f"@ {role}", "documents": panel, "value": value})
    return found


def draw(results: Results, published: Mapping[CellKey, float]) -> Chart:
    return beside_each_other(
        lines(rows(results), published, (DEV, TEST), "a: accuracy of the rate that is best on dev documents"),
        scatter(points(results), "b: every checkpoint"),
        boxes(shares(results), "c: share restored at the input of the second block", LIMITS, "where", "documents"),
    )
