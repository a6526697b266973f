"""The page in a real browser: drawn without the network, changed by filters, saved, read by keyboard, printed."""

import csv
import io
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mixerscope.artifacts import Estimate, RouteMove
from mixerscope.artifacts.verdicts import Test as Asked
from mixerscope.report import write_report
from mixerscope.results import load_run, load_runs

from .conftest import HOSTILE, find_run, give_verdict, make_hostile

OVERLAPS = """(svg) => {
  const boxes = [...svg.querySelectorAll('text')].filter((t) => t.textContent.trim() && !t.getAttribute('transform'))
    .map((t) => [t.textContent, t.getBoundingClientRect()]);
  const found = [];
  boxes.forEach(([a, p], i) => boxes.slice(i + 1).forEach(([b, q]) => {
    const across = Math.min(p.right, q.right) - Math.max(p.left, q.left);
    const down = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
    if (across > 2 && down > 4) found.push(`${a} | ${b}`);
  }));
  return found;
}"""
"""Labels of a figure that stand on each other; slanted ones, whose boxes are larger than they are, left out."""


def passed(*names, value=0.97):
    return tuple(Asked(name, True, Estimate(value, value - 0.03, min(1, value + 0.02), 200), 0.9) for name in names)


@pytest.fixture
def judged(folder):
    """Three models, one of which has a route."""
    root = folder("based", "attention", "attention seed 1")
    tests = passed("above guessing", "follows: query", "sufficient", "necessary", "takes the route", "asks there")
    give_verdict(find_run(root, "based"), "induction", ["key", "value", "query"], tests=tests)
    return root


def saves(tab, label):
    with tab.expect_download() as download:
        tab.get_by_role("button", name=label, exact=True).first.click()
    return Path(download.value.path()).read_bytes()


def test_every_figure_in_sight_is_drawn_and_nothing_is_asked_of_the_network(folder, opened):
    root = folder("based", "two slots", "other task", "diverged", "unpatchable", "mine", "watched")
    give_verdict(find_run(root, "local-Mine"), "induction", ["key", "value", "query"])
    tab = opened(root)
    tab.mouse.wheel(0, 100_000)
    waiting = ".figure:not([data-drawn])"
    hidden = tab.locator(f"details:not([open]) {waiting}").count()
    tab.wait_for_function(f"document.querySelectorAll('main > section > {waiting}').length === 0")
    assert hidden >= 3
    tab.locator("summary", has_text=re.compile("^(Every site|Show them)")).first.click()
    tab.locator("details[open] .figure svg.drawn").first.wait_for(state="attached")


def test_filters_change_the_pictures_the_cards_and_the_table(kernels, tmp_path, opened):
    tab = opened(write_report(kernels, tmp_path / "page.html"))
    points = tab.locator("figure[data-kind=accuracy] .point")
    rows = tab.locator("tbody.rows tr")
    assert (points.count(), rows.count(), tab.locator("#shown").inner_text()) == (16, 16, "all 16 models")
    before = tab.locator("figure[data-kind=printed] svg").get_attribute("aria-label")
    tab.locator("fieldset", has_text="model.options.d_conv").get_by_label("2", exact=True).uncheck()
    rows.nth(8).wait_for(state="detached")  # once what it has of all models is unpacked
    assert (points.count(), rows.count(), tab.locator("#shown").inner_text()) == (8, 8, "8 of 16 models")
    assert "d_conv=2" not in tab.locator(".cards").inner_text()
    assert tab.locator("figure[data-kind=printed] svg").get_attribute("aria-label") != before
    table = list(csv.DictReader(io.StringIO(saves(tab, "Download curves.csv").decode())))
    assert {row["model"].split()[2] for row in table} == {"d_conv=4"}
    tab.get_by_role("button", name="Show all").click()
    assert points.count() == 16


