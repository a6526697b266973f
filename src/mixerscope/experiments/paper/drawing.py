"""The shapes of the paper's figures: heat maps with numbers in them, lines over width with bands, box plots."""

import itertools
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import altair as alt

from mixerscope.experiments.paper.data import Row
from mixerscope.experiments.paper.tables import CellKey
from mixerscope.report.charts import GREY, SERIES
from mixerscope.report.heat_maps import RAMP

Chart = alt.TopLevelMixin
NAMES = {
    "attention": "Attention",
    "based": "Based",
    "base_conv": "BaseConv",
    "deltanet": "DeltaNet",
    "h3": "H3",
    "hyena": "Hyena",
    "mamba": "Mamba",
}
"""Architectures as the paper writes them."""
ARCHITECTURES = ("Mamba", "Hyena", "H3", "DeltaNet", "Based", "BaseConv", "Attention")
"""In the paper's order."""
COLOURS = dict(zip(ARCHITECTURES, (*SERIES, "#000000"), strict=True))
OURS, PUBLISHED = "ours", "published"
CELL, LINE_HEIGHT = 34, 24
LETTER = 6
LONGEST = 64
"""Letters of a table's cell: one long reason would make all the rest too small to read."""
STRONG = 55
"""Percent above which a cell is dark, and its number light."""
NOTHING = "nothing was run"
GAP = "–"
"""In a cell of ours that was not run."""
MARKS = ("circle", "triangle-up", "square", "cross")
"""Of lines of one colour."""


def empty(text: str = NOTHING) -> Chart:
    """A chart that says so."""
    return alt.Chart(alt.Data(values=[{"said": text}])).mark_text(color=GREY).encode(text="said:N")


def heat_maps(
    rows: Sequence[Row], published: Mapping[CellKey, float], panels: Sequence[str], order: Sequence[str], title: str
) -> Chart:
    """A panel each, rows by `order`, columns by width: the median over seeds, a dash where nothing was run; below it
    what was published."""
    ours = _medians(rows)
    printed: list[Row] = [
        {"panel": panel, "row": row, "width": width, "value": value, "text": f"{value:.1f}", "said": PUBLISHED}
        for (panel, row, width), value in published.items()
        if panel in panels  # what is printed of others stands in the table
    ]
    shown = [(OURS, ours), (PUBLISHED, printed)] if printed else [(OURS, ours)]
    if not ours and not printed:
        return empty()
    widths = sorted({row["width"] for _, cells in shown for row in cells})
    order = [name for name in order if any(row["row"] == name for _, cells in shown for row in cells)]
    lines = [
        alt.hconcat(*(_heat_map(cells, panel, order, widths, who) for panel in panels), spacing=12)
        for who, cells in shown
        if cells
    ]
    return _titled(alt.vconcat(*lines, spacing=18), title)


def _heat_map(cells: Sequence[Row], panel: str, order: Sequence[str], widths: Sequence[int], who: str) -> Any:
    own = [cell for cell in cells if cell["panel"] == panel]
    bare = {"title": None, "axis": alt.Axis(labelAngle=0, ticks=False, domain=False)}
    base = alt.Chart(alt.Data(values=own)).encode(
        x=alt.X("width:O", scale=alt.Scale(domain=list(widths)), **bare),
        y=alt.Y("row:N", scale=alt.Scale(domain=list(order)), **bare),
        tooltip=[alt.Tooltip("said:N", title=who)],
    )
    scale = alt.Scale(domain=[0, 100], range=list(RAMP), clamp=True)
    squares = base.mark_rect(stroke="white").encode(color=alt.Color("value:Q", scale=scale, legend=None))
    numbers = base.mark_text(fontSize=10).encode(
        text="text:N",
        color=alt.condition(f"datum.value > {STRONG}", alt.value("white"), alt.value("#1c2430")),
    )
    gaps = base.mark_text(fontSize=10, color=GREY).encode(text=alt.value(GAP))
    gaps.data = alt.Data(values=_not_run(own, order, widths) if who == OURS else [])
    height, width = LINE_HEIGHT * len(order), CELL * len(widths)
    title = alt.TitleParams([panel, who], fontSize=11)  # so that those of neighbours do not run together
    return alt.layer(squares, numbers, gaps).properties(width=width, height=height, title=title)


def _not_run(cells: Sequence[Row], order: Sequence[str], widths: Sequence[int]) -> list[Row]:
    there = {(cell["row"], cell["width"]) for cell in cells}
    every = itertools.product(order, widths)
    return [{"row": row, "width": width, "said": "not run"} for row, width in every if (row, width) not in there]


