"""The study's figure: readability over depth, damage against readability, the flip, and longer documents."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from mixerscope.analysis.readability import profile
from mixerscope.experiments.task_flip.evidence import Cells
from mixerscope.experiments.task_flip.models import Cell, Model
from mixerscope.experiments.task_flip.study import RECURRENT, SIGNED, TRANSFORMER
from mixerscope.report.charts import GREY, SERIES

Row = dict[str, Any]
NAMES = (TRANSFORMER, *RECURRENT, SIGNED)
"""Those with a colour of their own; all others are grey."""
COLOURS = alt.Scale(domain=list(NAMES), range=list(SERIES[: len(NAMES)]))
COLOUR = alt.Color("name:N", scale=COLOURS, legend=alt.Legend(title=None, symbolOpacity=1))
METHODS = {"single direction": "one direction", "leace": "LEACE", "iterated projection": "iterated projection"}
SIZE = 150
NOTHING = "no model passed the gate"


def figure(best: Mapping[Cell, Sequence[Model]], models: Sequence[Model]) -> dict[str, Any]:
    """As Vega-Lite JSON."""
    panels = [readability(best), damage(best), lateness(best), lengths(models)]
    chart = alt.vconcat(*panels, spacing=30).resolve_scale(color="shared", strokeDash="independent")
    return chart.configure_view(stroke=None).configure_axis(gridColor="#e6e9ee").to_dict()


def _panels(rows: Sequence[Row], title: str, layers: Sequence[alt.Chart], column: str = "task") -> Any:
    if not rows:
        nothing = alt.Chart(alt.Data(values=[{"said": NOTHING}])).mark_text(color=GREY).encode(text="said:N")
        return nothing.properties(title=title)
    order = list(dict.fromkeys(row[column] for row in rows))
    return (
        alt.layer(*layers, data=alt.Data(values=list(rows)))
        .properties(width=SIZE, height=SIZE)
        .facet(column=alt.Column(f"{column}:N", sort=order, title=None))
        .properties(title=title)
    )


def _labels(best: Iterable[Cell]) -> dict[Cell, str]:
    return {cell: cell[0] if cell[2] == 4 else f"{cell[0]}, {cell[2]} blocks" for cell in best}


def readability(best: Mapping[Cell, Sequence[Model]]) -> Any:
    """A thin line a seed, a thick one for their mean."""
    rows: list[Row] = []
    for cell, label in _labels(best).items():
        curves = [(f"seed {model.seed}", model.curve) for model in best[cell] if model.curve is not None]
        if curves:
            curves.append(("mean", [statistics.fmean(values) for values in zip(*(c for _, c in curves), strict=True)]))
        for who, curve in curves:
            for place, value in enumerate(curve):
                depth = place / (len(curve) - 1)
                rows.append({"task": label, "name": cell[1], "who": who, "depth": depth, "value": value})
    base = alt.Chart().encode(
        x=alt.X("depth:Q", title="depth"),
        y=alt.Y("value:Q", title="readability", scale=alt.Scale(domain=[0, 1])),
        color=COLOUR,
        detail="who:N",
    )
    thin = base.transform_filter("datum.who != 'mean'").mark_line(opacity=0.25, strokeWidth=1)
    thick = base.transform_filter("datum.who == 'mean'").mark_line(strokeWidth=2.5)
    return _panels(
        rows, "Where the answer can be read: from the best rule without a model to the model itself", [thin, thick]
    )


def damage(best: Mapping[Cell, Sequence[Model]]) -> Any:
    """A point a boundary and model; strong where a fresh probe reads nothing any more."""
    rows = [
        {
            "task": METHODS[one.method],
            "name": cell[1],
            "read": one.before,
            "damage": one.damage,
            "said": "nothing is left to read" if one.speaks else "a fresh probe still reads it",
        }
        for cell, models in best.items()
        for model in models
        for one in model.erasures
        if one.method in METHODS and one.damage is not None
    ]
    points = (
        alt.Chart()
        .mark_point(size=22, filled=True)
        .encode(
            x=alt.X("read:Q", title="a probe reads before"),
            y=alt.Y("damage:Q", title="damage"),
            color=COLOUR,
            opacity=alt.condition("datum.said == 'nothing is left to read'", alt.value(0.9), alt.value(0.35)),
            shape=alt.Shape("said:N", title=None),
        )
    )
    return _panels(rows, "What erasing costs, and whether it took the label", [points])


def lateness(best: Mapping[Cell, Sequence[Model]]) -> Any:
    """The flip: lateness by task, a point a seed; lines that cross are a flip."""
    rows: list[Row] = []
    cells = Cells(best)
    for task, name, layers in best:
        for curve in cells.curves(task, name, layers):
            late = profile(curve).lateness
            if late is not None and layers == 4:
                rows.append({"name": name, "where": task, "late": late, "task": "four blocks"})
    base = alt.Chart().encode(
        x=alt.X("where:N", title=None, sort=list(dict.fromkeys(row["where"] for row in rows))),
        y=alt.Y("late:Q", title="lateness", scale=alt.Scale(domain=[0, 1])),
        color=COLOUR,
    )
    lines = base.mark_line().encode(y="mean(late):Q")
    return _panels(rows, "How late the answer becomes readable", [base.mark_point(size=18, opacity=0.5), lines])


def lengths(models: Sequence[Model]) -> Any:
    """Accuracy of the last answer over the length, a line a model that passed the gate, by its verdict."""
    rows = [
        {
            "task": verdict,
            "name": model.cell[1],
            "times": times,
            "value": value,
            "who": model.run_id,
        }
        for verdict in ("carried", "recomputed", "length-specific", "undetermined")
        for model in models
        if model.passed and model.verdict == verdict
        for times, value in sorted(model.last.items())
    ]
    line = (
        alt.Chart()
        .mark_line(opacity=0.5, point=alt.OverlayMarkDef(size=12))
        .encode(
            x=alt.X("times:O", title="lengths of training"),
            y=alt.Y("value:Q", title="accuracy of the last answer", scale=alt.Scale(domain=[0, 1])),
            color=COLOUR,
            detail="who:N",
        )
    )
    return _panels(rows, "What becomes of each verdict in longer documents", [line])
