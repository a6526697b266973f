"""What is committed in `reproduction/`: the drawings, the tables and the pages are those of the data."""

import json
import re
from math import prod
from pathlib import Path

import polars as pl
import pytest
from benchmarks.paste import pasted
from benchmarks.reproduction import COSTS, DRAWING, PAGE, PICTURE, tables

from mixerscope.experiments.paper.collect import collect
from mixerscope.experiments.paper.data import FILES, Results
from mixerscope.experiments.paper.page import INDEX, page_text
from mixerscope.experiments.paper.render import compared, draw, kept_figures, load_results, read_about, sha256
from mixerscope.experiments.paper.sweeps import figure_names, load_figure, sweeps_of
from mixerscope.experiments.paper.tables import markdown
from mixerscope.report.charts import save_chart

KEPT = Path(__file__).parents[2] / "reproduction"
DRAWN = [name for name in figure_names() if (KEPT / name / "table.md").is_file()]
MOST_BYTES = 30 << 20


@pytest.fixture(scope="module")
def results() -> Results:
    return load_results(KEPT)


def words(drawing: str) -> list[str]:
    """What is written in a drawing; where exactly, depends on fonts."""
    return sorted(re.findall(r"<text[^>]*>([^<]*)</text>", drawing))


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_is_that_of_the_data(name, results, tmp_path):
    found = results if load_figure(name).parts else None
    save_chart(draw(name, found), tmp_path / "figure.svg")
    committed = (KEPT / name / "figure.svg").read_text()
    assert words((tmp_path / "figure.svg").read_text()) == words(committed)
    assert (KEPT / name / "figure.png").is_file()


def test_the_first_page_shows_figure_3_as_it_is_kept():
    assert PICTURE.read_bytes() == DRAWING.read_bytes(), "`make reproduction` puts it there"


@pytest.mark.parametrize("name", DRAWN)
def test_a_table_is_that_of_the_data(name, results):
    found = results if load_figure(name).parts else None
    assert (KEPT / name / "table.md").read_text().splitlines() == markdown(compared(name, found))


def test_every_figure_that_has_runs_is_drawn(results):
    assert [figure.name for figure in kept_figures(KEPT, results)] == DRAWN


def test_the_data_has_the_hashes_on_record():
    recorded = [name for name in figure_names() if read_about(KEPT / name)]
    assert recorded, "nothing is kept"
    for name in recorded:
        for file in FILES:
            assert read_about(KEPT / name)["files"][f"{file}.parquet"] == sha256(KEPT / name / f"{file}.parquet")


def test_the_tables_of_the_docs_are_those_of_the_data(root):
    page = (root / "docs" / PAGE).read_text()
    for name, text in tables().items():
        assert pasted(page, name, text) == page, f"`make reproduction` writes {name!r} again"


def test_the_page_is_that_of_the_data():
    page = (KEPT / INDEX).read_text()
    assert page == page_text(KEPT)
    outcomes = [claim["outcome"] for claim in json.loads((KEPT / "task-flip" / "found.json").read_text())["claims"]]
    assert f"of {len(outcomes)} sentences {outcomes.count('supported')} supported, " in page, "the second study"
    for name in re.findall(r'href="(task-flip/[^"]+)"', page):
        assert (KEPT / name).is_file()


def test_what_is_kept_is_small():
    assert sum(path.stat().st_size for path in KEPT.rglob("*") if path.is_file()) < MOST_BYTES


def test_runs_without_a_proof_have_no_name(results):
    without = results.runs.filter(~results.runs["proof"])
    assert set(without["mechanism"].unique()) <= {None, "no proof taken", "not above guessing", "not retrieval"}


PROVEN = {
    "fig3": ("d128-five-seeds-tf32-best.pack", "rest-five-seeds-tf32-best.pack"),
    "fig4a": ("d64-none-and-1.pack",),
    "questions": ("float32-best.pack",),
}
"""Packs of which the runs have proofs."""


@pytest.mark.parametrize("name", PROVEN)
def test_todays_rules_give_the_runs_that_are_packed_the_verdicts_of_the_tables(name, results):
    found = collect([KEPT / name / pack for pack in PROVEN[name]]).runs
    kept = results.runs.filter(pl.col("run_id").is_in(found["run_id"].implode()))
    assert len(kept) == len(found) >= 20
    columns = ["run_id", "mechanism", "route"]
    assert found.select(columns).sort("run_id").equals(kept.select(columns).sort("run_id"))


def test_the_docs_say_what_every_figure_costs(root):
    page = (root / "docs" / PAGE).read_text()
    block = page.partition(f"<!-- {COSTS} -->")[2].partition("<!-- end")[0]
    said = {
        line.split(" | ")[0].removeprefix("| "): int(line.split(" | ")[1].replace(",", ""))
        for line in block.strip().splitlines()[2:]
    }
    trained = [name for name in figure_names() if load_figure(name).parts]
    assert set(said) == {*trained, "all"}
    for name in trained:
        parts = sweeps_of(load_figure(name))  # three seeds
        assert said[name] == sum(prod(len(values) for values in part.vary.values()) for part in parts), name
