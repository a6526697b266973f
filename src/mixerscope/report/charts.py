"""Curves and lines, as Vega-Lite charts. Colours that depend on light and dark are parameters that the page sets."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal

import altair as alt

from mixerscope.analysis.rules import NOT_LEARNED
from mixerscope.artifacts import Evaluation
from mixerscope.report.data import DIVERGED, UNPATCHED, ModelResult
from mixerscope.report.rates import merit

CURVE_HEIGHT = 220
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's colours, which stay apart for colour-blind readers; beyond six, dashes tell lines apart."""
DASHES = ([1, 0], [6, 3], [2, 2])
SHAPES = {
    "induction": "circle",
    "direct retrieval": "triangle-up",
    NOT_LEARNED: "cross",
    DIVERGED: "triangle-down",
    UNPATCHED: "square",
}
"""Of the usual mechanisms; others share one."""
OTHER_SHAPE = "diamond"
ACCURACY = "accuracy"
GREY = "#808890"
MOST_LINES = 18
"""Learning curves that are told apart one by one; more are coloured by architecture."""

Chart = alt.LayerChart | alt.FacetChart | alt.VConcatChart
Metric = Literal["accuracy", "loss"]


def width_chart(models: Sequence[ModelResult]) -> Chart | None:
    """Accuracy against width, a line per series and a shape per mechanism; None where no series has several widths."""
    rows = [_width_row(model, accuracy) for model in models if (accuracy := model.any_accuracy) is not None]
    lines = width_lines(models)
    series = list(dict.fromkeys(row["series"] for row in lines))
    if len(lines) == len(series):
        return None
    mechanisms = list(dict.fromkeys(row["mechanism"] for row in rows))
    widths = sorted({row["width"] for row in rows})
    colours, dashes = _series(len(series))
    legend = alt.Legend(title=None, orient="bottom", columns=4, labelLimit=300, symbolType="stroke")
    base = alt.Chart(alt.NamedData("models")).encode(
        x=alt.X(
            "width:Q", title="width", scale=alt.Scale(type="log", base=2), axis=alt.Axis(values=widths, grid=False)
        ),
        color=alt.Color("series:N", scale=alt.Scale(domain=series, range=colours), legend=legend),
    )
    accuracy = alt.Y("accuracy:Q", title=None, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%", tickCount=5))
    drawn = base.mark_line(strokeWidth=2).encode(
        y=accuracy,
        strokeDash=alt.StrokeDash("series:N", scale=alt.Scale(domain=series, range=dashes), legend=legend),
        tooltip=[alt.Tooltip("series:N"), alt.Tooltip("width:Q"), alt.Tooltip("accuracy:Q", format=".1%"), "seeds:Q"],
    )
    drawn.data = alt.NamedData("lines")
    intervals = base.mark_rule(strokeWidth=1).encode(y="low:Q", y2="high:Q")
    shapes = alt.Scale(domain=mechanisms, range=[SHAPES.get(name, OTHER_SHAPE) for name in mechanisms])
    shape_legend = alt.Legend(title=None, orient="bottom", symbolFillColor=GREY, symbolStrokeColor=GREY)
    points = base.mark_point(filled=True, opacity=1, size=90).encode(
        y=accuracy,
        shape=alt.Shape("mechanism:N", scale=shapes, legend=shape_legend),
        tooltip=["model:N", alt.Tooltip("accuracy:Q", format=".1%"), "documents:N", "mechanism:N"],
    )
    chart = alt.layer(*_guessing(models), drawn, intervals, points)
    chart.width, chart.height = "container", CURVE_HEIGHT + 60
    found = [f"{row['series']} at {row['width']}: {row['accuracy']:.1%}" for row in lines]
    chart.description = f"Accuracy by width, at the best learning rate of each: {'; '.join(found)}."
    chart.title = alt.TitleParams("Accuracy on fresh documents by width", anchor="start", fontSize=12)
    chart.datasets = {"models": rows, "lines": lines, **_guessed(models)}
    return chart


def _guessed(models: Sequence[ModelResult]) -> dict[str, list[dict[str, Any]]]:
    """What guessing gets, as data of a chart; empty where nobody knows, or where tasks differ in it."""
    found = {round(model.guessing, 4) for model in models if model.guessing is not None}
    return {"guessing": [{"accuracy": at, "name": f"guessing {at:.1%}"} for at in found]} if len(found) == 1 else {}


def _guessing(models: Sequence[ModelResult]) -> list[alt.Chart]:
    """A dashed line where guessing is, and its name."""
    if not _guessed(models):
        return []
    base = alt.Chart(alt.NamedData("guessing")).encode(y="accuracy:Q")
    name = base.mark_text(x=alt.ExprRef("width"), align="right", dy=-6, color=GREY, fontStyle="italic")
    return [base.mark_rule(strokeDash=[5, 4], color=GREY), name.encode(text="name:N")]


def _width_row(model: ModelResult, accuracy: float) -> dict[str, Any]:
    return {
        "model": model.label,
        "series": model.series,
        "width": model.width,
        "accuracy": round(accuracy, 4),
        "low": round(model.accuracy.low, 4) if model.accuracy else None,
        "high": round(model.accuracy.high, 4) if model.accuracy else None,
        "documents": "fresh" if model.accuracy else "dev set, last evaluation",
        "mechanism": model.mechanism,
    }


def width_lines(models: Sequence[ModelResult]) -> list[dict[str, Any]]:
    """Per series and width, the accuracy at the learning rate that is best on the dev set; over seeds the median."""
    rates: dict[tuple[str, int, int], list[ModelResult]] = {}
    for model in models:
        if model.any_accuracy is not None:
            rates.setdefault((model.series, model.width, model.training["seed"]), []).append(model)
    seeds: dict[tuple[str, int], list[float]] = {}
    for (series, width, _), runs in rates.items():
        accuracy = max(runs, key=merit).any_accuracy
        if accuracy is not None:
            seeds.setdefault((series, width), []).append(accuracy)
    return [
        {"series": series, "width": width, "accuracy": round(median(found), 4), "seeds": len(found)}
        for (series, width), found in seeds.items()
    ]


def _series(count: int) -> tuple[list[str], list[list[int]]]:
    """Colours and dashes of so many lines."""
    return (
        [SERIES[i % len(SERIES)] for i in range(count)],
        [DASHES[(i // len(SERIES)) % len(DASHES)] for i in range(count)],
    )


def learning_curve(models: Sequence[ModelResult], metric: Metric, title: str, percent: bool = False) -> Chart:
    """One metric against steps, a line per model; the end of each line says how training ended."""
    by = "model" if len(models) <= MOST_LINES else "architecture"
    names = list(dict.fromkeys(model.label if by == "model" else model.architecture for model in models))
    colours, dashes = _series(len(names))
    rows: list[dict[str, Any]] = []
    last: list[str] = []
    for model in models:
        told = {"model": model.label} if by == "model" else {"model": model.label, by: model.architecture}
        found = [(point.step, value) for point in model.curve.points if (value := _metric(point, metric)) is not None]
        rows += [{**told, "step": step, metric: round(value, 5)} for step, value in found]
        if found:
            rows[-1]["ended"] = model.status.outcome
            last.append(f"{model.label} {found[-1][1]:.3f}")
    scale = alt.Scale(domain=[0, 1]) if percent else alt.Scale(zero=True)
    legend = alt.Legend(title=None, orient="bottom", columns=3, labelLimit=260, symbolType="stroke")
    base = alt.Chart(alt.NamedData("curve")).encode(
        x=alt.X("step:Q", title="training steps", axis=alt.Axis(grid=False, tickCount=5, tickMinStep=1)),
        y=alt.Y(f"{metric}:Q", title=None, scale=scale, axis=alt.Axis(format="%" if percent else "~g", tickCount=5)),
        color=alt.Color(f"{by}:N", scale=alt.Scale(domain=names, range=colours), legend=legend),
        detail="model:N",
        tooltip=["model:N", "step:Q", alt.Tooltip(f"{metric}:Q", format=".1%" if percent else ".4f")],
    )
    lines = base.mark_line(strokeWidth=2).encode(
        strokeDash=alt.StrokeDash(f"{by}:N", scale=alt.Scale(domain=names, range=dashes), legend=legend)
    )
    ends = base.transform_filter("isValid(datum.ended)").mark_point(filled=True, opacity=1, size=60)
    ends = ends.encode(
        shape=alt.Shape(
            "ended:N",
            scale=alt.Scale(domain=["reached", "finished", "diverged"], range=["circle", "square", "cross"]),
            legend=None,
        )
    )
    chart = alt.layer(*(_guessing(models) if metric == "accuracy" else []), lines, ends)
    chart.width, chart.height = "container", CURVE_HEIGHT
    chart.description = f"{title} against training steps; at the end: {', '.join(last)}."
    chart.title = alt.TitleParams(title, anchor="start", fontSize=12)
    chart.datasets = {"curve": rows, **(_guessed(models) if metric == "accuracy" else {})}
    return chart


def _metric(point: Evaluation, metric: Metric) -> float | None:
    return point.accuracy if metric == "accuracy" else point.loss


def emergence_chart(model: ModelResult, slot: str) -> Chart | None:
    """The share of each role between the blocks against steps, with the accuracy; None where nothing was measured."""
    points = [point for point in model.emergence.points if point.slot == slot] if model.emergence else []
    between = list(dict.fromkeys(point.site for point in points))[1:-1]
    after = {site: f" after block {i}" if len(between) > 1 else "" for i, site in enumerate(between)}
    seen = [(f"{point.role}{after[point.site]}", point) for point in points if point.site in after]
    shares = [{"step": p.step, "what": name, "value": round(p.share, 4)} for name, p in seen if p.share is not None]
    if not shares:
        return None
    accuracy = {point.step: point.accuracy for _, point in seen if point.accuracy is not None}
    rows = [*shares, *({"step": step, "what": ACCURACY, "value": round(v, 4)} for step, v in accuracy.items())]
    names = [*dict.fromkeys(name for name, _ in seen), ACCURACY]
    colours, dashes = _series(len(names) - 1)
    scales = {"colour": [*colours, GREY], "dash": [*dashes, [5, 3]]}
    legend = alt.Legend(title=None, orient="bottom", columns=3, symbolType="stroke")
    base = alt.Chart(alt.NamedData("emergence")).encode(
        x=alt.X("step:Q", title="training steps", scale=alt.Scale(type="symlog"), axis=alt.Axis(grid=False)),
        y=alt.Y("value:Q", title=None, scale=alt.Scale(domain=[-0.1, 1.1], clamp=True), axis=alt.Axis(tickCount=5)),
        color=alt.Color("what:N", scale=alt.Scale(domain=names, range=scales["colour"]), legend=legend),
        strokeDash=alt.StrokeDash("what:N", scale=alt.Scale(domain=names, range=scales["dash"]), legend=legend),
        tooltip=[alt.Tooltip("what:N"), alt.Tooltip("step:Q"), alt.Tooltip("value:Q", format=".3f")],
    )
    chart = alt.layer(base.mark_line(strokeWidth=2), base.mark_point(filled=True, size=28, opacity=1))
    last = {row["what"]: row["value"] for row in rows}
    ends = ", ".join(f"{name} {last[name]:.2f}" for name in names if name in last)
    chart.description = f"{model.label}: share restored between the blocks against training steps; at the end: {ends}."
    chart.width, chart.height = "container", CURVE_HEIGHT
    chart.title = alt.TitleParams(model.label, anchor="start", fontSize=12)
    chart.datasets = {"emergence": rows}
    return chart


def save_chart(chart: Chart | dict[str, Any], path: Path | str) -> None:
    """Saves a chart as SVG, PNG, PDF or Vega-Lite JSON, by the ending of the name; needs no browser."""
    drawn = alt.Chart.from_dict(chart) if isinstance(chart, dict) else chart
    drawn.save(str(path))
