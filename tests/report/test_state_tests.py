"""The questions behind a verdict on a state: what decided, in words, and why some have no answer."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from mixerscope.analysis.state_rules import BY_MEMORY, LEARNED, MET_BEFORE, READ, SPANNED, StateRules
from mixerscope.analysis.tracking import judge_tracking
from mixerscope.artifacts import Erased, Erasures, Estimate, Interchanged, Interchanges, Lengths
from mixerscope.artifacts.alignments import Aligned, Alignments
from mixerscope.artifacts.lengths import AtLength
from mixerscope.artifacts.state_verdict import StateTest, StateVerdict
from mixerscope.report.data import gather
from mixerscope.report.findings import how_sure
from mixerscope.report.state_tests import decided, erased_rows, marked, memory_rows, unasked, written_rows
from mixerscope.report.tracking import MEANINGS, WRITTEN, Tracked, meaning_of, reason_of, silence
from mixerscope.results import load_runs

from .conftest import find_run, find_stage, rewrite
from .reading import page_of

FOUND = {
    "accuracy": 1.0,
    "now, shift": 0.9,
    "now, inner shift": 0.8,
    "now, inner moved": 0.1,
    "later, shift": 0.9,
    "later, moved": 0.8,
    "later, swap": 0.7,
    MET_BEFORE: 0.6,
    LEARNED[0]: 0.5,
    LEARNED[1]: 0.4,
    LEARNED[2]: 0.3,
    READ: 0.2,
    "erased, stream": 0.1,
    "erased, state": 0.4,
    "left, stream": 0.5,
    "left, state": 0.75,
}
NOT_ASKED = dict.fromkeys((MET_BEFORE, READ, *LEARNED))


def interchanges(*places: str) -> Interchanges:
    cells = tuple(
        Interchanged(place, how, None, None, None, ()) for place in places for how in ("shift", "moved", "swap")
    )
    return Interchanges(3, 4, 16, 1.0, cells)


def erased(site: str, method: str = "leace", **changes) -> Erased:
    one = Erased(site, method, 1, None, 1.0, 0.5, (0.5,), (0.5,), unseen=0.5)
    return replace(one, **changes)


def erasures(*each: Erased) -> Erasures:
    return Erasures("answer", (8,), (1.0,), (0.5,), 0.5, each, ())


def alignments(*places: str) -> Alignments:
    """Directions learned in these places."""
    cells = tuple(Aligned(place, "das", 1, None, None, None, None) for place in places)
    return Alignments(3, "answer", 16, 16, 1.0, (), cells)


def tracked(
    *rests_on: str,
    memory: bool = True,
    of: Erasures | None = None,
    aligned: Alignments | None = None,
    unwritten: tuple[str, ...] | None = (),
    **changes: float | None,
) -> Tracked:
    values = FOUND | changes
    tests = tuple(
        StateTest(name, value, *(None, None) if value is None else (value - 0.05, value))
        for name, value in values.items()
    )
    places = ("stream", "inner", "both") if memory else ("stream",)
    verdict = StateVerdict("carried", "so", tests, rests_on)
    written = replace(interchanges(*places), unwritten=unwritten)
    return Tracked(verdict, None, None, of, written, None, StateRules(), aligned=aligned)


def test_a_verdict_rests_on_what_it_was_kept_to_rest_on():
    assert decided(tracked()) == frozenset(), "of older verdicts that was not kept, whatever their reason says"
    found = tracked("later, shift", "later, moved", "read, state")
    assert decided(found) == {"later, shift", "later, moved", READ}
    marks = {row.name: [cell.decided for cell in row.cells] for row in written_rows(found)}
    assert marks["later answers"] == [True, True, False]
    assert not any(marks["answer there"])
    assert [row.name for row in memory_rows(found) if row.cells[0].decided] == ["a probe reads the memory"]


def test_what_an_erasure_decided_is_marked_where_it_costs_most():
    found = tracked("erased, state", of=erasures(erased("blocks.0.resid_pre")))
    assert [[cell.decided for cell in row.cells] for row in erased_rows(found)] == [[False, True], [False, False]]


def test_a_test_without_a_value_decided_nothing():
    found = tracked("later, shift", *LEARNED, **dict.fromkeys(LEARNED))
    assert decided(found) == {"later, shift"}


def test_a_verdict_may_rest_on_what_no_table_shows():
    elsewhere = replace(tracked("accuracy", "a test of tomorrow", "left, stream"), erasures=None)
    assert decided(elsewhere) == {"accuracy", "left, stream"}
    assert not marked(written_rows(elsewhere) + memory_rows(elsewhere) + erased_rows(elsewhere))
    assert marked(written_rows(tracked("later, shift")))


def judged(name: str = "", /, guessing: float = 0.2, **answers: float) -> StateVerdict:
    """The verdict on a model with a memory, by the share of later answers that follow each way of writing."""
    right = Estimate(1.0, 1.0, 1.0, 99)
    lengths = Lengths((AtLength(8, 1, right, right, right, guessing, ()),))
    ways = {how: Estimate(*[answers[how]] * 3, 99) for how in WRITTEN}
    cells = tuple(
        Interchanged(place, how, Estimate(0.9, 0.9, 0.9, 99), one, None, ())
        for place in ("stream", "inner", "both", "state")
        for how, one in ways.items()
    )
    return judge_tracking(lengths, Interchanges(3, 4, 16, 1.0, cells))


def test_a_name_is_put_in_plain_words_where_its_reason_does_not():
    carried, elsewhere = judged(shift=0.9, moved=0.9, swap=0.9), judged(shift=0.9, moved=0.0, swap=0.9)
    assert (carried.name, meaning_of(carried)) == ("carried", "")
    assert (elsewhere.name, meaning_of(elsewhere)) == ("length-specific", "")
    met = replace(carried, reason="what is held late is what was held early (0.77), if in no one code")
    assert meaning_of(met) == MEANINGS["carried"]
    recomputed = replace(carried, name="recomputed", reason="what is written changes the answer there, and 0.14 of ...")
    assert meaning_of(recomputed) == MEANINGS["recomputed"]
    assert meaning_of(judged(shift=0.6, moved=0.6, swap=0.6)) == "", "what has no name means nothing"


def test_what_a_verdict_rests_on_is_what_is_marked():
    """Whoever judges and whoever shows mean the same tests."""
    verdict = judged(shift=0.9, moved=0.9, swap=0.9)
    found = Tracked(verdict, None, None, None, interchanges("both"), None, StateRules())
    assert set(verdict.rests_on) <= decided(found) != frozenset()
    [*_, later] = written_rows(found)
    assert [cell.decided for cell in later.cells] == [True, True, False]


def test_what_a_memory_was_asked_stands_in_words():
    rows = memory_rows(tracked(MET_BEFORE, **{SPANNED: 0.8, BY_MEMORY["shift"]: 0.7}))
    found = [(row.name, row.cells[0].value, row.cells[0].share, row.cells[0].decided) for row in rows]
    assert found == [
        ("follows shift, written into the memory alone", 0.7, "of answers", False),
        ("stays right with what was held earlier", 0.6, "beyond guessing", True),
        ("along learned directions: in the middle", 0.5, "beyond guessing", False),
        ("along learned directions: late", 0.4, "beyond guessing", False),
        ("along learned directions: as held earlier", 0.3, "beyond guessing", False),
        ("along all directions among which they are learned", 0.8, "of answers", False),
        ("a probe reads the memory", 0.2, "beyond chance", False),
    ]
    assert unasked(rows) == ""


@pytest.mark.parametrize(
    ("aligned", "why"),
    [
        (None, "stage align was not run"),
        (alignments("both"), "not learned in memory alone (older align)"),
        (alignments("both", "state"), "cannot be told"),
    ],
)
def test_a_dash_says_why(aligned, why):
    rows = memory_rows(tracked(aligned=aligned, **NOT_ASKED))
    assert [row.cells[0].why for row in rows[1:4]] == [why] * 3
    assert unasked(rows) == f"no state is met both early and late or {why} or stage erase was not run"


def test_everything_within_the_axes_is_there_without_directions_that_were_learned():
    older = tracked(aligned=alignments("both"), **{SPANNED: None})
    [why] = [row.cells[0].why for row in memory_rows(older) if row.name.startswith("along all")]
    assert why == "cannot be told"


@pytest.mark.parametrize(
    ("unwritten", "why"),
    [(None, "no memory"), ((), "no memory"), (("blocks.0.mixer",), "could not be written")],
)
def test_a_memory_that_could_not_be_written_is_not_called_none(unwritten, why):
    found = tracked(memory=False, unwritten=unwritten, **NOT_ASKED)
    assert unasked(memory_rows(found)) == why


@pytest.mark.parametrize(("memory", "why"), [(True, "no answer would be another"), (False, "no such place")])
def test_a_place_that_is_not_there_says_so(memory, why):
    rows = written_rows(tracked(memory=memory, **{"now, inner shift": None}))
    [inner] = [row for row in rows if row.name.startswith("written")]
    assert inner.cells[0].why == why


def test_later_answers_are_those_of_the_place_that_verdicts_look_at_first():
    assert [tracked(memory=memory).rests for memory in (True, False)] == ["both", "stream"]
    assert written_rows(tracked())[-1].about == "stream and states"
    assert written_rows(tracked(memory=False))[-1].about == "residual stream"


def test_to_follow_needs_an_interval_too():
    cells = written_rows(tracked(**{"later, shift": 0.76, "later, moved": 0.74}))[-1].cells
    assert [cell.follows for cell in cells] == [True, False, False]
    strict = replace(tracked(**{"later, shift": 0.76}), rules=StateRules(fails=0.72))
    assert not written_rows(strict)[-1].cells[0].follows, "0.71 is the lower end"


def test_only_what_is_about_answers_follows():
    high = {READ: 1.0, MET_BEFORE: 1.0, "erased, state": 1.0}
    found = tracked(**high, of=erasures(erased("blocks.0.resid_pre")))
    [row] = [row for row in memory_rows(found) + erased_rows(found) if any(cell.follows for cell in row.cells)]
    assert row.name == "stays right with what was held earlier"


def test_what_is_left_has_the_scale_of_the_chart():
    rows = erased_rows(tracked(of=erasures(erased("blocks.0.resid_pre"))))
    assert [[cell.value for cell in row.cells] for row in rows] == [[0.1, 0.4], [0.0, 0.5]]


def test_an_erasure_that_says_nothing_says_why():
    quiet = {
        "": {},
        "nothing could be read there before": {"before": 0.5},
        "a fresh probe still reads it": {"residual": 0.8},
        "a probe of other documents still reads it": {"unseen": 0.8},
        "no probe of other documents was kept": {"unseen": None},
    }
    for why, changes in quiet.items():
        one = erased("blocks.1.resid_pre", **changes)
        found = erasures(one)
        assert silence(found, one) == why
        assert found.speaks(one) == (why == "")


def test_a_table_of_erasures_says_why_there_is_no_number():
    sites = ("blocks.0.resid_pre", "blocks.1.resid_pre", "blocks.1.resid_post")
    each = [erased(site, unseen=0.9) for site in sites]
    nothing = dict.fromkeys(name for name in FOUND if name.startswith(("erased", "left")))
    [lost, _] = erased_rows(tracked(of=erasures(*each), **nothing))
    assert [cell.why for cell in lost.cells] == ["a probe of other documents still reads it", "there are none"]
    both = [*each, erased("blocks.0.mixer.state", "class means, every step", residual=0.9)]
    [lost, _] = erased_rows(tracked(of=erasures(*both), **nothing))
    assert lost.cells[1].why == "a fresh probe still reads it"


def test_a_reason_says_of_which_answers_an_accuracy_is():
    said = "accuracy 0.66 at the training length, guessing gives 0.17"
    assert reason_of(StateVerdict("not learned", said, ())).startswith("accuracy over all answers 0.66 at")
    said = "accuracy at the training length was not measured"
    assert reason_of(StateVerdict("undetermined", said, ())) == said


def test_questions_that_could_not_be_asked_are_not_counted():
    model = SimpleNamespace(verdicts=(), tracked=tracked(**dict.fromkeys(LEARNED)), seeds=1)
    assert f"1 verdict on states, by {len(FOUND) - 3} questions each." in how_sure([model])


@pytest.fixture
def told(folder):
    """A run with a verdict that rests on what was held earlier."""
    root = folder("tracks")
    tests = tuple(StateTest(name, value, None, None) for name, value in FOUND.items() if not name.startswith("erased"))
    reason = "what is held late is what was held early (0.60), if in no one code"
    verdict = StateVerdict("carried", reason, tests, ("later, swap", MET_BEFORE, READ))
    rewrite(find_stage(find_run(root, "gru"), "track"), verdict)
    return root


def test_a_card_shows_what_a_verdict_rests_on(told):
    text = page_of(told).visible()
    for said in (
        "stays right with what was held earlier late in a document its memory is replaced by",
        "along learned directions: late the same part, exchanged late in documents",
        "a probe reads the memory",
    ):
        assert said in text, "in print and on touch nothing is pointed at"
    assert "(bold: follows; ◆ the verdict rests on it)" in text
    assert re.search(r"holds early ◆ 0\.60 beyond guessing", text)
    assert len(re.findall("◆ [01]", text)) == 3
    assert "by 14 questions each" in text


@pytest.mark.parametrize(
    ("rests_on", "marks"), [((), 0), (("left, stream",), 0), (("a test of tomorrow",), 0), (("accuracy",), 1)]
)
def test_a_card_explains_marks_where_it_has_some(rests_on, marks, told):
    stage = find_stage(find_run(told, "gru"), "track")
    rewrite(stage, replace(stage.read(StateVerdict), rests_on=rests_on))
    text = page_of(told).visible()
    assert ("(bold: follows)" in text) == (marks == 0)
    assert text.count("◆") == 2 * marks, "the mark, and what it means"
    assert len(re.findall(r"all answers ◆ \d", text)) == marks


def test_a_card_says_in_plain_words_what_its_reason_does_not(told):
    def card(reason: str) -> str:
        stage = find_stage(find_run(told, "gru"), "track")
        rewrite(stage, replace(stage.read(StateVerdict), reason=reason))
        return page_of(told).visible().partition("single seed ")[2]

    assert card("what is held late is what was held early").startswith(f"carried {MEANINGS['carried']} What is held")
    assert card("later answers go on from the state").startswith("carried Later answers go on from the state.")


def test_two_accuracies_are_told_apart(told):
    stage = find_stage(find_run(told, "gru"), "lengths")
    [trained, longer] = stage.read(Lengths).lengths
    rewrite(stage, Lengths((replace(trained, accuracy=Estimate(0.75, 0.7, 0.8, 16), guessing_all=0.625), longer)))
    page = page_of(told)
    [group] = gather(load_runs(told))
    [model] = group.models
    trained = model.tracked.lengths.at(1)
    assert trained.accuracy.value != trained.last.value
    text = page.visible()
    assert "all answers 75.0% [70.0, 80.0] guessing 62.5%" in text
    said = rf"last answer {100 * trained.last.value:.1f}% \[[\d., ]+\] guessing {100 * trained.guessing:.1f}%"
    assert re.search(said, text)
    headers = re.search(r"model verdict all answers last answer parameters", text)
    assert headers
    [row] = page.table("summary.csv")
    assert (float(row["accuracy"]), float(row["last_answer"])) == (trained.accuracy.value, trained.last.value)
    assert page.overview()["models"][0]["answers"] == "all answers"


def test_a_page_of_states_says_nothing_of_routes(told, folder):
    text = page_of(told).visible()
    for word in ("patching grid", "slot", "route", "meets", "robust", "published reading"):
        assert not re.search(rf"\b{word}\b", text), word
    for word in ("carried, in no one code", "carried, along learned directions", "undetermined", "held earlier"):
        assert word in text
    page_of(folder("attention"))
    both = page_of(told).visible()
    for word in ("slot", "robust", "undetermined (of a route)", "undetermined (of a state)", "carried, in no one code"):
        assert word in both


def test_a_page_says_which_group_was_run(told):
    group = gather(load_runs(told))[0]
    assert group.title == "parity"
    assert group.settings["length"] == 6
    of_many = replace(group, name="group", which="S3", models=())
    assert of_many.title == "group S3"