def test_more_models_than_are_shown_open_from_the_table(kernels, tmp_path, opened):
    tab = opened(write_report(kernels, tmp_path / "page.html"))
    assert tab.locator(".cards > .card").count() == 6
    name = tab.locator("tbody.rows button.open").last.inner_text()
    tab.locator("tbody.rows button.open").last.click()
    tab.locator(".cards > .card:focus").wait_for()
    assert tab.locator(".cards > .card .name").first.inner_text() == name
    tab.get_by_role("button", name="Show more models").click()
    tab.locator(".cards > .card:nth-child(12)").wait_for()


def test_what_is_saved_holds_the_numbers_shown(judged, opened):
    tab = opened(judged)
    run = load_run(find_run(judged, "based").path)
    stored = {
        (row["direction"], row["site"], row["role"]): row["value"]
        for row in run.effects.rows()
        if row["metric"] == "share" and row["slot"] == "key" and row["head"] is None
    }
    card = tab.locator(".card[data-model]", has=tab.get_by_role("heading", name="based", exact=True))
    with tab.expect_download() as download:
        card.get_by_role("button", name="CSV of Where it sits").click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    assert len(rows) == 2 * 3 * 5
    for row in rows:
        value = stored[row["direction"], row["site"], row["role"]]
        assert (row["share"] == "") == (value is None)
        assert value is None or float(row["share"]) == pytest.approx(value, abs=1e-4)
    shown = [text for text in card.locator("[data-kind=map] .cell-text").all_text_contents() if text[-1].isdigit()]
    numbers = [f"{float(row['share']):.2f}".replace("-0.00", "0.00").replace("-", "−") for row in rows if row["share"]]
    assert sorted(shown) == sorted(numbers)
    cells = list(csv.DictReader(io.StringIO(saves(tab, "Download cells.csv").decode())))
    assert {row["run_id"] for row in cells} == {run.run_id for run in load_runs(judged)}
    summary = list(csv.DictReader(io.StringIO(saves(tab, "Download summary.csv").decode())))
    assert {row["mechanism"] for row in summary} == {"induction", "not above guessing"}


def test_figures_are_saved_as_pictures(judged, opened):
    tab = opened(judged)
    svg = ElementTree.fromstring(saves(tab, "SVG of How information moves").decode())
    texts = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"block 0", "block 1", "part 0", "part 1"} <= set(texts)
    strokes = {path.get("stroke") for path in svg.iter("{http://www.w3.org/2000/svg}path")}
    assert "rgb(0, 114, 178)" in strokes, "colours are written into it"
    assert texts[0] == "How information moves: based", "and what it is"
    assert any(re.fullmatch(r"key: 91.2% of 6 documents.*", text) for text in texts), "and its legend"
    assert saves(tab, "PNG of How information moves").startswith(b"\x89PNG")


@pytest.mark.parametrize("width", [1280, 400, 320])
def test_labels_do_not_stand_on_each_other_and_nothing_is_cut_off(judged, opened, width):
    tab = opened(judged, width)
    tab.locator("summary", has_text="Every site").first.click()
    tab.locator("[data-sites=all] svg.drawn").first.wait_for()
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    for figure in tab.locator("svg.drawn").all():
        assert figure.evaluate(OVERLAPS) == []
    narrow = "holder => kinds.map(holder, 200).svg.querySelector('rect.cell').getAttribute('width')"
    cell = float(tab.locator("[data-sites=all]").first.evaluate(narrow))
    assert cell >= tab.evaluate("wide('−0.02', 11) - 1"), "a number has room in its cell, however many there are"


def test_marks_say_more_when_pointed_at_or_reached_by_keyboard(judged, opened):
    tab = opened(judged)
    tab.locator("[data-kind=map] rect[data-tip]").first.hover()
    assert "n = 6" in tab.locator("#tip").inner_text()
    flow = tab.locator("[data-kind=flow] svg.drawn")
    flow.focus()
    for _ in range(40):
        tab.keyboard.press("ArrowRight")
        if "key → value" in tab.locator("#tip").inner_text():
            break
    assert "91.2% [81.2%, 98.8%], n = 6" in tab.locator("#said").inner_text()
    tab.keyboard.press("Escape")
    assert tab.locator("#tip").is_hidden()


