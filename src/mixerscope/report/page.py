"""The page: one HTML file that needs nothing but itself."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

from mixerscope import __version__
from mixerscope.analysis import false_names
from mixerscope.analysis.quantiles import LEVEL
from mixerscope.analysis.rules import NOT_LEARNED, NOT_RETRIEVAL
from mixerscope.artifacts.effects import Mechanism
from mixerscope.errors import UserError
from mixerscope.report.data import ModelResult, TaskGroup, gather
from mixerscope.report.findings import SAME_ACCURACY, finding, gloss, how_sure, how_tested, page_headline, state_gloss
from mixerscope.report.grids import MARKS, UNDEFINED
from mixerscope.report.numbers import FILTERS
from mixerscope.report.payload import details, overview
from mixerscope.report.rates import at_the_edge, best_first
from mixerscope.report.state_tests import decided, erased_rows, marked, memory_rows, unasked, written_rows
from mixerscope.report.tables import packed, summary_csv, summary_rows
from mixerscope.report.thresholds import needed, state_thresholds, thresholds
from mixerscope.report.tracking import WRITTEN, meaning_of, reason_of
from mixerscope.results import RunResult, load_runs
from mixerscope.store import claim, make_folder, write_bytes, write_json
from mixerscope.sweep.seeds import seed_lines

REPORT, SUMMARY = "report.html", "summary.json"
GENERATOR = "mixerscope"
OUR_PAGE = re.compile(rb'<meta name="generator" content="' + GENERATOR.encode() + rb"[ \"]")
OUR_SUMMARY = re.compile(rb'\s*\{\s*"generator": "' + GENERATOR.encode() + rb'"')
"""By which files of ours are known, so that nothing else is overwritten."""
CARDS, ROWS = 6, 40
"""Models that are shown in full, and rows of the table, before anyone asks for more."""
SCRIPTS = (
    "data.js",
    "svg.js",
    "figure.js",
    "flow.js",
    "maps.js",
    "accuracy.js",
    "curves.js",
    "patterns.js",
    "tracking.js",
    "filters.js",
    "page.js",
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
    write_json(out.parent / SUMMARY, {"generator": GENERATOR, "version": 3, "models": summary_rows(groups)})
    return out


def render(groups: Sequence[TaskGroup], live: str = "") -> str:
    """The page as text. `live`: what the newest page is known by, of one that is being served."""
    models = [model for group in groups for model in group.models]
    many = len(models) > CARDS
    environment = _environment(models, many, several_tasks=len(groups) > 1)
    numbers = {id(model): i for i, model in enumerate(models)}
    sections = [_section(group, numbers, environment) for group in groups]
    blocks = {
        "overview": packed(_json(overview(groups))),
        "details": packed(_json(details(groups))),
        "summary.csv": packed(summary_csv(groups)),
    }
    later = {i: html for section in sections for i, html in section["cards"][CARDS:]}
    rows = {i: html for section in sections for i, html in section["rows"]} if many else {}
    if later or rows:
        blocks["later"] = packed(_json({"cards": later, "rows": rows}))
    return environment.get_template("report.html.j2").render(
        generator=f"{GENERATOR} {__version__}",
        version=__version__,
        found=page_headline(groups),
        naming=false_names(verdict for model in models for verdict in model.verdicts).sentence(),
        sure=how_sure(models),
        tested=how_tested(models),
        sections=sections,
        models=models,
        blocks=blocks,
        scripts=SCRIPTS,
        first=CARDS,
        first_rows=ROWS,
        checks=_checks(models),
        mechanisms=_mechanisms(models),
        live=live,
    )


def _environment(models: Sequence[ModelResult], many: bool, several_tasks: bool) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("mixerscope.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= FILTERS
    roles = dict.fromkeys(role for model in models if model.facts for role in model.facts.roles)
    environment.globals |= {
        "role_index": {role: i for i, role in enumerate(roles)},
        "marks": MARKS,
        "undefined_mark": UNDEFINED,
        "thresholds": thresholds(models),
        "needed": needed,
        "gloss": gloss,
        "state_gloss": state_gloss,
        "state_thresholds": state_thresholds(models),
        "reason_of": reason_of,
        "meaning_of": meaning_of,
        "written_ways": WRITTEN,
        "written_rows": written_rows,
        "memory_rows": memory_rows,
        "erased_rows": erased_rows,
        "unasked": unasked,
        "decided": decided,
        "marked": marked,
        "level": LEVEL,
        "same_accuracy": SAME_ACCURACY,
        "many": many,
        "several_tasks": several_tasks,
        "nothing_to_restore": (NOT_LEARNED, NOT_RETRIEVAL),
    }
    return environment


def _section(group: TaskGroup, numbers: dict[int, int], environment: jinja2.Environment) -> dict[str, Any]:
    """One task: its finding, and its models each as a card and as rows of the table, by their numbers."""
    card, row = environment.get_template("card.html.j2"), environment.get_template("row.html.j2")
    rows = summary_rows([group])
    by_model: dict[str, list[dict[str, Any]]] = {}
    for one in rows:
        by_model.setdefault(one["run_id"], []).append(one)
    patched = any(model.grids for model in group.models)
    tracked = any(model.tracked for model in group.models)
    order = sorted(group.models, key=lambda model: numbers[id(model)])
    # Where more models are there than are shown at once, the best of them are.
    foremost = best_first(order) if len(order) > CARDS else order
    place = {model.label: i for i, model in enumerate(foremost)}
    in_pair = sorted(group.example.likelihoods if group.example else [], key=lambda one: place[one[0]])
    return {
        "group": group,
        "finding": finding(group),
        "cards": [(numbers[id(model)], card.render(model=model, number=numbers[id(model)])) for model in foremost],
        "in_pair": in_pair,
        "rows": [
            (
                numbers[id(m)],
                row.render(rows=by_model.get(m.run_id, ()), number=numbers[id(m)], patched=patched, tracked=tracked),
            )
            for m in order
        ],
        "edges": at_the_edge(group.models),
        "by_width": len({(m.series, m.width) for m in group.models}) > len({m.series for m in group.models}),
        "tracked": tracked,
        "patched": patched,
        "seeds": seed_lines([(model.run, model.verdicts) for model in group.models]),
    }


def _mechanisms(models: Sequence[ModelResult]) -> list[Mechanism]:
    """Routes that have a name in some task of the page, each once."""
    return list(dict.fromkeys(mechanism for model in models if model.facts for mechanism in model.facts.mechanisms))


def _checks(models: Sequence[ModelResult]) -> dict[str, Any] | None:
    """The self-tests of all models together; None where no run got as far as one."""
    tested = [model.self_test for model in models if model.self_test]
    if not tested:
        return None
    sites = [site for test in tested for site in test.sites]
    return {
        "models": len(tested),
        "sites": len(sites),
        "exact": sum(site.identity_exact for site in sites),
        "worst": max(site.resume_error for site in sites),
        "within": all(site.resume_error <= test.tolerance for test in tested for site in test.sites),
        "allowed": max(test.tolerance for test in tested),
    }


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
