"""Figure 1: which component associates key and value, and which retrieves, as the verdicts of the best runs have it."""

import json
from collections import Counter
from collections.abc import Mapping

import polars as pl

from mixerscope.experiments.paper.data import Results, Row
from mixerscope.experiments.paper.drawing import Chart, words
from mixerscope.experiments.paper.panels import named
from mixerscope.experiments.paper.tables import CellKey

TITLE = "Who associates and who retrieves: verdicts of the best runs at widths where the task is learned"
PARTS = {"recall": "AR", "treecall": "ATR", "treecall-no-conv": "ATR, no convolution"}
COLUMNS = ("task", "architecture", "mechanism (runs)", "associates", "retrieves")


def summary(results: Results) -> list[Row]:
    """A line per task and architecture, over widths and seeds, of models that are above guessing."""
    found: list[Row] = []
    for part, task in PARTS.items():
        best = named(results.best(results.part("fig1", part)))
        for name in sorted(best["name"].unique().to_list(), reverse=True):
            runs = best.filter((pl.col("name") == name) & pl.col("mechanism").is_not_null())
            learned = runs.filter(pl.col("mechanism") != "not above guessing")
            moves = [json.loads(moves) for moves in learned["moves"].to_list() if moves]
            found.append(
                {
                    "task": task,
                    "architecture": name,
                    "mechanism (runs)": _counted(learned["mechanism"].to_list()),
                    "associates": _counted([_mover(own[0]) for own in moves if own]),
                    "retrieves": _counted([_mover(own[-1]) for own in moves if own]),
                }
            )
    return found


def rows(results: Results) -> list[Row]:
    """Nothing here is a number that the paper prints."""
    return []


def _mover(move: list[object]) -> str:
    block, component, _, _ = move
    return f"{component}, block {block}"


def _counted(names: list[str]) -> str:
    return ", ".join(f"{name} (x{count})" for name, count in Counter(names).most_common()) or "–"


def draw(results: Results, published: Mapping[CellKey, float]) -> Chart:
    return words(summary(results), COLUMNS, TITLE)
