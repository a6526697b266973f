"""What is committed in `reproduction/`: the drawings, the tables and the pages are those of the data."""

import json
import re
from itertools import product
from math import prod
from pathlib import Path

import polars as pl
import pytest
from benchmarks import state_study
from benchmarks.paste import pasted
from benchmarks.reproduction import COSTS, DRAWING, PAGE, PICTURE, tables

from mixerscope.cli import main
from mixerscope.experiments.paper.collect import collect
from mixerscope.experiments.paper.data import FILES, Results
from mixerscope.experiments.paper.disagreements import load_causes
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


def test_the_docs_show_drawings_as_they_are_kept():
    for drawing, picture in ((DRAWING, PICTURE), (state_study.DRAWING, state_study.PICTURE)):
        assert picture.read_bytes() == drawing.read_bytes(), "`make reproduction` puts it there"


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
    whole = {(PAGE, name): text for name, text in tables().items()} | state_study.tables()
    for (page, name), text in whole.items():
        said = (root / "docs" / page).read_text()
        assert pasted(said, name, text) == said, f"`make reproduction` writes {name!r} again"


def test_the_docs_say_how_much_of_what_documents_do_is_common_to_seeds(root):
    rows = json.loads((root / "benchmarks" / "results" / "documents_in_common.json").read_text())
    said = " ".join((root / "docs" / PAGE).read_text().split())
    few = sum(row["in_common"] <= 0.05 for row in rows)
    assert f"0.05 of the variance over documents or less in {few} of {len(rows)} cases" in said


def test_the_page_is_that_of_the_data():
    page = (KEPT / INDEX).read_text()
    assert page == page_text(KEPT)
    outcomes = [claim["outcome"] for claim in json.loads((KEPT / "task-flip" / "found.json").read_text())["claims"]]
    assert f"of {len(outcomes)} sentences {outcomes.count('supported')} supported, " in page, "the second study"
    for name in re.findall(r'href="(task-flip/[^"]+)"', page):
        assert (KEPT / name).is_file()


def test_the_page_counts_the_numbers_that_agree_and_lists_those_that_do_not():
    lines = [line.split(" | ") for path in KEPT.glob("*/table.md") for line in path.read_text().splitlines()]
    told = [(line[6], line[-1].removesuffix(" |")) for line in lines if len(line) == 9]
    agree = [float(published) for published, outcome in told if outcome == "inside"]
    others = [outcome for _, outcome in told]
    page, apart, unlike = (KEPT / INDEX).read_text(), others.count("uninformative"), others.count("outside")
    start = f"Of {len(agree) + apart + unlike} published numbers beside five seeds of ours {len(agree)} <span"
    assert start in page
    assert f"({sum(value <= 1.0 for value in agree)} of them are 1% or less" in page
    listed = page.partition('id="disagree"')[2].partition("</section>")[0]
    assert listed.count("<tr>") == 1 + unlike


def test_the_page_names_commands_that_make_what_it_shows(capsys):
    said = dict(re.findall(r"Again: <code>mixerscope reproduce (\S+) ?([^<]*)</code>", (KEPT / INDEX).read_text()))
    assert len(said) >= 13
    assert said["fig3"] == "--seeds 5 --device cuda --compile", "five seeds are shown, and three would be made"
    assert said["fig7"] == "--device cuda --compile", "nothing is shown"
    for name in ("table-params", "fig5"):
        assert main(["reproduce", name, *said[name].split(), "--dry-run"]) == 0
        assert name in capsys.readouterr().out


def test_the_page_says_in_which_precision_models_were_trained(results):
    page = (KEPT / INDEX).read_text()
    for precision, word in (("tf32", "TF32"), ("float32", "float32")):
        assert f"{(results.runs['precision'] == precision).sum():,} in {word}" in page


def test_what_is_kept_is_small():
    assert sum(path.stat().st_size for path in KEPT.rglob("*") if path.is_file()) < MOST_BYTES


def test_runs_without_a_proof_have_no_name(results):
    without = results.runs.filter(~results.runs["proof"])
    assert set(without["mechanism"].unique()) <= {None, "no proof taken", "not above guessing", "not retrieval"}


PROVEN = {
    "fig3": (
        "d128-five-seeds-tf32-best.pack",
        "rest-five-seeds-tf32-best.pack",
        "d128-baseconv-deltanet-h3-five-seeds-best.pack",
    ),
    "fig4a": ("convolutions-best.pack",),
    "fig11": ("one-block-best.pack",),
    "questions": ("float32-best.pack",),
}
"""Packs of which the runs have proofs."""
PACKED = {"fig3": 60, "fig4a": 36, "fig11": 12, "questions": 20}
"""Runs in them."""


@pytest.mark.parametrize("name", PROVEN)
def test_todays_rules_give_the_runs_that_are_packed_the_verdicts_of_the_tables(name, results):
    found = collect([KEPT / name / pack for pack in PROVEN[name]]).runs
    kept = results.runs.filter(pl.col("run_id").is_in(found["run_id"].implode()))
    assert len(kept) == len(found) == PACKED[name]
    columns = ["run_id", "mechanism", "route"]
    assert found.select(columns).sort("run_id").equals(kept.select(columns).sort("run_id"))


def test_the_docs_count_the_proofs_that_are_packed(root):
    proofs = sum(collect([KEPT / name / pack for pack in packs]).runs["proof"].sum() for name, packs in PROVEN.items())
    assert f"all {proofs} of these runs that have a proof" in (root / "docs" / "reproduction.md").read_text()


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


def test_what_was_ruled_out_as_a_cause_leaves_ours_where_it_is():
    beside = {(cell.panel, cell.row, cell.width): cell for cell in compared("fig3", load_results(KEPT))}
    tried = {(cell.panel, cell.row, cell.width): cell for cell in compared("questions", load_results(KEPT))}
    ruled_out = load_causes()["ruled_out"]
    assert ruled_out
    for said in ruled_out:
        for panel, width in product(said["panels"], said["widths"]):
            row = tried[panel, f"{said['tested_by']}: {said['row']}", width]
            low, high = row.interval
            assert not low <= beside[panel, said["row"], width].published <= high
