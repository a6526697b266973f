"""Attention patterns, state norms and tracked states: in a real browser, what is shown is what was stored."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest

from mixerscope.artifacts import Erasures, Interchanges, Lengths, Patterns, Probes
from mixerscope.artifacts.recoveries import Recoveries
from mixerscope.artifacts.state_verdict import StateTest, StateVerdict
from mixerscope.report import write_report
from mixerscope.report.data import gather
from mixerscope.report.findings import finding
from mixerscope.results import load_runs

from .conftest import HOSTILE, find_run, find_stage, rewrite
from .test_browser import OVERLAPS


def saved(holder, kind="CSV"):
    with holder.page.expect_download() as download:
        holder.locator(".tools button", has_text=kind).click()
    return list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))


def figure(tab, kind):
    """A figure, its fold opened and itself in sight."""
    holder = tab.locator(f"[data-kind={kind}]").first
    fold = tab.locator(f"details:not([open]):has([data-kind={kind}]) > summary")
    if fold.count():
        fold.first.click()
    holder.scroll_into_view_if_needed()
    holder.locator("svg.drawn").wait_for()
    return holder


def test_attention_is_shown_as_it_was_stored(folder, opened):
    root = folder("attends")
    [run] = load_runs(root)
    stored = run.find(Patterns)
    tab = opened(root)
    holder = figure(tab, "attention")
    rows = saved(holder)
    assert len(rows) == sum(len(row) for one in stored.attention for row in one.example)
    for row in rows:
        one = stored.attention[int(row["block"])]
        weight = one.example[stored.looking.index(int(row["looking_position"]))][int(row["seen_position"])]
        assert float(row["weight"]) == pytest.approx(weight, abs=6e-4)
        assert row["looking"] == stored.tokens[int(row["looking_position"])]
    holder.locator("select[name=of]").select_option("roles")
    rows = saved(holder)
    assert {(row["looking"], row["seen"]) for row in rows} >= {("query", "key"), ("value", "key"), ("query", "value")}
    for row in rows:
        mean = stored.attention[int(row["block"])].between[row["looking"]][row["seen"]]
        assert float(row["weight"]) == pytest.approx(mean.value, abs=1e-4)
        assert int(row["n"]) == mean.n
    holder.locator("rect[data-tip]").first.hover()
    assert re.search(r"weight 0\.\d+ \[.*\], n = 6", tab.locator("#tip").inner_text())


def test_state_norms_are_shown_as_they_were_stored(folder, opened):
    root = folder("holds")
    [run] = load_runs(root)
    stored = run.find(Patterns)
    tab = opened(root)
    rows = saved(figure(tab, "norms"))
    assert [float(row["norm"]) for row in rows] == [norm for one in stored.states for norm in one.example]
    tab.locator("[data-kind=norms] .point").last.hover()
    assert "n = 6" in tab.locator("#tip").inner_text()


def test_patterns_beyond_what_a_page_holds_leave_the_means(folder, opened, monkeypatch):
    monkeypatch.setattr("mixerscope.report.payload.PATTERN_NUMBERS", 3)
    tab = opened(folder("attends"))
    rows = saved(figure(tab, "attention"))
    assert {row["looking_position"] for row in rows} == {""}


def verdict_of(root, name, **tests):
    """Writes a verdict on the state into the runs of a folder."""
    for path in root.iterdir():
        stage = find_stage(find_run(root, path.name.rpartition("-")[0]), "track")
        asked = tuple(StateTest(key.replace("_", ", "), value, value - 0.1, value) for key, value in tests.items())
        rewrite(stage, StateVerdict(name, "as written here", asked))


def test_a_tracked_state_has_its_verdict_its_tests_and_its_figures(folder, opened):
    root = folder("tracks")
    verdict_of(root, "carried", now_shift=0.9, later_shift=0.8, later_moved=0.2)
    stage = find_stage(find_run(root, "gru"), "probes")
    probes = stage.read(Probes)
    readability = tuple(tuple(0.1 + 0.3 * i for i in range(len(row))) for row in probes.readability)
    rewrite(stage, replace(probes, readability=readability))  # a model that knows nothing has none
    stage = find_stage(find_run(root, "gru"), "erase")
    found = stage.read(Erasures)
    rewrite(stage, replace(found, erased=tuple(replace(one, damage=(0.5,) * len(one.damage)) for one in found.erased)))
    [run] = load_runs(root)
    tab = opened(root)
    assert tab.locator("h1").inner_text() == "The state is carried"
    card = tab.locator(".card[data-model]")
    assert {"carried", "as written here".capitalize() + "."} <= set(card.inner_text().splitlines())
    cells = card.locator(".written tbody tr").last.locator("td").all_inner_texts()
    assert [cell.split()[0] for cell in cells] == ["0.80", "0.20", "–"]
    lengths, probes = run.find(Lengths), run.find(Probes)
    shown = [row for row in saved(figure(tab, "lengths")) if row["times"] == "2"]
    assert [float(row["accuracy"]) for row in shown] == pytest.approx(lengths.at(2).by_position, abs=1e-4)
    rows = saved(figure(tab, "readable"))
    answer = [row for row in rows if row["label"] == "answer"]
    assert [float(row["readability"]) for row in answer] == pytest.approx(probes.curve(), abs=1e-4)
    assert answer[0]["shuffled"] != ""
    holder = figure(tab, "erased")
    erasures = run.find(Erasures)
    stored = {(one.site, one.method): one for one in erasures.erased if one.method == "leace"}
    rows = saved(holder)
    assert [(float(r["left"]), r["speaks"]) for r in rows] == [
        (one.residual, str(erasures.speaks(one)).lower()) for one in stored.values()
    ]
    rows = saved(figure(tab, "written"))
    cell = run.find(Interchanges).cell("stream", "shift")
    assert [float(r["follows"]) for r in rows if r["how"] == "shift" and r["follows"]] == pytest.approx(
        [value for value in cell.by_distance if value is not None], abs=1e-4
    )
    rows = saved(figure(tab, "recovered"))
    recoveries = run.find(Recoveries)
    at = {(one.site, one.position): one.later for one in recoveries.cells}
    places = list(dict.fromkeys(one.site for one in recoveries.cells if one.position is not None))
    names = {("input" if not i else f"after block {i - 1}"): site for i, site in enumerate(places)}
    for row in rows:
        later = at[names[row["place"]], int(row["input"])]
        assert (row["share"] == "") if later is None else float(row["share"]) == pytest.approx(later, abs=1e-4)
    for drawn in tab.locator("svg.drawn").all():
        assert drawn.evaluate(OVERLAPS) == []


def test_what_follows_opens_on_the_place_that_verdicts_look_at_first(folder, opened):
    holder = figure(opened(folder("tracks")), "written")
    assert holder.locator("select").input_value() == "stream and states"
    assert "Written in the stream and states" in holder.inner_text()
    holder.locator("select").select_option("residual stream")
    assert "Verdicts look first at what is written in the stream and states" in holder.inner_text()
    lines = holder.locator("svg.drawn polyline.line")
    dashes = lines.evaluate_all("lines => lines.map((line) => getComputedStyle(line).strokeDasharray)")
    assert len(set(dashes)) == len(dashes) == 3
    places = lines.evaluate_all("lines => lines.map((line) => line.getAttribute('points').split(',')[0])")
    assert len(set(places)) == 3, "side by side where they hold the same numbers"


def test_what_a_probe_of_other_documents_reads_is_drawn_and_given_as_the_reason(folder, opened):
    root = folder("tracks")
    stage = find_stage(find_run(root, "gru"), "erase")
    found = stage.read(Erasures)
    chance = found.chance
    kept = {"damage": (0.5, 0.5), "before": 1.0, "residual": chance, "unseen": chance + (1 - chance) / 2}
    rewrite(stage, replace(found, erased=tuple(replace(one, **kept) for one in found.erased)))
    holder = figure(opened(root), "erased")
    heights = holder.locator("svg.drawn .canvas, svg.drawn rect.bar-mark").evaluate_all(
        "bars => bars.map((bar) => [bar.classList[1], Number(bar.getAttribute('height'))])"
    )
    lost, left, unseen = ([height for name, height in heights if name == colour] for colour in ("c0", "c1", "c2"))
    assert len(lost) == len(left) == len(unseen) > 0
    assert set(left) == {1}, "chance is 0"
    assert unseen == pytest.approx(lost), "half of what is lost, half of what can be read"
    tips = holder.locator("svg.drawn rect.bar-mark").evaluate_all("bars => bars.map((bar) => bar.dataset.tip)")
    for tip in tips:
        assert "one of other documents 0.500 (0 is chance)" in tip
        assert tip.endswith("says nothing of the state: a probe of other documents still reads it")


def test_what_is_left_is_drawn_and_saved_on_one_scale(folder, opened):
    root = folder("tracks")
    stage = find_stage(find_run(root, "gru"), "erase")
    found = stage.read(Erasures)
    kept = {"damage": (0.5, 0.5), "before": 1.0, "residual": (3 * found.chance + 1) / 4, "unseen": None}
    rewrite(stage, replace(found, erased=tuple(replace(one, **kept) for one in found.erased)))
    holder = figure(opened(root), "erased")
    rows = saved(holder)
    assert rows
    assert [(float(row["left_share"]), float(row["before_share"])) for row in rows] == [(0.25, 1.0)] * len(rows)
    assert {row["unseen_share"] for row in rows} == {""}
    said = holder.locator("svg.drawn rect.bar-mark").first.get_attribute("data-tip")
    assert "a fresh one after 0.250, nobody asked one of other documents" in said


@pytest.mark.parametrize("kept", [True, False])
def test_shares_by_distance_say_of_how_many_answers_they_are(kept, folder, opened):
    root = folder("tracks")
    stage = find_stage(find_run(root, "gru"), "interchange")
    found = stage.read(Interchanges)
    told = tuple(range(7, 7 + len(found.cells[0].by_distance))) if kept else ()
    rewrite(stage, replace(found, cells=tuple(replace(one, told=told) for one in found.cells)))
    holder = figure(opened(root), "written")
    rows = saved(holder)
    assert {row["pairs"] for row in rows} == {str(found.pairs)}
    assert [row["n"] for row in rows] == [str(7 + int(row["distance"])) if kept else "" for row in rows]
    tips = holder.locator("svg.drawn .point").evaluate_all("marks => marks.map((mark) => mark.dataset.tip)")
    assert tips
    for tip in tips:
        [distance] = re.findall(r"(\d+) inputs later", tip)
        how_many = f"n = {7 + int(distance)}" if kept else f"of at most {found.pairs}: how many was not kept"
        assert f"of answers follow, {how_many}\n" in tip


@pytest.mark.parametrize("width", [1280, 400])
def test_questions_of_a_memory_say_what_their_numbers_are_shares_of(folder, opened, width):
    root = folder("tracks")
    found = {"later, learned, moved": 0.5, "later, span": 0.9, "read, state": 0.4}
    tests = tuple(StateTest(name, value, value - 0.1, value) for name, value in found.items())
    rewrite(find_stage(find_run(root, "gru"), "track"), StateVerdict("carried", "so", tests, ("later, span",)))
    rows = opened(root, width).locator(".memory tbody tr")
    shares = [" ".join(text.split()[-2:]) for text in rows.locator("td").all_inner_texts()]
    assert shares == ["beyond guessing", "of answers", "beyond chance"]
    tops = rows.evaluate_all(
        """rows => rows.map((row) => [...row.children].map((cell) => {
          const range = document.createRange();
          range.selectNodeContents(cell);
          return range.getBoundingClientRect().top;
        }))"""
    )
    for name, number in tops:
        assert name == pytest.approx(number, abs=3), "side by side, however long what is said of it"
    assert rows.locator("th, td").evaluate_all("all => all.filter((one) => one.scrollWidth > one.clientWidth)") == []


def test_a_single_card_fills_the_page(folder, opened):
    tab = opened(folder("tracks"))
    card, main = (tab.locator(where).bounding_box()["width"] for where in (".cards > .card", "main .fold >> nth=0"))
    assert card == pytest.approx(main, abs=2)
    tab = opened(folder("tracks, seed 1"))
    assert tab.locator(".cards > .card").first.bounding_box()["width"] < 0.6 * main


@pytest.mark.parametrize("kept", [True, False])
def test_what_is_pointed_at_says_how_many_and_the_interval(kept, folder, opened):
    root = folder("tracks")
    run = find_run(root, "gru")
    probes, erase, recover = (find_stage(run, name) for name in ("probes", "erase", "recover"))
    found = probes.read(Probes)
    readable = replace(found, readability=tuple(tuple(0.5 for _ in row) for row in found.readability))
    ends = {} if kept else {"accuracy_low": (), "accuracy_high": ()}
    rewrite(probes, replace(readable, **ends))
    erasures = erase.read(Erasures)
    ends = {"damage_low": (0.25, 0.25), "damage_high": (0.75, 0.75)} if kept else {"damage_low": (), "damage_high": ()}
    rewrite(erase, replace(erasures, erased=tuple(replace(one, damage=(0.5, 0.5), **ends) for one in erasures.erased)))
    recoveries = recover.read(Recoveries)
    ends = {"later": 0.5, "later_low": 0.25 if kept else None, "later_high": 0.75 if kept else None}
    rewrite(recover, replace(recoveries, cells=tuple(replace(one, **ends) for one in recoveries.cells)))
    tab = opened(root)
    for kind in ("readable", "erased", "recovered"):
        tips = figure(tab, kind).locator("[data-tip]").evaluate_all("marks => marks.map((mark) => mark.dataset.tip)")
        assert tips
        for tip in tips:
            assert re.search(r"n = \d", tip)
            assert ("(no interval was kept)" in tip) == (not kept)
            assert (
                bool(re.search(r"\[0\.250, 0\.750\]" if kind != "readable" else r"% ?\[[\d.]+%?, [\d.]+", tip)) == kept
            ), tip


def test_a_model_that_knows_nothing_of_the_state_has_a_sentence_in_place_of_empty_figures(folder):
    page = write_report(folder("tracks")).read_text()
    drawn = re.findall(r'class="figure" data-kind="(\w+)"', page)
    assert drawn == ["lengths", "written", "recovered"]
    assert "knows too little of the state" in page


def test_seeds_of_a_tracked_state_stand_together_beside_guessing(folder, opened):
    tab = opened(folder("tracks", "tracks, seed 1"))
    rows = saved(figure(tab, "tracked"))
    assert {row["seeds"] for row in rows} == {"2"}
    assert all(float(r["lowest"]) <= float(r["median"]) <= float(r["highest"]) for r in rows)
    for kind in ("accuracy", "curves", "lengths"):
        assert re.search(r"guessing \d+\.\d%", figure(tab, kind).inner_text())


@pytest.mark.parametrize(
    ("names", "headline"),
    [
        (["carried", "carried"], "The state is carried in all 2 models"),
        (["carried", "not learned"], "The state is carried in 1 of 2 models"),
        (["undetermined", "not learned"], "How the state is tracked is not determined"),
        (["not learned"], "Not learned"),
    ],
)
def test_headlines_of_tracked_states(folder, names, headline):
    root = folder(*["tracks", "tracks, seed 1"][: len(names)])
    for run in load_runs(root):
        name = names.pop()
        rewrite(next(s for s in run.folder.stages() if s.name == "track"), StateVerdict(name, "so", ()))
    [group] = gather(load_runs(root))
    assert finding(group).headline == headline


def test_hostile_tokens_of_patterns_stay_text(folder, opened):
    root = folder("attends")
    stage = find_stage(find_run(root, "attention"), "patterns")
    patterns = stage.read(Patterns)
    rewrite(stage, replace(patterns, tokens=(HOSTILE,) * len(patterns.tokens)))
    tab = opened(root)
    holder = figure(tab, "attention")
    holder.locator("rect[data-tip]").first.hover()
    assert HOSTILE in tab.locator("#tip").inner_text()
    assert tab.locator("img").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_serious_in_them(folder, opened, dark):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed (extra e2e)")
    tab = opened(folder("attends", "holds", "tracks"), dark=dark)
    for fold in tab.locator("summary").all():
        fold.click()
    for kind in ("attention", "norms", "lengths", "written"):
        figure(tab, kind)
    serious = [one for one in axe.Axe().run(tab).response["violations"] if one["impact"] in ("serious", "critical")]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in serious] == []


def test_a_page_over_tracked_states_asks_for_no_model(folder, tmp_path):
    page = write_report(folder("tracks"), tmp_path / "page.html")
    assert "Another state was written" in page.read_text()
