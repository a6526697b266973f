"""The page over the reproduction, in a real browser: what it shows can be taken away, filtered and read by everyone."""

import csv
import io
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mixerscope.cli import main
from mixerscope.experiments.paper.drawing import words
from mixerscope.experiments.paper.page import INDEX

KEPT = Path(__file__).parents[2] / "reproduction"


def saved(tab, label):
    with tab.expect_download() as download:
        tab.get_by_role("button", name=label, exact=True).click()
    return Path(download.value.path()).read_bytes()


def test_figures_are_saved_as_shown_and_claims_can_be_filtered(opened):
    tab = opened(KEPT / INDEX)
    assert tab.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")
    title = tab.locator("figure").first.evaluate("f => f.closest('section').querySelector('h2').textContent")
    ElementTree.fromstring(saved(tab, f"SVG of {title}"))
    assert saved(tab, f"PNG of {title}").startswith(b"\x89PNG")
    rows = list(csv.reader(io.StringIO(saved(tab, f"CSV of {title}").decode())))
    shown = tab.locator("table[data-of]").first.locator("tr")
    assert len(rows) == shown.count() > 10
    assert rows[1] == [text.strip() for text in shown.nth(1).locator("td").all_text_contents()]
    claims = tab.locator("tr[data-outcome]:visible")
    before, dropped = claims.count(), tab.locator("tr[data-outcome='not tested']").count()
    tab.get_by_label(f"not tested ({dropped})").uncheck()
    assert claims.count() == before - dropped < before


def test_no_cell_of_a_drawn_table_makes_the_others_small_and_what_was_not_run_is_said():
    drawn = words([{"a": "x" * 500, "b": None}], ("a", "b"), "a title").to_dict()
    said = {cell["said"] for cell in drawn["data"]["values"]} if "values" in drawn.get("data", {}) else set()
    said |= {cell["said"] for layer in drawn["layer"] for cell in layer.get("data", {}).get("values", ())}
    assert said == {"a", "b", "–", "x" * 63 + "…"}
    page = (KEPT / INDEX).read_text()
    assert page.count("Some of it was not run.") == page.count("What was not run") + page.count(">Not run: ") > 3
    assert page.count("too few to say") > 3


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (400, True)])
def test_it_fits_the_window_and_axe_finds_nothing_serious(opened, width, dark):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed (extra e2e)")
    tab = opened(KEPT / INDEX, width, dark)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    serious = [one for one in axe.Axe().run(tab).response["violations"] if one["impact"] in ("serious", "critical")]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in serious] == []


def test_the_same_page_over_the_runs_that_are_kept_in_packs(opened, tmp_path):
    [pack] = (KEPT / "fig4a").glob("*.pack")
    kept = tmp_path / "kept" / "fig4a"
    kept.mkdir(parents=True)
    (kept / pack.name).write_bytes(pack.read_bytes())
    assert main(["report", str(tmp_path / "kept")]) == 0
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["fig4a", "report.html", "summary.json"]
    tab = opened(tmp_path / "kept" / "report.html")
    assert tab.locator("#shown").inner_text() == "all 36 models"
    assert main(["report", str(kept / pack.name), "--out", str(tmp_path / "of-a-pack.html")]) == 0


def test_a_folder_with_neither_runs_nor_packs_is_refused_and_left_as_it_is(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 2
    assert "holds no finished runs" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_pack_is_refused(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("hello")
    assert main(["report", str(tmp_path / "notes.txt")]) == 2
    assert "pack" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
