"""What people see of results in Python: one line, a small table in a notebook, frames, and figures."""

import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import altair as alt
import pytest

import mixerscope as ms
from mixerscope.artifacts import Estimate, Provenance, Record, StageRecord, Verdicts, Weights
from mixerscope.artifacts.verdicts import Test as AskedTest
from mixerscope.errors import UserError
from mixerscope.results import RunResult, Runs
from mixerscope.showing import MOST_ROWS, as_html

SMALL = {
    **ms.preset("small", "ar", "based"),
    "model": {"architecture": "based", "width": 8, "init": "small_model"},
    "train": {"steps": 4, "documents": 32, "batch_size": 8, "eval_every": 2, "eval_documents": 8},
    "stages": {"patch": {"documents": 8}, "prove": {"fresh_documents": 16}, "judge": {}, "emergence": {"looks": 2}},
}
HOSTILE = '<script>alert("1")</script>&<b>'


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Runs:
    sweep = ms.Sweep(base=SMALL, vary={"model.width": [8, 16]})
    return ms.run_sweep(sweep, tmp_path_factory.mktemp("runs"), progress=False, keep_weights=True)


@pytest.fixture(scope="module")
def things(runs):
    """One of everything that a call gives back."""
    result = runs[0]
    model, spec = result.model(), result.spec
    pairs = ms.make_pairs(spec.task, ms.PairSettings(documents=8))
    grid = ms.interchange(model, pairs)
    ends = ("blocks.0.resid_post", "value", "blocks.1.resid_pre", "value")
    verdict = ms.verdict(grid, model)
    [member] = ms.train_cohort([spec])
    own = ms.adapt(model, {"embed": "embed", "blocks.0.resid_post": "blocks.0.resid_post"}, head="logits")
    return {
        "run": result,
        "runs": runs,
        "stage": result.stages["patch"],
        "sweep": ms.Sweep(base=SMALL, vary={"model.width": [8, 16]}),
        "spec": spec,
        "curve": result.curve,
        "provenance": result.provenance,
        "record": result.record,
        "effects": result.effects,
        "verdicts": result.verdicts,
        "scores": result.scores,
        "self test": result.self_test,
        "emergence": result.emergence,
        "proof": result.read(ms.Proof),
        "one proof": ms.prove(model, pairs, ["value"], fresh_documents=16),
        "weights": result.folder.read(Weights),
        "pairs": pairs,
        "batch": pairs.original,
        "reads": pairs.reads,
        "grid": grid,
        "measured": next(iter(grid.cells.values())),
        "effects of a run": grid.original,
        "paths": ms.patch_paths(model, pairs, [ms.Edge("key", "restore", *ends)]),
        "attribution": ms.attribution_patching(model, pairs),
        "verdict": verdict,
        "over seeds": ms.over_seeds([verdict] * 3),
        "comparison": ms.compare(result, result),
        "false names": ms.false_names([verdict]),
        "member": member,
        "check": ms.check_model(own, pairs.original),
        "rules": ms.Rules(),
        "machine": ms.Machine(),
        "cell": next(iter(grid.cells)),
    }


NO_HTML = {"spec", "rules", "machine", "cell"}
WITHOUT_ROWS = NO_HTML | {"run", "stage", "sweep", "record", "provenance", "weights", "pairs", "batch", "reads"}
WITHOUT_ROWS |= {"measured", "effects of a run", "false names", "member"}


def test_every_repr_is_short(things):
    long = {
        name: len(repr(thing)) for name, thing in things.items() if len(repr(thing)) > 700 or "tensor(" in repr(thing)
    }
    assert not long


def test_a_repr_of_a_spec_is_what_differs_from_the_defaults(things):
    assert repr(ms.AR(num_pairs=3)) == "AR(num_pairs=3)"
    assert repr(ms.Rules()) == "Rules()"
    assert repr(things["spec"].task) == "AR(num_pairs=4, num_keys=8, num_values=8, num_queries=2)"