def _medians(rows: Sequence[Row]) -> list[Row]:
    found: dict[CellKey, list[float]] = {}
    for row in rows:
        if row["value"] is not None:
            found.setdefault((row["panel"], row["row"], row["width"]), []).append(row["value"])
    cells: list[Row] = []
    for (panel, row, width), values in found.items():
        median = statistics.median(values)
        said = f"{median:.1f}, seeds from {min(values):.1f} to {max(values):.1f} ({len(values)})"
        cells.append(
            {"panel": panel, "row": row, "width": width, "value": median, "text": f"{median:.1f}", "said": said}
        )
    return cells


def lines(
    rows: Sequence[Row],
    published: Mapping[CellKey, float],
    panels: Sequence[str],
    title: str,
    dash: str | None = None,
) -> Chart:
    """Accuracy over width: the median over seeds, a band from the lowest to the highest, each seed a point, and open
    diamonds where the paper prints a number. `dash` is a column that splits the lines of one colour."""
    known = [row for row in rows if row["value"] is not None]
    if not known and not published:
        return empty()
    printed: list[Row] = [
        {"panel": panel, "row": row, "width": width, "value": value, dash or "row": row.partition(", ")[2] or row}
        for (panel, row, width), value in published.items()
    ]
    widths = sorted({row["width"] for row in [*known, *printed]})
    there = {row["panel"] for row in [*known, *printed]}  # what was not run is said beside the drawing
    drawn = [_lines(known, printed, panel, widths, dash) for panel in panels if panel in there]
    return _titled(alt.hconcat(*drawn, spacing=16), f"{title}; diamonds: published" if printed else title)


def _lines(rows: Sequence[Row], printed: Sequence[Row], panel: str, widths: Sequence[int], dash: str | None) -> Any:
    own = [{**row, "series": row["row"].partition(", ")[0]} for row in rows if row["panel"] == panel]
    theirs = [{**row, "series": row["row"].partition(", ")[0]} for row in printed if row["panel"] == panel]
    there = {row["row"].partition(", ")[0] for row in [*rows, *printed]}
    more: dict[str, Any] = {}
    shape: dict[str, Any] = {}
    if dash is not None:
        more["strokeDash"] = alt.StrokeDash(f"{dash}:N", legend=alt.Legend(title=dash))
        shape = {"shape": alt.Shape(f"{dash}:N", scale=alt.Scale(range=list(MARKS)), legend=None)}
    detail = alt.Detail("row:N")
    base = alt.Chart(alt.Data(values=own)).encode(
        x=alt.X(
            "width:Q",
            title="width",
            scale=alt.Scale(type="log", base=2, domain=[widths[0] * 0.9, widths[-1] * 1.1]),
            axis=alt.Axis(values=list(widths), grid=False),
        ),
        color=_colour("series", there),
        detail=detail,
    )
    y = alt.Scale(domain=[0, 100])
    band = base.mark_area(opacity=0.12).encode(y=alt.Y("min(value):Q", title="accuracy, %", scale=y), y2="max(value):Q")
    middle = base.mark_line().encode(y="median(value):Q", **more)
    medians = base.mark_point(filled=True, size=36, opacity=1).encode(y="median(value):Q", **shape)
    seeds = base.mark_point(filled=True, size=14, opacity=0.7).encode(
        y="value:Q", tooltip=["row:N", "seed:Q", "value:Q"], **shape
    )
    layers: list[alt.Chart] = [band, middle, medians, seeds]
    if theirs:
        marks = base.mark_point(shape="diamond", size=90, strokeWidth=2, filled=False).encode(
            y="value:Q", tooltip=["row:N", "value:Q"], **more
        )
        marks.data = alt.Data(values=theirs)
        layers.append(marks)
    return alt.layer(*layers).properties(width=230, height=210, title=panel)


def _colour(column: str, there: Collection[str], legend: bool = True) -> alt.Color:
    """The same colour for an architecture in every panel; the legend names those that are there."""
    shown = [name for name in ARCHITECTURES if name in there]
    scale = alt.Scale(domain=list(COLOURS), range=list(COLOURS.values()))
    key = alt.Legend(title=None, values=shown, symbolOpacity=1, symbolType="square")
    return alt.Color(f"{column}:N", scale=scale, legend=key if legend else None)


def boxes(rows: Sequence[Row], title: str, limits: tuple[float, float], row: str, column: str) -> Chart:
    """Box plots over all checkpoints, an architecture each; like the paper's, without what lies outside the limits."""
    low, high = limits
    own = [one for one in rows if one["value"] is not None and low <= one["value"] <= high]
    if not own:
        return empty()
    there = [name for name in ARCHITECTURES if any(one["row"] == name for one in own)]
    chart = (
        alt.Chart(alt.Data(values=own))
        .mark_boxplot(extent=1.5, size=12, outliers={"size": 8})
        .encode(
            x=alt.X("row:N", sort=there, title=None, axis=alt.Axis(labelAngle=-40)),
            y=alt.Y("value:Q", title="share restored", scale=alt.Scale(domain=[low, high])),
            color=_colour("row", there, legend=False),
        )
        .properties(width=170, height=130)
        .facet(row=alt.Row(f"{row}:N", title=None), column=alt.Column(f"{column}:N", title=None))
    )
    return _titled(chart, title)


