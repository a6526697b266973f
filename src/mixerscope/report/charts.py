"""The figures, as Vega-Lite charts. Colours that depend on light and dark are parameters that the page sets."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt

from mixerscope.analysis import SHARE
from mixerscope.analysis.rules import NOT_LEARNED
from mixerscope.report.data import ModelResult, SlotVerdict

CELL_WIDTH, CELL_HEIGHT = 44, 28
CURVE_HEIGHT = 220
MARKS = {"no path": "–", "same": "=", "invalid": "✕"}
"""What stands in a cell in place of a number that was not measured."""
UNDEFINED = "n/a"
"""What stands in a measured cell whose share has no value: there is no gap to restore."""
PANELS = {"restore": "restore: share brought back", "break": "break: share taken away"}
TOOLTIP = ("site", "role", "share", "interval", "n", "status", "why")
STRONG = 0.64
"""Shares above this have a colour on which text needs the other ink."""
INK = {"strong_ink": "#ffffff", "weak_ink": "#1c2430", "edge": "#b9c1cc", "alarm": "#b3540a"}
"""Parameters of a heat map and their values in light; text on strong cells, on weak cells, cell edges, invalid."""
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's colours, which stay apart for colour-blind readers; beyond six, dashes tell lines apart."""
DASHES = ([1, 0], [6, 3], [2, 2])
SHAPES = {"induction": "circle", "direct retrieval": "triangle-up", NOT_LEARNED: "cross"}
"""Of the usual mechanisms; others share one."""
OTHER_SHAPE = "diamond"
ACCURACY = "accuracy"
GREY = "#808890"
RAMP = ("#f1f4f9", "#9cc3e6", "#2f7fc1", "#0b3f78")

Chart = alt.LayerChart | alt.FacetChart | alt.VConcatChart


def heat_map(model: ModelResult, slot: str, sites: dict[str, str]) -> Chart:
    """Share restored (above) and broken (below) at the given sites (site to row label), by role."""
    shown = [row for row in model.cells if (row["metric"], row["slot"]) == (SHARE, slot) and row["site"] in sites]
    frame = _frame(tuple(dict.fromkeys(row["role"] for row in shown)), tuple(sites.values()))
    chart = frame.copy(deep=False)
    chart.description = heat_map_text(model, slot, sites)
    chart.datasets = {direction: _cell_rows(shown, sites, direction) for direction in PANELS}
    return chart


@cache
def _frame(roles: tuple[str, ...], rows: tuple[str, ...]) -> alt.VConcatChart:
    """A heat map without its numbers. Altair takes its time over charts, and most models share theirs."""
    panels = [_panel(direction, list(roles), list(rows)) for direction in PANELS]
    chart = alt.vconcat(*panels, spacing=14, padding={"left": 0, "top": 4, "right": 4, "bottom": 8}).resolve_scale(
        color="shared"
    )
    chart = chart.add_params(*(alt.param(name=name, value=value) for name, value in INK.items()))
    return chart.configure_range(heatmap=list(RAMP))


