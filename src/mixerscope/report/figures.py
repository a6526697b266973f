"""Figures as altair charts, from what people have at hand in Python: runs, tables, grids.

A notebook shows what these return; `save_chart`, or the chart's own `save`, writes SVG, PNG, PDF or Vega-Lite JSON.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt

from mixerscope.artifacts import Emergence, Verdict
from mixerscope.artifacts.effects import EffectTable, Facts
from mixerscope.errors import UnknownName, UserError
from mixerscope.interventions import Grid
from mixerscope.report.charts import Metric, emergence_chart, learning_curve, width_chart
from mixerscope.report.data import ModelResult, gather
from mixerscope.report.grids import grids_of
from mixerscope.report.heat_maps import all_rows, boundary_rows
from mixerscope.report.heat_maps import heat_map as drawn_map
from mixerscope.results import RunResult

WIDTH = 460
"""Of a chart in a notebook, in pixels; on a page charts are as wide as their place."""


@dataclass(frozen=True)
class OfTable:
    """What a heat map is drawn of, where there is no run."""

    label: str
    facts: Facts
    shares: Mapping[str, list[dict[str, Any]]]
    verdicts: tuple[Verdict, ...] = ()


def heat_map(
    of: RunResult | EffectTable | Grid, slot: str | None = None, sites: Literal["boundaries", "all"] = "boundaries"
) -> alt.VConcatChart:
    """The share that each site and role restores, and breaks, as a heat map: of a run, a table of effects or a grid.

    `slot` is the token that was corrupted, the first unless you say. `sites` are those between the blocks, or all;
    a grid alone does not know which are between the blocks, so it shows all.
    """
    model = _mapped(of)
    slots: list[str] = list(model.shares)
    if not slots:
        raise UserError("nothing was patched here, so there is no heat map")
    if slot is not None and slot not in slots:
        raise UnknownName("slot that was patched", slot, slots)
    chosen = slots[0] if slot is None else slot
    shown = boundary_rows(model, chosen) if sites == "boundaries" else {}
    chart = alt.Chart.from_dict(drawn_map(model, chosen, shown or all_rows(model, chosen)))
    assert isinstance(chart, alt.VConcatChart), "restored above, broken below"
    return chart


def learning_curves(runs: RunResult | Sequence[RunResult], metric: Metric = "accuracy") -> alt.LayerChart:
    """Accuracy on dev documents, or the training loss, against steps: a line for each run, its end marked."""
    title = "Accuracy on dev documents" if metric == "accuracy" else "Training loss"
    return _sized(learning_curve(_models(runs), metric, title, percent=metric == "accuracy"))


def accuracy_by_width(runs: Sequence[RunResult]) -> alt.LayerChart:
    """Accuracy on fresh documents against width: a line for each kind of model, a point for each run, by mechanism."""
    chart = width_chart(_models(runs))
    if chart is None:
        raise UserError("no architecture among these runs has two widths; learning_curves shows runs of one width")
    return _sized(chart)


def emergence_of(run: RunResult, slot: str | None = None) -> alt.LayerChart:
    """How the mechanism came about: the share of each role between the blocks, and the accuracy, against steps."""
    found: Emergence = run.emergence  # or an error that says how to ask for it
    slots = list(dict.fromkeys(point.slot for point in found.points if point.slot))
    if slot is not None and slot not in slots:
        raise UnknownName("slot that was watched", slot, slots)
    [model] = _models(run)
    chart = emergence_chart(model, slot or (slots[0] if slots else ""))
    if chart is None:
        raise UserError("corrupting the slot never changed the answer while this run was watched, so there is no share")
    return _sized(chart)


def _mapped(of: Any) -> Any:
    if isinstance(of, RunResult):
        [model] = _models(of)
        return model
    if isinstance(of, Grid):
        of = of.table
    if isinstance(of, EffectTable):
        shares = {slot: list(grid.rows()) for slot, grid in grids_of(of, {}).items()}
        return OfTable("this model", of.facts, shares)
    raise UserError(f"{type(of).__name__} has no heat map; give a run, a table of effects or a grid")


def _models(runs: RunResult | Sequence[RunResult]) -> list[ModelResult]:
    runs = [runs] if isinstance(runs, RunResult) else list(runs)
    if not runs or not all(isinstance(run, RunResult) for run in runs):
        raise UserError("give a finished run, or several, as run, run_sweep and load_runs return them")
    return [model for group in gather(runs) for model in group.models]


def _sized(chart: Any) -> alt.LayerChart:
    chart.width = WIDTH
    return chart
