"""The page: one HTML file that needs nothing but itself."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import vl_convert

from mixerscope import __version__
from mixerscope.analysis import CARRIES, MECHANISMS, MIN_GAP
from mixerscope.analysis.rules import NOT_LEARNED, NOT_RETRIEVAL, SOLVES
from mixerscope.analysis.stats import LEVEL
from mixerscope.report.charts import (
    MARKS,
    UNDEFINED,
    Chart,
    all_rows,
    boundary_rows,
    emergence_chart,
    heat_map,
    heat_map_text,
    learning_curve,
    width_chart,
)
from mixerscope.report.data import TaskGroup, gather
from mixerscope.report.findings import GLOSS, SAME_ACCURACY, finding, page_headline
from mixerscope.report.numbers import FILTERS
from mixerscope.report.tables import csv_files, summary_rows
from mixerscope.store import RunFolder, find_runs, make_folder, write_bytes, write_json

REPORT, SUMMARY = "report.html", "summary.json"


def write_report(root: Path | str, out: Path | str | None = None, runs: Sequence[RunFolder] | None = None) -> Path:
    """Writes the page over the finished runs below `root` and returns its path; `summary.json` goes beside it.

    `out` is the page's path, or a folder that receives `report.html`; by default `root`. With `runs` the page is over
    these runs alone, whatever else lies in the folder.
    """
    root = Path(root)
    groups = gather(find_runs(root) if runs is None else runs)
    out = root if out is None else Path(out)
    out = out / REPORT if out.is_dir() else out
    html = render(groups)
    make_folder(out.parent)
    write_bytes(out, html.encode())
    write_json(out.parent / SUMMARY, {"version": 1, "models": summary_rows(groups)})
    return out


def render(groups: Sequence[TaskGroup]) -> str:
    """The page as text."""
    charts: dict[str, dict[str, Any]] = {}
    sections = [_section(i, group, charts) for i, group in enumerate(groups)]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("mixerscope.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= FILTERS
    roles = list(dict.fromkeys(row["role"] for g in groups for m in g.models for row in m.cells))
    return environment.get_template("report.html.j2").render(
        version=__version__,
        found=page_headline(groups),
        sections=sections,
        models=[model for group in groups for model in group.models],
        charts=charts,
        csv=csv_files(groups),
        libraries=libraries(),
        role_index={role: i for i, role in enumerate(roles)},
        marks=MARKS,
        undefined_mark=UNDEFINED,
        thresholds={
            "carries": CARRIES,
            "min_gap": MIN_GAP,
            "solves": SOLVES,
            "level": LEVEL,
            "same_accuracy": SAME_ACCURACY,
        },
        mechanisms=MECHANISMS,
        gloss=GLOSS,
    )


def _section(index: int, group: TaskGroup, charts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One task: its finding, and its charts by the id of the element that holds them."""
    maps: list[dict[str, Any]] = []
    for m, model in enumerate(group.models):
        for verdict in model.verdicts:
            ids = {}
            learned = verdict.mechanism not in (NOT_LEARNED, NOT_RETRIEVAL)
            kinds = {"boundaries": boundary_rows(model, verdict)} if learned else {}
            kinds["sites"] = all_rows(model, verdict)
            for kind, rows in kinds.items():
                ids[kind] = f"map-{index}-{m}-{verdict.slot}-{kind}"
                charts[ids[kind]] = _spec(heat_map(model, verdict.slot, rows))
            text = heat_map_text(model, verdict.slot, boundary_rows(model, verdict))
            maps.append({"model": model, "slot": verdict.slot, "ids": ids, "text": text, "learned": learned})
    widths = width_chart(group.models)
    overview = {f"widths-{index}": _spec(widths)} if widths else {}
    charts |= overview
    curves = {}
    for metric, title in (("accuracy", "Accuracy on the dev set"), ("loss", "Training loss (nats per answer)")):
        curves[metric] = f"curve-{index}-{metric}"
        charts[curves[metric]] = _spec(learning_curve(group.models, metric, title, percent=metric == "accuracy"))
    emergence = {}
    for m, model in enumerate(group.models):
        chart = emergence_chart(model, model.verdict.slot) if model.verdict and model.emergence else None
        if chart is not None:
            emergence[f"emergence-{index}-{m}"] = _spec(chart)
    charts |= emergence
    return {
        "group": group,
        "finding": finding(group),
        "overview": {id: spec["description"] for id, spec in overview.items()},
        "emergence": {id: spec["description"] for id, spec in emergence.items()},
        "maps": maps,
        "curves": curves,
        "descriptions": {id: charts[id]["description"] for id in curves.values()},
        "slots": list(dict.fromkeys(v.slot for model in group.models for v in model.verdicts)),
        "rows": summary_rows([group]),
    }


def _spec(chart: Chart) -> dict[str, Any]:
    """The chart as JSON. Checking every row against Vega-Lite's schema takes longer than all else; a test does it."""
    return chart.to_dict(validate=False)


@cache
def libraries() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, wrapped so that its names stay its own."""
    version = max(vl_convert.get_vegalite_versions(), key=lambda v: [int(part) for part in v.split(".")])
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", version)
    return f"(function(){{{script}}})();".replace("</script", "<\\/script")