def _cell_rows(rows: Sequence[dict[str, Any]], sites: dict[str, str], direction: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for row in rows:
        if row["direction"] != direction:
            continue
        known = row["value"] is not None
        found.append(
            {
                "row": sites[row["site"]],
                "role": row["role"],
                "site": row["site"],
                "share": round(row["value"], 4) if known else None,
                "interval": f"{row['low']:.3f} to {row['high']:.3f}" if known else "none",
                "n": row["n"],
                "status": row["status"],
                "why": row["reason"],
                "text": cell_text(row),
            }
        )
    return found


def cell_text(row: dict[str, Any]) -> str:
    """What is printed in a cell."""
    if row["status"] != "measured":
        return MARKS[row["status"]]
    if row["value"] is None:
        return UNDEFINED
    text = f"{row['value']:.2f}".replace("-", "−")
    return text.removeprefix("−") if float(f"{row['value']:.2f}") == 0 else text


def _panel(direction: str, roles: list[str], rows: list[str]) -> Chart:
    below = alt.Axis(labels=direction == "break", ticks=False, domain=False, labelAngle=0, labelFontSize=11)
    beside = alt.Axis(ticks=False, domain=False, labelLimit=220, labelPadding=6)
    base = alt.Chart(alt.NamedData(direction)).encode(
        x=alt.X("role:N", sort=roles, title=None, axis=below),
        y=alt.Y("row:N", sort=rows, title=None, axis=beside),
        tooltip=[alt.Tooltip(f"{name}:N", title=name) for name in TOOLTIP],
    )
    measured = base.transform_filter("datum.status == 'measured' && isValid(datum.share)").mark_rect(
        stroke=alt.expr("edge"), strokeWidth=0.5
    )
    measured = measured.encode(color=alt.Color("share:Q", scale=alt.Scale(domain=[0, 1], clamp=True), legend=None))
    not_measured = base.transform_filter("datum.status != 'measured' || !isValid(datum.share)").mark_rect(
        fill="transparent",
        stroke=alt.expr("datum.status == 'invalid' ? alarm : edge"),
        strokeDash=alt.expr("datum.status == 'no path' ? [2, 3] : [1, 0]"),
        strokeWidth=alt.expr("datum.status == 'invalid' ? 2 : 0.8"),
    )
    ink = f"datum.status == 'invalid' ? alarm : datum.share > {STRONG} ? strong_ink : weak_ink"
    text = base.mark_text(fontSize=11, fill=alt.expr(ink)).encode(text="text:N")
    chart = alt.layer(measured, not_measured, text)
    chart.width, chart.height = CELL_WIDTH * len(roles), CELL_HEIGHT * len(rows)
    chart.title = alt.TitleParams(PANELS[direction], anchor="start", fontSize=11, fontWeight="normal", offset=6)
    return chart


def heat_map_text(model: ModelResult, slot: str, sites: dict[str, str]) -> str:
    """The heat map in words, for those who do not see it."""
    parts: list[str] = []
    for site, label in sites.items():
        found = [
            f"{row['role']} {cell_text(row)}"
            for row in model.cells
            if (row["metric"], row["slot"], row["site"], row["direction"]) == (SHARE, slot, site, "restore")
        ]
        parts.append(f"{label}: {', '.join(found)}")
    return f"Share restored in {model.label}, {slot} corrupted. {'; '.join(parts)}."


def boundary_rows(model: ModelResult, verdict: SlotVerdict) -> dict[str, str]:
    """The block boundaries of a model, first to last, and what to call them."""
    sites = {row["site"] for row in model.cells if row["slot"] == verdict.slot}
    last = model.run.spec.model.layers - 1
    rows = {f"blocks.{i}.resid_pre": "input" if i == 0 else f"after block {i - 1}" for i in range(last + 1)}
    rows[f"blocks.{last}.resid_post"] = f"after block {last}"
    return {site: label for site, label in rows.items() if site in sites}


def all_rows(model: ModelResult, verdict: SlotVerdict) -> dict[str, str]:
    """Every site that was edited, in the order of the forward pass, under its own name."""
    return {row["site"]: row["site"] for row in model.cells if row["slot"] == verdict.slot}


def width_chart(models: Sequence[ModelResult]) -> Chart | None:
    """Accuracy against width, a line per architecture through its best models, a shape per mechanism; None where no
    architecture has several widths."""
    rows = [
        {
            "model": model.label,
            "architecture": model.run.spec.model.architecture,
            "width": model.run.spec.model.width,
            "accuracy": round(model.accuracy.value, 4),
            "low": model.accuracy.low,
            "high": model.accuracy.high,
            "mechanism": model.mechanism,
        }
        for model in models
        if model.accuracy
    ]
    best = {(row["architecture"], row["width"]): row for row in sorted(rows, key=lambda row: row["accuracy"])}
    architectures, mechanisms = ([*dict.fromkeys(row[key] for row in rows)] for key in ("architecture", "mechanism"))
    if len(best) == len(architectures):
        return None
    widths = sorted({row["width"] for row in rows})
    colours, dashes = _series(len(architectures))
    legend = alt.Legend(title=None, orient="bottom", columns=7, symbolType="stroke")
    base = alt.Chart(alt.NamedData("models")).encode(
        x=alt.X(
            "width:Q", title="width", scale=alt.Scale(type="log", base=2), axis=alt.Axis(values=widths, grid=False)
        ),
        color=alt.Color("architecture:N", scale=alt.Scale(domain=architectures, range=colours), legend=legend),
        tooltip=[alt.Tooltip("model:N"), alt.Tooltip("accuracy:Q", format=".1%"), alt.Tooltip("mechanism:N")],
    )
    accuracy = alt.Y("accuracy:Q", title=None, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%", tickCount=5))
    lines = base.mark_line(strokeWidth=2).encode(
        y=accuracy,
        strokeDash=alt.StrokeDash("architecture:N", scale=alt.Scale(domain=architectures, range=dashes), legend=legend),
    )
    lines.data = alt.NamedData("best")
    intervals = base.mark_rule(strokeWidth=1).encode(y="low:Q", y2="high:Q")
    shapes = alt.Scale(domain=mechanisms, range=[SHAPES.get(name, OTHER_SHAPE) for name in mechanisms])
    shape_legend = alt.Legend(title=None, orient="bottom", symbolFillColor=GREY, symbolStrokeColor=GREY)
    points = base.mark_point(filled=True, opacity=1, size=90).encode(
        y=accuracy, shape=alt.Shape("mechanism:N", scale=shapes, legend=shape_legend)
    )
    chart = alt.layer(lines, intervals, points)
    chart.width, chart.height = "container", CURVE_HEIGHT + 60
    found = [f"{r['architecture']} at {r['width']}: {r['accuracy']:.1%}, {r['mechanism']}" for r in best.values()]
    chart.description = f"Accuracy and mechanism by width; the best of each: {'; '.join(found)}."
    chart.title = alt.TitleParams("Accuracy on fresh documents by width", anchor="start", fontSize=12)
    chart.datasets = {"models": rows, "best": list(best.values())}
    return chart


def _series(count: int) -> tuple[list[str], list[list[int]]]:
    """Colours and dashes of so many lines."""
    return (
        [SERIES[i % len(SERIES)] for i in range(count)],
        [DASHES[(i // len(SERIES)) % len(DASHES)] for i in range(count)],
    )


def learning_curve(models: Sequence[ModelResult], metric: str, title: str, percent: bool = False) -> Chart:
    """One metric against steps, a line per model; the end of each line says how training ended."""
    labels = [model.label for model in models]
    colours, dashes = _series(len(labels))
    rows = [
        {"model": model.label, "step": point["step"], metric: round(point[metric], 5), "ended": ended}
        for model in models
        for i, point in enumerate(model.curve)
        if point[metric] is not None
        for ended in [model.outcome if i == len(model.curve) - 1 else ""]
    ]
    scale = alt.Scale(domain=[0, 1]) if percent else alt.Scale(zero=True)
    legend = alt.Legend(title=None, orient="bottom", columns=3, labelLimit=260, symbolType="stroke")
    base = alt.Chart(alt.NamedData("curve")).encode(
        x=alt.X("step:Q", title="training steps", axis=alt.Axis(grid=False, tickCount=5)),
        y=alt.Y(f"{metric}:Q", title=None, scale=scale, axis=alt.Axis(format="%" if percent else "~g", tickCount=5)),
        color=alt.Color(
            "model:N",
            scale=alt.Scale(domain=labels, range=colours),
            legend=legend,
        ),
        tooltip=[
            alt.Tooltip("model:N"),
            alt.Tooltip("step:Q"),
            alt.Tooltip(f"{metric}:Q", format=".1%" if percent else ".4f"),
        ],
    )
    lines = base.mark_line(strokeWidth=2).encode(
        strokeDash=alt.StrokeDash("model:N", scale=alt.Scale(domain=labels, range=dashes), legend=legend)
    )
    ends = base.transform_filter("datum.ended != ''").mark_point(filled=True, opacity=1, size=60)
    ends = ends.encode(
        shape=alt.Shape(
            "ended:N",
            scale=alt.Scale(domain=["reached", "finished", "diverged"], range=["circle", "square", "cross"]),
            legend=None,
        )
    )
    last = [f"{m.label} {m.curve[-1][metric]:.3f}" for m in models if m.curve and m.curve[-1][metric] is not None]
    description = f"{title} against training steps; at the end: {', '.join(last)}."
    chart = alt.layer(lines, ends)
    chart.width, chart.height, chart.description = "container", CURVE_HEIGHT, description
    chart.title = alt.TitleParams(title, anchor="start", fontSize=12)
    chart.datasets = {"curve": rows}
    return chart


def emergence_chart(model: ModelResult, slot: str) -> Chart | None:
    """The share of each role between the blocks against steps, with the accuracy; None where nothing was measured."""
    inner = {f"blocks.{i}.resid_pre" for i in range(1, model.run.spec.model.layers)}
    seen = [row for row in model.emergence if row.get("slot") == slot and row["site"] in inner]
    shares = [{"step": r["step"], "what": r["role"], "value": r["share"]} for r in seen if r["share"] is not None]
    if not shares:
        return None
    roles = list(dict.fromkeys(row["role"] for row in seen))
    accuracy = {row["step"]: row["accuracy"] for row in seen}
    rows = [*shares, *({"step": step, "what": ACCURACY, "value": value} for step, value in accuracy.items())]
    names = [*roles, ACCURACY]
    colours = [*(SERIES[i % len(SERIES)] for i in range(len(roles))), GREY]
    dashes = [*([1, 0] for _ in roles), [5, 3]]
    legend = alt.Legend(title=None, orient="bottom", columns=3, symbolType="stroke")
    base = alt.Chart(alt.NamedData("emergence")).encode(
        x=alt.X("step:Q", title="training steps", scale=alt.Scale(type="symlog"), axis=alt.Axis(grid=False)),
        y=alt.Y("value:Q", title=None, scale=alt.Scale(domain=[-0.1, 1.1], clamp=True), axis=alt.Axis(tickCount=5)),
        color=alt.Color("what:N", scale=alt.Scale(domain=names, range=colours), legend=legend),
        strokeDash=alt.StrokeDash("what:N", scale=alt.Scale(domain=names, range=dashes), legend=legend),
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


def save_chart(chart: Chart, path: Path | str) -> None:
    """Saves a chart as SVG, PNG, PDF or Vega-Lite JSON, by the ending of the name; needs no browser."""
    chart.save(str(path))