def test_accuracy_stands_beside_guessing_and_single_seeds_say_so(folder, opened):
    tab = opened(folder("based", "attention"))
    for kind in ("accuracy", "curves"):
        assert re.search(r"guessing \d+\.\d%", tab.locator(f"figure[data-kind={kind}]").first.inner_text())
    assert tab.locator("figure[data-kind=accuracy] .stamp").inner_text() == "single seeds"


def test_what_is_filtered_out_is_not_shown_while_it_emerged(folder, opened):
    tab = opened(folder("attention", "based"))
    figure = tab.locator("figure[data-kind=curves]")
    line = {"name": "value", "n": 6, "step": [0, 1, 2], "share": [None, 0.4, 1], "low": [None, 0.2, 0.9]}
    tab.evaluate("(line) => { page.overview.emergence[1] = [line]; redraw(); }", line | {"high": [None, 0.6, 1]})
    assert not any("NaN" in points.get_attribute("points") for points in figure.locator("polyline, polygon").all())
    assert "share restored in based" in figure.inner_text()
    tab.locator("fieldset", has_text="architecture").get_by_label("based", exact=True).uncheck()
    assert "share restored" not in figure.inner_text()


def test_several_seeds_are_a_distribution_and_are_named_once(kernels, tmp_path, opened):
    tab = opened(write_report(kernels, tmp_path / "page.html"))
    figure = tab.locator("figure[data-kind=accuracy]")
    boxes = figure.locator("rect.seeds[data-tip]")
    boxes.nth(3).wait_for(state="attached")  # many figures are drawn when they come into sight
    assert boxes.count() == 4, "two kernel sizes, two widths"
    said = boxes.first.get_attribute("data-tip")
    assert re.search(r"2 seeds\nmedian \d+\.\d%, from \d+\.\d% to \d+\.\d%\nno interval over 2 seeds", said)
    assert figure.locator(".head > .stamp").is_hidden()
    tab.locator("fieldset", has_text="width").get_by_label("8", exact=True).uncheck()
    boxes.nth(2).wait_for(state="detached")  # nor are they drawn again at once
    assert (boxes.count(), figure.locator("svg text.soft-text").all_text_contents()) == (
        2,
        ["mamba d_conv=2", "mamba d_conv=4"],
    )
    tab.locator("fieldset", has_text="seed").get_by_label("1", exact=True).uncheck()
    boxes.first.wait_for(state="detached")
    assert (boxes.count(), figure.locator(".point.single").count()) == (0, 2 + 1), "and one in the legend"
    assert figure.locator(".head > .stamp").inner_text() == "single seeds"