class Balanced(HTMLParser):
    """Refuses tags that nobody closes, and tells which there were."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_notebooks_show_each_as_a_small_table(things):
    for name, thing in things.items():
        if name not in NO_HTML:
            page = thing._repr_html_()
            assert Balanced(page).tags <= {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td", "code"}, name
            assert page.count("<tr>") <= MOST_ROWS + 1, name
            assert len(page) < 20_000, name


def test_frames_hold_every_row(things):
    for name, thing in things.items():
        assert hasattr(thing, "to_polars") == (name not in WITHOUT_ROWS), name
        if name not in WITHOUT_ROWS:
            count = sum(1 for _ in thing.rows())
            assert thing.to_polars().height == count == len(thing.to_pandas()), name


def test_the_rows_of_a_grid_are_those_of_its_table(things):
    model = things["run"].model()
    table = ms.effect_table(things["grid"], model)
    assert list(things["grid"].rows()) == list(table.rows())


def test_a_notebook_shows_the_numbers_of_the_table(things):
    effects = things["effects"]
    [*rows] = effects.shown()
    assert [row["restored"] for row in rows] == list(effects.facts.boundaries)
    cell = ms.Cell("key", "restore", effects.facts.boundaries[1], "value")
    estimate = effects.estimate(cell, "share")
    assert rows[1]["value"] == (estimate.value if estimate else "no gap")


def test_runs_are_told_apart_by_what_varies(runs):
    frame = runs.to_polars()
    assert frame["model"].to_list() == ["based d=8", "based d=16"]
    assert frame["model.width"].to_list() == [8, 16]
    assert frame["run_id"].to_list() == [run.run_id for run in runs]
    assert frame["accuracy"].to_list() == [run.scores.accuracy.value for run in runs]
    assert repr(ms.load_runs(runs[0].folder.path.parent)) == "<Runs: 2 runs of based>"
    assert repr(Runs()) == "<Runs: 0 runs>"


def test_hostile_names_are_escaped(things):
    verdict = things["verdict"]
    asked = AskedTest(HOSTILE, passed=True, value=Estimate(0.5, 0.4, 0.6, 8), needed=0.3, about=HOSTILE)
    bad = replace(verdict, mechanism=HOSTILE, route=(HOSTILE,), slot=HOSTILE, reason=HOSTILE, tests=(asked,))
    record = Record(
        {"task": {}}, {"model": {"architecture": HOSTILE, "width": 1}, "task": {"name": HOSTILE}, "train": {"steps": 1}}
    )
    stage = StageRecord({"stage": HOSTILE, "settings": {HOSTILE: HOSTILE}}, {})
    provenance = replace(things["provenance"], device=HOSTILE, packages={"torch": HOSTILE})
    effects = things["effects"]
    cells = tuple(replace(cell, site=f"{cell.site}{HOSTILE}") for cell in effects.cells)
    facts = replace(effects.facts, boundaries=tuple(f"{site}{HOSTILE}" for site in effects.facts.boundaries))
    for thing in (bad, Verdicts((bad,)), record, stage, provenance, replace(effects, cells=cells, facts=facts)):
        page = thing._repr_html_()
        assert "&lt;script&gt;" in page, type(thing)
        assert "script" not in Balanced(page).tags, type(thing)
    page = as_html(HOSTILE, [{HOSTILE: HOSTILE, "list": [HOSTILE]}])
    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 4


def test_long_tables_say_how_much_is_left():
    page = as_html("long", [{"n": i} for i in range(MOST_ROWS + 5)])
    assert "and 5 more rows" in page
    assert "more rows" not in as_html("short", [{"n": 1}])


def test_figures_are_altair_charts_of_what_was_measured(runs, things):
    [result] = runs[:1]
    for of in (result, result.effects):
        chart = ms.heat_map(of)
        drawn = chart.to_dict(validate=True)["datasets"]["restore"]
        shares = {(row["site"], row["role"]): row["share"] for row in drawn}
        cell = ms.Cell("key", "restore", result.effects.facts.boundaries[1], "value")
        estimate = result.effects.estimate(cell, "share")
        assert shares[cell.site, "value"] == (None if estimate is None else pytest.approx(estimate.value, abs=1e-4))
        assert {row["site"] for row in drawn} == set(result.effects.facts.boundaries)
    everywhere = ms.heat_map(things["grid"]).to_dict()["datasets"]["restore"]
    assert {row["site"] for row in everywhere} > {row["site"] for row in drawn}
    curves = ms.learning_curves(runs, "loss").to_dict(validate=True)["datasets"]["curve"]
    assert {row["model"] for row in curves} == {"based d=8", "based d=16"}
    widths = ms.accuracy_by_width(runs)
    assert isinstance(widths, alt.LayerChart)
    assert {row["width"] for row in widths.to_dict(validate=True)["datasets"]["models"]} == {8, 16}
    assert re.match(r"<svg", _svg(widths))


def _svg(chart) -> str:
    kept = io.StringIO()
    chart.save(kept, format="svg")
    return kept.getvalue()


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (lambda run: ms.heat_map(run, "nobody"), "no slot that was patched 'nobody'|slot that was patched"),
        (lambda run: ms.heat_map(3), "int has no heat map"),
        (lambda run: ms.learning_curves([]), "give a finished run"),
        (lambda run: ms.accuracy_by_width([run]), "two widths"),
        (lambda run: ms.emergence_of(run, "nobody"), "slot that was watched"),
        (lambda run: ms.emergence_of(run), "never changed the answer"),
        (lambda run: ms.paper_figure("fig3", "nowhere"), "there are no results below nowhere"),
        (lambda run: ms.paper_figure("fig99", "nowhere"), "fig99"),
    ],
)
def test_what_cannot_be_drawn_says_why(runs, draw, said):
    with pytest.raises(UserError, match=said):
        draw(runs[0])


def test_a_figure_of_the_paper_is_a_chart():
    chart = ms.paper_figure("fig3", Path(__file__).parents[1] / "reproduction")
    assert isinstance(chart, alt.VConcatChart)
    assert "Mamba" in chart.to_json()


def test_a_run_without_verdicts_shows_what_there_is(tmp_path):
    alone: RunResult = ms.run({**SMALL, "stages": {}}, tmp_path, progress=False)
    page = alone._repr_html_()
    assert "verdict" not in page
    assert "fresh documents" not in page
    [row] = Runs([alone]).rows()
    assert row["mechanism"] is None
    with pytest.raises(UserError, match="nothing was patched"):
        ms.heat_map(alone)
    assert isinstance(alone.provenance, Provenance)
