"""Every figure in its toy size, from nothing to a drawing: the same code as the whole, in a minute or two."""

import re
from pathlib import Path

import pytest

from mixerscope.cli import main
from mixerscope.experiments.paper.render import load_results, missing
from mixerscope.experiments.paper.sweeps import figure_names, load_figure

pytestmark = pytest.mark.slow

FIGURES = [name for name in figure_names() if not load_figure(name).apart]


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> Path:
    """Results of all figures, one width, in one folder of runs."""
    root = tmp_path_factory.mktemp("toy")
    words = ["--toy", "--widths", "8", "--out", str(root / "runs"), "--results", str(root / "kept")]
    assert main(["reproduce", "all", *words]) == 0
    return root


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_run_and_drawn(toy, name):
    figure, folder = load_figure(name), toy / "kept" / name
    for ending in ("svg", "png", "html"):
        assert (folder / f"figure.{ending}").stat().st_size > 1000
    if figure.parts:
        left = missing(figure, load_results(toy / "kept"))
        assert left, "the other toy width was not asked for"
        assert all(line.endswith("d = 16") for line in left.split("; "))
    lines = (folder / "table.md").read_text().splitlines()
    assert len(lines) > 2 or name == "fig1"
    assert not any("not run" in line for line in lines)


def test_what_is_finished_is_not_made_again(toy):
    table = toy / "runs" / "sweep.jsonl"
    before = table.read_text()
    words = ["--toy", "--widths", "8", "--out", str(toy / "runs"), "--results", str(toy / "again")]
    assert main(["reproduce", "fig5", *words]) == 0
    assert table.read_text() == before
    again, kept = (toy / place / "fig5" / "table.md" for place in ("again", "kept"))
    assert again.read_text() == kept.read_text()


def test_a_drawing_is_made_again_from_what_is_kept(toy):
    drawn = toy / "kept" / "fig4a" / "figure.svg"
    before = drawn.read_bytes()
    drawn.unlink()
    assert main(["figure", "fig4a", str(toy / "kept")]) == 0
    assert drawn.read_bytes() == before


def test_claims_and_page_are_made_of_a_toy_too(toy, capsys):
    assert main(["reproduce", "claims", "--results", str(toy / "kept")]) == 0
    assert "not tested" in capsys.readouterr().out
    assert main(["reproduce", "page", "--results", str(toy / "kept")]) == 0
    page = (toy / "kept" / "index.html").read_text()
    for name in FIGURES:
        assert f'id="{name}"' in page
    assert not re.search("https?:", page.replace("http://www.w3.org", "")), "it needs nothing but itself"


def test_how_mechanisms_come_about_is_kept_and_drawn(tmp_path, capsys):
    words = ["--toy", "--only", "emergence", "--out", str(tmp_path / "runs"), "--results", str(tmp_path / "kept")]
    assert main(["reproduce", "beyond", *words]) == 0
    results = load_results(tmp_path / "kept")
    assert results.emergence["step"].max() == 20
    assert set(results.emergence["role"].unique()) >= {"key", "value", "query"}
    assert (tmp_path / "kept" / "beyond" / "figure.svg").stat().st_size > 1000
    assert main(["reproduce", "fig5", "--results", str(tmp_path / "kept"), "--collect", str(tmp_path / "runs")]) == 2
    assert "keeps a toy, not runs as usual; give another folder with --results" in capsys.readouterr().err
