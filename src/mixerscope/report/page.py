"""The page: one HTML file that needs nothing but itself."""

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import vl_convert

from mixerscope import __version__
from mixerscope.analysis import false_names
from mixerscope.analysis.quantiles import LEVEL
from mixerscope.analysis.rules import NOT_LEARNED, NOT_RETRIEVAL
from mixerscope.artifacts.effects import Mechanism
from mixerscope.errors import UserError
from mixerscope.report.charts import Chart, Metric, emergence_chart, learning_curve, width_chart
from mixerscope.report.data import ModelResult, TaskGroup, gather
from mixerscope.report.findings import SAME_ACCURACY, finding, gloss, page_headline
from mixerscope.report.heat_maps import MARKS, UNDEFINED, all_rows, boundary_rows, heat_map, heat_map_text
from mixerscope.report.numbers import FILTERS
from mixerscope.report.tables import csv_files, packed, summary_rows
from mixerscope.results import RunResult, load_runs
from mixerscope.store import claim, make_folder, write_bytes, write_json
from mixerscope.sweep.seeds import seed_lines

REPORT, SUMMARY = "report.html", "summary.json"
GENERATOR = "mixerscope"
OUR_PAGE = re.compile(rb'<meta name="generator" content="' + GENERATOR.encode() + rb"[ \"]")
OUR_SUMMARY = re.compile(rb'\s*\{\s*"generator": "' + GENERATOR.encode() + rb'"')
"""By which files of ours are known, so that nothing else is overwritten."""
CURVES: tuple[tuple[Metric, str], ...] = (
    ("accuracy", "Accuracy on the dev set"),
    ("loss", "Training loss (nats per answer)"),
)


def write_report(root: Path | str, out: Path | str | None = None, runs: Sequence[RunResult] | None = None) -> Path:
    """Writes the page over the finished runs below `root` and returns its path; `summary.json` goes beside it.

    `out` is the page's path, or a folder that receives `report.html`; by default `root`. With `runs` the page is over
    these runs alone, whatever else lies in the folder. Files that are not ours are not overwritten.
    """
    root = Path(root)
    out = root if out is None else Path(out)
    out = out / REPORT if out.is_dir() else out
    if out.name == SUMMARY:
        raise UserError(f"the page cannot be called {SUMMARY}, which is the name of the table beside it")
    claim(out, lambda head: OUR_PAGE.search(head) is not None)
    claim(out.parent / SUMMARY, lambda head: OUR_SUMMARY.match(head) is not None)
    groups = gather(load_runs(root) if runs is None else runs)
    html = render(groups)
    make_folder(out.parent)
    write_bytes(out, html.encode())
    write_json(out.parent / SUMMARY, {"generator": GENERATOR, "version": 2, "models": summary_rows(groups)})
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
    models = [model for group in groups for model in group.models]
    return environment.get_template("report.html.j2").render(
        generator=f"{GENERATOR} {__version__}",
        version=__version__,
        found=page_headline(groups),
        naming=false_names(verdict for model in models for verdict in model.verdicts).sentence(),
        sections=sections,
        models=models,
        charts=packed(json.dumps(charts, separators=(",", ":"), allow_nan=False)),
        csv=csv_files(groups),
        libraries=libraries(),
        role_index={role: i for i, role in enumerate(_roles(models))},
        marks=MARKS,
        undefined_mark=UNDEFINED,
        thresholds=_thresholds(models),
        level=LEVEL,
        same_accuracy=SAME_ACCURACY,
        mechanisms=_mechanisms(models),
        gloss=gloss,
    )


def _roles(models: Sequence[ModelResult]) -> list[str]:
    """Every role that some model was patched at, each once."""
    return list(dict.fromkeys(role for model in models if model.effects for role in model.effects.facts.roles))


def _mechanisms(models: Sequence[ModelResult]) -> list[Mechanism]:
    """Routes that have a name in some task of the page, each once."""
    tables = [model.effects for model in models if model.effects]
    return list(dict.fromkeys(mechanism for table in tables for mechanism in table.facts.mechanisms))


def _thresholds(models: Sequence[ModelResult]) -> dict[str, list[Any]]:
    """By name, the values with which the verdicts of the page were reached: one, unless runs were judged otherwise."""
    found: dict[str, list[Any]] = {}
    for model in models:
        for name, value in model.rules.items():
            values = found.setdefault(name, [])
            if value not in values:
                values.append(value)
    return found


def _section(index: int, group: TaskGroup, charts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One task: its finding, and its charts by the id of the element that holds them."""
    maps = [
        _map(f"map-{index}-{m}-{slot}", model, slot, charts)
        for m, model in enumerate(group.models)
        for slot in model.shares
    ]
    widths = width_chart(group.models)
    overview = {f"widths-{index}": _spec(widths)} if widths else {}
    curves = {
        f"curve-{index}-{metric}": _spec(learning_curve(group.models, metric, title, percent=metric == "accuracy"))
        for metric, title in CURVES
    }
    emergence = {}
    for m, model in enumerate(group.models):
        slot = next((point.slot for point in model.emergence.points if point.slot), None) if model.emergence else None
        chart = emergence_chart(model, slot) if slot else None
        if chart is not None:
            emergence[f"emergence-{index}-{m}"] = _spec(chart)
    for drawn in (overview, curves, emergence):
        charts |= drawn
    return {
        "group": group,
        "finding": finding(group),
        "maps": maps,
        "overview": _descriptions(overview),
        "curves": _descriptions(curves),
        "emergence": _descriptions(emergence),
        "slots": list(dict.fromkeys(slot for model in group.models for slot in model.shares)),
        "rows": summary_rows([group]),
        "seeds": seed_lines([(model.run, model.verdicts) for model in group.models]),
    }


def _map(id: str, model: ModelResult, slot: str, charts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The heat maps of a model and a slot: between the blocks, unless there is nothing to see, and at every site."""
    mechanism = next((verdict.mechanism for verdict in model.verdicts if verdict.slot == slot), "")
    between = boundary_rows(model, slot) if mechanism not in (NOT_LEARNED, NOT_RETRIEVAL) else {}
    ids: dict[str, str] = {}
    for kind, rows in {"boundaries": between, "sites": all_rows(model, slot)}.items():
        if rows:
            ids[kind] = f"{id}-{kind}"
            charts[ids[kind]] = heat_map(model, slot, rows)
    text = heat_map_text(model, slot, between) if between else ""
    return {"model": model, "slot": slot, "ids": ids, "text": text, "mechanism": mechanism}


def _descriptions(charts: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {id: spec["description"] for id, spec in charts.items()}


def _spec(chart: Chart) -> dict[str, Any]:
    """The chart as JSON. Checking every row against Vega-Lite's schema takes longer than all else; a test does it."""
    return chart.to_dict(validate=False)


@cache
def libraries() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, wrapped so that its names stay its own."""
    version = max(vl_convert.get_vegalite_versions(), key=lambda v: [int(part) for part in v.split(".")])
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", version)
    return f"(function(){{{script}}})();".replace("</script", "<\\/script")
