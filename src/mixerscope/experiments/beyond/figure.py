"""Beyond the paper: how the mechanism comes about, grandparents, one block of attention behind a convolution."""

from collections.abc import Mapping

import polars as pl

from mixerscope.experiments.paper.data import NEXT_INPUT, Results, Row, rows_of
from mixerscope.experiments.paper.drawing import Chart, beside_each_other, shares_over_steps, words
from mixerscope.experiments.paper.panels import ACCURACY, named
from mixerscope.experiments.paper.sweeps import load_figure
from mixerscope.experiments.paper.tables import CellKey

FIGURE = "beyond"
COLUMNS = ("part", "model", "d", "seed", "accuracy", "mechanism", "route", "published reading")


def rows_by_part(results: Results, figure: str) -> list[Row]:
    """The best runs of every part, a row a seed."""
    found: list[Row] = []
    for part in load_figure(figure).parts:
        best = named(results.best(results.part(figure, part.name)))
        if not best.is_empty():
            best = best.with_columns((pl.lit(f"{part.name}: ") + pl.col("name")).alias("line"))
            found += rows_of(best, ACCURACY, "line", "accuracy")
    return found


def lines_by_part(results: Results, figure: str) -> list[Row]:
    """The same in words, with the verdict."""
    found: list[Row] = []
    for part in load_figure(figure).parts:
        for run in named(results.best(results.part(figure, part.name))).iter_rows(named=True):
            said = (part.name, run["name"], run["width"], run["seed"], f"{100 * (run['accuracy'] or 0):.1f}")
            verdict = (run["mechanism"] or run["reason"], run["route"], run["published_reading"])
            found.append(dict(zip(COLUMNS, (*said, *verdict), strict=True)))
    return found


def rows(results: Results) -> list[Row]:
    """Accuracy, a row a seed."""
    return rows_by_part(results, FIGURE)


def steps(results: Results) -> list[Row]:
    """What restoring the input of the second block gave while the best runs were trained."""
    best = named(results.best(results.part(FIGURE, "emergence"))).select("run_id", "name", "seed")
    at = results.emergence.filter((pl.col("site") == NEXT_INPUT) & pl.col("share").is_not_null() & (pl.col("step") > 0))
    return [
        {
            "row": point["name"],
            "value": point["share"],
            **{key: point[key] for key in ("role", "step", "seed", "accuracy")},
        }
        for point in at.join(best, on="run_id").sort("name", "seed", "role", "step").iter_rows(named=True)
    ]


def draw(results: Results, published: Mapping[CellKey, float]) -> Chart:
    return beside_each_other(
        shares_over_steps(steps(results), "Share restored at the input of the second block, while training"),
        words(lines_by_part(results, FIGURE), COLUMNS, "Best runs"),
    )
