"""The study's figure: readability over depth, damage against readability, the flip, and longer documents."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from mixerscope.analysis.readability import profile
from mixerscope.experiments.task_flip.evidence import Cells, flip_of, grouping_of, inner
from mixerscope.experiments.task_flip.found import LEAST_SEEDS
from mixerscope.experiments.task_flip.models import Cell, Model
from mixerscope.experiments.task_flip.study import BRACKETS, MAIN, PARITY, RECURRENT, S3, TRANSFORMER, settings
from mixerscope.report.charts import DASHES, GREY, SERIES

Row = dict[str, Any]
FIRST = (PARITY, BRACKETS, S3)
METHODS = {"single direction": "one direction", "leace": "LEACE", "iterated projection": "iterated projection"}
RANDOM = "random, same variance"
TOOK, LEFT, UNREAD = "nothing is left to read", "a fresh probe still reads it", "nobody read what is left"
SHAPES = {TOOK: "square", LEFT: "circle", UNREAD: "triangle-up"}
VERDICTS = ("carried", "recomputed", "length-specific", "undetermined")
SIZE, COLUMNS = 150, (5, 4, 3)
LOWEST = -0.25
"""Answers below guessing are drawn at this height at most: where much is guessed, little is a lot below it."""
LEGEND = alt.Legend(title=None, symbolOpacity=1, symbolType="stroke", symbolSize=300)
"""Beside the first panels, for all of them: colours and dashes are the same throughout."""
NOTHING = "no model passed the gate"


def figure(best: Mapping[Cell, Sequence[Model]], models: Sequence[Model]) -> dict[str, Any]:
    """As Vega-Lite JSON."""
    names = _ordered({cell[1] for cell in best})
    panels = [readability(best, names), damage(best, names), flips(best, names), lengths(models, names)]
    chart = alt.vconcat(*panels, spacing=30)
    chart = chart.resolve_scale(color="independent", strokeDash="independent", shape="independent")
    return chart.configure_view(stroke=None).configure_axis(gridColor="#e6e9ee").to_dict()


def _ordered(names: Iterable[str]) -> list[str]:
    """The five of the study first, each with its variants behind it, then the others."""
    known = [*MAIN, *settings()["controls"].values()]
    return sorted(names, key=lambda name: (*(_place(one, known) for one in (_family(name), name)), name))


def _place(name: str, known: Sequence[str]) -> int:
    return known.index(name) if name in known else len(known)


def _family(name: str) -> str:
    return name.split(", ")[0]


def _colour(names: Sequence[str], legend: alt.Legend | None = None) -> alt.Color:
    """A colour for each mixer, which its variants share; grey for those beyond the colours there are."""
    own = [*MAIN, *settings()["controls"].values()]
    colours = [*SERIES, "#000000", "#8c6d31"]
    found = {name: colours[own.index(name)] if name in own[: len(colours)] else GREY for name in map(_family, names)}
    scale = alt.Scale(domain=list(names), range=[found[_family(name)] for name in names])
    return alt.Color("name:N", scale=scale, legend=legend)


def _dash(names: Sequence[str], legend: alt.Legend | None = None) -> alt.StrokeDash:
    """Solid for a mixer as it usually is, broken for its variants."""
    variants = {name: [one for one in names if _family(one) == _family(name) != one] for name in names}
    dashes = [DASHES[0] if _family(name) == name else _broken(variants[name].index(name)) for name in names]
    return alt.StrokeDash("name:N", scale=alt.Scale(domain=list(names), range=dashes), legend=legend)


def _broken(number: int) -> Sequence[int]:
    return DASHES[1 + number % (len(DASHES) - 1)]


def _panels(
    rows: Sequence[Row], title: str | list[str], layers: Sequence[alt.Chart], order: Sequence[str] | None = None
) -> Any:
    if not rows:
        nothing = alt.Chart(alt.Data(values=[{"said": NOTHING}])).mark_text(color=GREY).encode(text="said:N")
        return nothing.properties(title=title)
    order = order or list(dict.fromkeys(row["task"] for row in rows))
    # Places without a panel would have axes too.
    panels = len({row["task"] for row in rows})
    columns = min(COLUMNS, key=lambda count: -panels % count if panels > count else 0)
    return (
        alt.layer(*layers, data=alt.Data(values=list(rows)))
        .properties(width=SIZE, height=SIZE)
        .facet(facet=alt.Facet("task:N", sort=list(order), title=None), columns=columns)
        .properties(title=title)
    )


def _label(cell: Cell) -> str:
    """The panel that a cell is in: controls apart from what they are controls of."""
    task, name, blocks = cell
    return f"{task}{'' if blocks == 4 else f', {blocks} blocks'}{'' if name in MAIN else ', controls'}"


def _panel_order(cells: Iterable[Cell]) -> list[str]:
    found = sorted(cells, key=lambda cell: (cell[1] not in MAIN, cell[2], _place(cell[0], FIRST), cell[0]))
    return list(dict.fromkeys(map(_label, found)))


def readability(best: Mapping[Cell, Sequence[Model]], names: Sequence[str]) -> Any:
    """A thin line a seed, a thick one for their mean."""
    rows: list[Row] = []
    for cell, models in best.items():
        curves = [(f"seed {model.seed}", model.curve) for model in models if model.curve is not None]
        if curves:
            curves.append(("mean", [statistics.fmean(values) for values in zip(*(c for _, c in curves), strict=True)]))
        for who, curve in curves:
            for place, value in enumerate(curve):
                depth = place / (len(curve) - 1)
                rows.append({"task": _label(cell), "name": cell[1], "who": who, "depth": depth, "value": value})
    base = alt.Chart().encode(
        x=alt.X("depth:Q", title="depth: embedding to last block"),
        y=alt.Y("value:Q", title="readability", scale=alt.Scale(domain=[0, 1])),
        color=_colour(names, LEGEND),
        strokeDash=_dash(names, LEGEND),
        detail="who:N",
    )
    thin = base.transform_filter("datum.who != 'mean'").mark_line(opacity=0.25, strokeWidth=1)
    thick = base.transform_filter("datum.who == 'mean'").mark_line(strokeWidth=2.5)
    title = "Where the answer can be read: 0 is the best rule without a model, 1 the model itself; thin lines are seeds"
    return _panels(rows, title, [thin, thick], _panel_order(best))


def damage(best: Mapping[Cell, Sequence[Model]], names: Sequence[str]) -> Any:
    """A point a boundary between blocks and model; strong where a fresh probe reads nothing any more. Of random
    subspaces nobody asked what they leave, nor, where nothing was read in other documents than those in which it was
    found, of an erasure that takes all there is in these."""
    rows: list[Row] = []
    for cell, models in best.items():
        for model in models:
            for method, label in METHODS.items():
                for one in inner(model, method):
                    if one.damage is None or model.curve is None:
                        continue
                    said = TOOK if one.speaks else UNREAD if one.gone_there else LEFT
                    point = {"name": cell[1], "read": model.curve[one.boundary], "said": said}
                    rows.append({**point, "task": label, "damage": one.damage})
                    if method == "leace" and one.controls is not None:
                        rows.append({**point, "said": UNREAD, "task": RANDOM, "damage": one.controls})
    points = (
        alt.Chart()
        .mark_point(size=22, filled=True)
        .encode(
            x=alt.X("read:Q", title="readability", scale=alt.Scale(domain=[0, 1])),
            y=alt.Y("damage:Q", title="damage"),
            color=_colour(names),
            opacity=alt.condition(f"datum.said == '{TOOK}'", alt.value(0.9), alt.value(0.35)),
            shape=alt.Shape("said:N", title=None, scale=alt.Scale(domain=[*SHAPES], range=[*SHAPES.values()])),
        )
    )
    title = (
        "What erasing costs between blocks: 0 is nothing, 1 leaves guessing; controls have the colour of their mixer"
    )
    return _panels(rows, title, [points], [*METHODS.values(), RANDOM])


def flips(best: Mapping[Cell, Sequence[Model]], names: Sequence[str]) -> Any:
    """Lateness by task, where lines that cross are a flip; the flip itself, and how S3 is grouped, with intervals."""
    cells = Cells(best)
    main = [name for name in names if name in MAIN]
    late = [
        {"name": name, "where": task, "late": found}
        for task, name, layers in best
        if name in MAIN and layers == 4
        for curve in cells.curves(task, name)
        if (found := profile(curve).lateness) is not None
    ]
    known = {row["where"] for row in late}
    order = sorted(known, key=lambda task: (_place(task, FIRST), task))
    base = (
        alt.Chart(alt.Data(values=late))
        .encode(
            x=alt.X("where:N", title=None, sort=order, axis=alt.Axis(labelAngle=-35)),
            y=alt.Y("late:Q", title="lateness", scale=alt.Scale(domain=[0, 1])),
            color=_colour(main),
        )
        .properties(width=max(SIZE, 45 * len(known)), height=SIZE)
    )
    lines = alt.layer(base.mark_point(size=18, opacity=0.5), base.mark_line().encode(y="mean(late):Q"))
    lines = lines.properties(title="How late the answer becomes readable") if late else _panels([], "Lateness", [])
    flipped = _intervals(
        cells, [name for name in RECURRENT if name in main], (PARITY, BRACKETS), lambda of, name: flip_of(of, [name])
    )
    grouped = _intervals(cells, main, FIRST, lambda of, name: grouping_of(of, S3, [name]))
    return alt.hconcat(
        lines,
        _bars(flipped, main, "Flip from brackets to parity", "above 0: as was claimed"),
        _bars(grouped, main, "Does S3 go with parity?", "above 0: nearer it than brackets are"),
        spacing=30,
    )


def _intervals(cells: Cells, names: Sequence[str], tasks: Sequence[str], statistic: Any) -> list[Row]:
    """A number an architecture with its interval over seeds, of those with enough of them in all tasks."""
    rows: list[Row] = []
    for name in names:
        needed = [(task, each) for task in tasks for each in dict.fromkeys((name, TRANSFORMER))]
        value = statistic(cells, name) if cells.fewest(needed) >= LEAST_SEEDS else None
        if value is not None:
            low, high = cells.interval(needed, lambda of, name=name: statistic(of, name))
            rows.append({"name": name, "value": value, "low": low, "high": high})
    return rows


def _bars(rows: Sequence[Row], names: Sequence[str], title: str, axis: str) -> Any:
    if not rows:
        return _panels([], title, [])
    base = alt.Chart(alt.Data(values=list(rows))).encode(
        y=alt.Y("name:N", title=None, sort=list(names)), color=_colour(names)
    )
    zero = alt.Chart(alt.Data(values=[{"at": 0}])).mark_rule(color=GREY, strokeDash=[4, 3]).encode(x="at:Q")
    points = base.mark_point(filled=True, size=50).encode(x=alt.X("value:Q", title=axis))
    bars = base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q")
    return alt.layer(zero, bars, points).properties(title=title, width=SIZE, height=SIZE)


def lengths(models: Sequence[Model], names: Sequence[str]) -> Any:
    """The last answer over the length, a line a model that passed the gate, by its verdict."""
    passed = [model for model in models if model.passed and model.verdict in VERDICTS]
    count = {verdict: sum(model.verdict == verdict for model in passed) for verdict in VERDICTS}
    rows = [
        {
            "task": f"{model.verdict} ({count[model.verdict or '']})",
            "name": model.cell[1],
            "times": times,
            "value": max(LOWEST, (value - model.guessing[times]) / (1 - model.guessing[times])),
            "who": model.run_id,
        }
        for model in passed
        for times, value in sorted(model.last.items())
        if model.guessing[times] < 1
    ]
    line = (
        alt.Chart()
        .mark_line(opacity=0.3)
        .encode(
            x=alt.X("times:O", title="lengths of training", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("value:Q", title="last answer, beyond guessing", scale=alt.Scale(domain=[LOWEST, 1])),
            color=_colour(names),
            strokeDash=_dash(names),
            detail="who:N",
        )
    )
    holds = alt.Chart().mark_rule(color=GREY, strokeDash=[4, 3]).encode(y=alt.datum(0.5))
    order = [f"{verdict} ({count[verdict]})" for verdict in VERDICTS if count[verdict]]
    title = [
        "What becomes of each verdict (and how many have it) in longer documents; what is above the grey dashes holds",
        f"Answers further below guessing than {-LOWEST:g} are drawn there",
    ]
    return _panels(rows, title, [line, holds], order)
