"""Heat maps: the share that each site and role restores, or breaks. One frame serves all models of a kind."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Protocol

import altair as alt

from mixerscope.artifacts import Verdict
from mixerscope.artifacts.effects import Facts
from mixerscope.report.charts import Chart
from mixerscope.report.grids import MARKS, UNDEFINED

CELL_WIDTH, NARROW, CELL_HEIGHT = 44, 38, 28
FEW = 5
"""Columns that fit a card; more are drawn narrower."""
SHORT = 6
"""Letters of a role that fit below a cell; longer ones are set aslant."""
PANELS = {"restore": "restore: share brought back", "break": "break: share taken away"}
TOOLTIP = ("site", "role", "share", "interval", "n", "status", "why")
STRONG = 0.64
"""Shares above this have a colour on which text needs the other ink."""
INK = {"strong_ink": "#ffffff", "weak_ink": "#1c2430", "edge": "#b9c1cc", "alarm": "#b3540a"}
"""Parameters of a heat map and their values in light; text on strong cells, on weak cells, cell edges, invalid."""
RAMP = ("#f1f4f9", "#9cc3e6", "#2f7fc1", "#0b3f78")


class Mapped(Protocol):
    """What a heat map is drawn of: a run as the page has it, or a table alone."""

    @property
    def label(self) -> str: ...
    @property
    def facts(self) -> Facts | None: ...
    @property
    def shares(self) -> Mapping[str, list[dict[str, Any]]]: ...
    @property
    def verdicts(self) -> tuple[Verdict, ...]: ...


def heat_map(model: Mapped, slot: str, sites: dict[str, str]) -> dict[str, Any]:
    """Share restored (above) and broken (below) at the given sites (site to row label), by role; as Vega-Lite JSON."""
    roles = roles_shown(model, slot, sites)
    shown = [row for row in model.shares.get(slot, ()) if row["site"] in sites and row["role"] in roles]
    return {
        **_frame(tuple(roles), tuple(sites.values())),
        "description": heat_map_text(model, slot, sites),
        "datasets": {direction: _cell_rows(shown, sites, direction) for direction in PANELS},
    }


def roles_shown(model: Mapped, slot: str, sites: dict[str, str]) -> list[str]:
    """The columns: roles that were edited at all of these sites, and places that a verdict names there."""
    edited: dict[str, set[str]] = {}
    for row in model.shares.get(slot, ()):
        if row["site"] in sites:
            edited.setdefault(row["role"], set()).add(row["site"])
    named: set[str | None] = set()
    for verdict in model.verdicts:
        if verdict.slot == slot:
            carriers = {boundary.site: boundary.carrier for boundary in verdict.boundaries}
            named = set(carriers.values())
            if not sites.keys() <= carriers.keys():  # sites inside the blocks, where the moves were read
                named |= {move.target for move in verdict.moves}
    return [role for role, at in edited.items() if len(at) == len(sites) or role in named]


@cache
def _frame(roles: tuple[str, ...], rows: tuple[str, ...]) -> dict[str, Any]:
    """A heat map without its numbers. Altair takes its time over a chart, and models of a kind share theirs."""
    panels = [_panel(direction, list(roles), list(rows)) for direction in PANELS]
    chart = alt.vconcat(*panels, spacing=14, padding={"left": 14, "top": 4, "right": 4, "bottom": 8}).resolve_scale(
        color="shared"
    )
    chart = chart.add_params(*(alt.param(name=name, value=value) for name, value in INK.items()))
    return chart.configure_range(heatmap=list(RAMP)).to_dict(validate=False)


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
    angle = 0 if max(map(len, roles), default=0) <= SHORT and len(roles) <= FEW else -30
    below = alt.Axis(labels=direction == "break", ticks=False, domain=False, labelAngle=angle, labelFontSize=11)
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
    width = CELL_WIDTH if len(roles) <= FEW else NARROW
    chart.width, chart.height = width * len(roles), CELL_HEIGHT * len(rows)
    chart.title = alt.TitleParams(PANELS[direction], anchor="start", fontSize=11, fontWeight="normal", offset=6)
    return chart


def heat_map_text(model: Mapped, slot: str, sites: dict[str, str]) -> str:
    """The heat map in words, for those who do not see it."""
    roles = roles_shown(model, slot, sites)
    found: dict[str, list[str]] = {site: [] for site in sites}
    for row in model.shares.get(slot, ()):
        if row["direction"] == "restore" and row["site"] in found and row["role"] in roles:
            found[row["site"]].append(f"{row['role']} {cell_text(row)}")
    parts = [f"{label}: {', '.join(found[site])}" for site, label in sites.items()]
    return f"Share restored in {model.label}, {slot} corrupted. {'; '.join(parts)}."


def boundary_rows(model: Mapped, slot: str) -> dict[str, str]:
    """The block boundaries of a model, first to last, and what to call them."""
    boundaries = model.facts.boundaries if model.facts else ()
    rows = {site: f"after block {i - 1}" if i else "input" for i, site in enumerate(boundaries)}
    edited = all_rows(model, slot)
    return {site: label for site, label in rows.items() if site in edited}


def all_rows(model: Mapped, slot: str) -> dict[str, str]:
    """Every site that was edited, in the order of the forward pass, under its own name."""
    return {row["site"]: row["site"] for row in model.shares.get(slot, ())}