def test_hostile_names_stay_text_in_the_browser(folder, monkeypatch, opened):
    root = folder("based")
    make_hostile(root, monkeypatch)
    tab = opened(root)
    for fold in tab.locator("summary").all():
        fold.click()
    tab.locator("[data-kind=map] rect[data-tip]").first.hover()
    assert tab.locator("img").count() == 0
    assert HOSTILE in tab.locator("#tip").inner_text()
    assert HOSTILE in tab.locator("main").inner_text()


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_serious(judged, opened, dark):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed (extra e2e)")
    tab = opened(judged, dark=dark)
    for fold in tab.locator("summary").all():
        fold.click()
    found = axe.Axe().run(tab).response["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in serious] == []


def test_three_models_print_on_two_pages(judged, opened):
    tab = opened(judged)
    assert len(re.findall(rb"/Type\s*/Page\b", tab.pdf(prefer_css_page_size=True))) == 2


def test_what_is_chosen_and_who_it_is_about_are_printed_in_light_colours(judged, opened):
    tab = opened(judged, dark=True)
    page = "getComputedStyle(document.documentElement).getPropertyValue('--card').trim()"
    dark = tab.evaluate(page)
    tab.emulate_media(media="print")
    assert tab.evaluate(page) == "#ffffff" != dark
    for said in (*tab.locator("figure select").all(), *tab.locator(".summary tbody th").all()):
        assert said.is_visible()
    assert tab.locator(".tools").first.is_hidden()
    # A row of a large sweep names its model by a button.
    tab.evaluate("document.querySelector('.summary tbody th').innerHTML = '<button class=open>a model</button>'")
    assert tab.locator("button.open").is_visible()


CROSSED = """svg => [...svg.querySelectorAll('.lane-text:not(.strong-text)')].filter((text) => {
  const box = text.getBBox();
  return [...svg.querySelectorAll('path.lane')].some((path) => [0, 0.25, 0.5, 0.75, 1].some((i) => [0.2, 0.5, 0.8].some(
    (j) => path.isPointInStroke(new DOMPoint(box.x + i * box.width, box.y + j * box.height)))));
}).map((text) => text.textContent)"""


@pytest.mark.parametrize("width", [1280, 400])
def test_no_arrow_goes_through_the_name_of_what_moves(folder, opened, width):
    root = folder("based", "attention")
    share = Estimate(0.9, 0.8, 1.0, 6)
    early = (RouteMove(0, "first convolution", "key", "value", share), RouteMove(1, "scan", "value", "query", share))
    give_verdict(find_run(root, "based"), "induction", ["key", "value", "query"], moves=early)
    late = (RouteMove(1, "gated linear attention", "key", "query", share),)
    give_verdict(find_run(root, "attention"), "direct retrieval", ["key", "query"], moves=late)
    tab = opened(root, width)
    flows = tab.locator("[data-kind=flow] svg.drawn")
    assert flows.count() == 2
    for flow in flows.all():
        flow.scroll_into_view_if_needed()
        assert flow.locator(".lane-text").count() > 0
        assert flow.evaluate(CROSSED) == []
    curve = [[60 + 4 * i, 100 - i] for i in range(51)]
    block = "(level) => 110 - 78 * level"
    tried = f"""([points, boxes, curve]) => {{
      const [mark] = partNames([{{ parts: [{{ by: 'scan', level: 1, curve }}], boxes, points }}], {block}, 300);
      return ['x', 'y'].map((axis) => Number(mark.getAttribute(axis)));
    }}"""
    x, y = tab.evaluate(tried, [curve, [], curve])
    nearest = min(math.hypot(max(x - px, 0), max(y - 9 - py, 0, py - y - 2)) for px, py in curve[20:31])
    assert 4 < nearest < 14, "beside the middle of its own arrow, not on it"
    assert tab.evaluate(tried, [curve, [[x, x + 30, y]], curve]) != [x, y], "another name stands there"
    everywhere = [[i, j] for i in range(0, 300, 5) for j in range(0, 120, 5)]
    assert tab.evaluate(tried, [everywhere, [], curve]) == [54, 53], "where there is no room, in the corner"


def test_names_in_the_accuracy_plot_keep_off_the_line_of_guessing_and_it_off_them(judged, opened):
    tab = opened(judged)
    found = tab.evaluate(
        """() => {
          const svg = canvas(400, 320, ''), y = (v) => 300 - 280 * v, groups = [
            { series: 'attention', values: [0.26], runs: [{}] }, { series: 'based', values: [0.24], runs: [{}] }];
          const taken = nameGroups(svg, groups, () => 100, y, 10, 400, 0.25);
          const crossing = along([[250, y(0.2)], [390, y(0.3)]]);
          svg.append(baseline(y(0.25), [40, 390], 'guessing 25.0%', 14, [...taken, ...crossing]));
          document.body.append(svg);
          const boxes = ['attention', 'based', 'guessing 25.0%'].map((name) => {
            const box = [...svg.querySelectorAll('text')].find((t) => t.textContent === name).getBBox();
            return [box.x, box.y, box.x + box.width, box.y + box.height];
          });
          return [boxes, y(0.25)];
        }"""
    )
    (attention, based, guessing), line = found
    assert attention[3] <= line + 1, "one above the line"
    assert based[1] >= line - 1, "one below"
    for name in (attention, based):
        assert name[0] >= guessing[2] or guessing[0] >= name[2] or name[1] >= guessing[3] or guessing[1] >= name[3]
    assert guessing[2] <= 320, "the line that crosses it is at the right"