def scatter(rows: Sequence[Row], title: str) -> Chart:
    """Dev (x) against test (y) accuracy: every checkpoint faint, the chosen ones joined over width."""
    own = [row for row in rows if row["x"] is not None and row["y"] is not None]
    if not own:
        return empty()
    there = [name for name in ARCHITECTURES if any(row["row"] == name for row in own)]
    base = alt.Chart(alt.Data(values=own)).encode(
        x=alt.X("x:Q", title="accuracy on dev documents, %"),
        y=alt.Y("y:Q", title="accuracy on test documents, %"),
        color=_colour("row", there),
        tooltip=["row:N", "width:Q", "lr:Q", "seed:Q", "x:Q", "y:Q"],
    )
    faint = base.mark_point(filled=True, size=14, opacity=0.25)
    chosen = (
        base.transform_filter("datum.chosen").mark_line(point=True).encode(order="width:Q", detail=["row:N", "seed:N"])
    )
    return _titled(alt.layer(faint, chosen).properties(width=260, height=260), title)


def shares_over_steps(rows: Sequence[Row], title: str) -> Chart:
    """How the share of every role comes about while models train: a panel an architecture, a line a seed and role."""
    if not rows:
        return empty("training was not watched")
    chart = (
        alt.Chart(alt.Data(values=list(rows)))
        .mark_line(point={"size": 10})
        .encode(
            x=alt.X("step:Q", title="steps", scale=alt.Scale(type="log", nice=False)),
            y=alt.Y("value:Q", title="share restored", scale=alt.Scale(domain=[-0.1, 1.1], clamp=True)),
            color=alt.Color("role:N", scale=alt.Scale(range=list(SERIES)), legend=alt.Legend(title=None)),
            detail="seed:N",
            tooltip=["row:N", "role:N", "seed:N", "step:Q", "value:Q", "accuracy:Q"],
        )
        .properties(width=190, height=150)
        .facet(column=alt.Column("row:N", title=None))
    )
    return _titled(chart, title)


def words(rows: Sequence[Row], columns: Sequence[str], title: str) -> Chart:
    """A table of words as a drawing: one line a row, columns as wide as their longest word."""
    if not rows:
        return empty()
    told = [{column: _short(row[column]) for column in columns} for row in rows]
    lines = [dict(zip(columns, columns, strict=True)), *told]
    left, at = 0, {}
    for column in columns:
        at[column] = left
        left += LETTER * (2 + max(len(line[column]) for line in lines))
    cells = [
        {"x": at[column], "y": index * LINE_HEIGHT, "said": line[column], "weight": "normal" if index else "bold"}
        for index, line in enumerate(lines)
        for column in columns
    ]
    base = alt.Chart(alt.Data(values=cells)).encode(
        x=alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, left])),
        y=alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[len(lines) * LINE_HEIGHT, -LINE_HEIGHT / 2])),
        text="said:N",
    )
    layers = [
        base.transform_filter(f"datum.weight == '{weight}'").mark_text(align="left", fontSize=11, fontWeight=weight)
        for weight in ("bold", "normal")
    ]
    return _titled(alt.layer(*layers).properties(width=left, height=LINE_HEIGHT * len(lines)), title)


def _short(value: object) -> str:
    """What fits into a cell; nothing is a dash."""
    said = "–" if value is None else str(value)
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 1]}…"


def beside_each_other(*charts: Chart) -> Chart:
    return alt.vconcat(*charts, spacing=30)  # pyright: ignore[reportArgumentType]


def _titled(chart: Any, title: str) -> Chart:
    return chart.properties(title=alt.TitleParams(title, anchor="start"))


def configured(chart: Chart) -> dict[str, Any]:
    """As Vega-Lite JSON, in the house's type and without frames."""
    found = chart.configure_view(stroke=None).configure_axis(gridColor="#e6e9ee").to_dict()
    # The drawing is as wide as its title in the font that measures it; where it is shown the font may be wider.
    found["padding"] = {"left": 5, "top": 5, "bottom": 5, "right": 5 + round(0.8 * _longest_title(found))}
    return found


def _longest_title(found: Any) -> int:
    """Letters of the longest title over a whole drawing or one of its rows."""
    if not isinstance(found, dict):
        return 0
    title = found.get("title")
    own = len(title["text"]) if isinstance(title, dict) and title.get("anchor") == "start" else 0
    return max(own, *(_longest_title(part) for part in found.get("vconcat", [])), 0)
