"""The questions behind a verdict on a state: what decided, in words, and why some have no answer."""

import re
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest

from mixerscope.analysis.tracking import LEARNED, MET_BEFORE, READ, StateRules, judge_tracking
from mixerscope.artifacts import Erased, Erasures, Estimate, Interchanged, Interchanges, Lengths
from mixerscope.artifacts.interchanges import Earlier
from mixerscope.artifacts.lengths import AtLength
from mixerscope.artifacts.state_verdict import StateTest, StateVerdict
from mixerscope.report.data import gather
from mixerscope.report.findings import how_sure
from mixerscope.report.state_tests import (
    ANOTHER_CODE,
    beyond,
    decided,
    erased_rows,
    memory_rows,
    unasked,
    written_rows,
)
from mixerscope.report.tracking import Tracked, reason_of, silence
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


def tracked(
    reason: str = "", memory: bool = True, of: Erasures | None = None, aligned: bool = True, **changes
) -> Tracked:
    values = {name: changes.get(name, value) for name, value in FOUND.items()}
    tests = tuple(
        StateTest(name, value, *(None, None) if value is None else (value - 0.05, value))
        for name, value in values.items()
    )
    places = ("stream", "inner", "both") if memory else ("stream",)
    verdict = StateVerdict("carried", reason, tests)
    written = interchanges(*places)
    return Tracked(verdict, None, None, of, written, None, StateRules(), aligned=aligned)


@pytest.mark.parametrize(
    ("reason", "names"),
    [
        ("accuracy 0.66 at the training length, guessing gives 0.50", {"accuracy"}),
        ("later answers go on from the state that is written (0.91)", {"later, shift", "later, moved"}),
        ("later answers go on from what is exchanged along some directions (0.50)", set(LEARNED)),
        ("what is held late is what was held early (0.77), if in no one code", {"later, swap", MET_BEFORE}),
        (
            "what is held late was held early (0.77), but perhaps by a code of the state that can be read (0.30)",
            {"later, swap", MET_BEFORE, READ},
        ),
        ("what is written changes the answer there, and 0.14 of later ones", {"now, shift", "later, shift", *LEARNED}),
        (f"{ANOTHER_CODE} (0.80)", {"later, shift", "later, moved"}),
        (
            "later answers go on from the state that is written (0.91); erasing it costs 0.40 of what is known",
            {"later, shift", "later, moved", "erased, state"},
        ),
        ("a reason that nobody has written yet", set()),
    ],
)
def test_a_reason_tells_what_decided(reason, names):
    assert decided(tracked(reason)) == names


def test_what_decided_by_position_is_told_by_whether_later_answers_follow():
    found = tracked(f"{ANOTHER_CODE} (0.10)", **{"later, shift": 0.2})
    assert decided(found) == {"now, inner shift", "now, inner moved"}


def test_every_reason_tells_what_decided():
    """Of models with a memory and without one, whatever answers follow."""
    guessing, right = 0.2, Estimate(1.0, 1.0, 1.0, 99)
    lengths = Lengths((AtLength(8, 1, right, right, right, guessing, ()),))

    def share(value: float) -> Estimate:
        return Estimate(value, value, value, 99)

    places = ("stream", "inner", "both", "state")
    for shift, moved, swap, held in product((0.0, 0.3, 0.6, 0.9), repeat=4):
        ways = {"shift": share(shift), "moved": share(moved), "swap": share(swap)}
        for known in (places, places[:2]):
            cells = tuple(Interchanged(p, how, share(0.9), one, None, ()) for p in known for how, one in ways.items())
            earlier = Earlier(2, 6, share(held)) if len(known) > 2 else None
            written = Interchanges(3, 4, 16, 1.0, cells, earlier)
            verdict = judge_tracking(lengths, written)
            assert decided(Tracked(verdict, lengths, None, None, written, None, StateRules())), verdict.reason


def test_a_test_without_a_value_decided_nothing():
    along = "what is written changes the answer there, and 0.14 of later ones"
    assert decided(tracked(along, **dict.fromkeys(LEARNED))) == {"now, shift", "later, shift"}


def test_what_a_memory_was_asked_stands_in_words():
    rows = memory_rows(tracked("what is held late is what was held early (0.60)"))
    assert [(row.name, row.cells[0].value, row.cells[0].decided) for row in rows] == [
        ("stays right with what was held earlier", 0.6, True),
        ("along learned directions: in the middle", 0.5, False),
        ("along learned directions: late", 0.4, False),
        ("along learned directions: as held earlier", 0.3, False),
        ("a probe reads the memory", 0.2, False),
    ]
    assert unasked(rows) == ""


@pytest.mark.parametrize(
    ("memory", "aligned", "why"),
    [
        (False, False, "no memory"),
        (True, False, "stage align was not run"),
        (True, True, "cannot be told"),
    ],
)
def test_a_dash_says_why(memory, aligned, why):
    nothing = dict.fromkeys((MET_BEFORE, READ, *LEARNED))
    rows = memory_rows(tracked("", memory, aligned=aligned, **nothing))
    assert rows[1].cells[0].why == why
    assert unasked(rows) == (
        "no memory" if not memory else f"no state is met both early and late or {why} or stage erase was not run"
    )
    [inner] = [
        row for row in written_rows(tracked("", memory, **{"now, inner shift": None})) if row.name.startswith("written")
    ]
    assert inner.cells[0].why == ("no answer would be another" if memory else "no such place")


def test_later_answers_are_those_of_the_place_the_verdict_rests_on():
    assert [tracked("", memory).rests for memory in (True, False)] == ["both", "stream"]
    assert written_rows(tracked())[-1].about == "stream and states"
    assert written_rows(tracked("", memory=False))[-1].about == "residual stream"


def test_what_is_enough_for_a_name_needs_its_interval_too():
    cells = written_rows(tracked(**{"later, shift": 0.76, "later, moved": 0.74}))[-1].cells
    assert [cell.enough for cell in cells] == [True, False, False]


def test_what_is_left_has_the_scale_of_the_chart():
    rows = erased_rows(tracked(of=erasures(erased("blocks.0.resid_pre"))))
    assert [[cell.value for cell in row.cells] for row in rows] == [[0.1, 0.4], [0.0, 0.5]]
    assert (beyond(0.5, 0.5), beyond(0.5, 1.0), beyond(1.0, 1.0)) == (0.0, 1.0, 0.0)


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
    verdict = StateVerdict("carried", "what is held late is what was held early (0.60), if in no one code", tests)
    rewrite(find_stage(find_run(root, "gru"), "track"), verdict)
    return root


def test_a_card_shows_what_a_verdict_rests_on(told):
    text = page_of(told).visible()
    for said in (
        "stays right with what was held earlier",
        "along learned directions: late",
        "a probe reads the memory",
    ):
        assert said in text
    assert "◆ the verdict rests on it" in text
    assert re.search(r"held earlier ◆ 0\.60", text)
    assert "by 14 questions each" in text


def test_two_accuracies_are_told_apart(told):
    page = page_of(told)
    [group] = gather(load_runs(told))
    [model] = group.models
    trained = model.tracked.lengths.at(1)
    text = page.visible()
    assert re.search(rf"all answers {100 * trained.accuracy.value:.1f}%", text)
    assert re.search(rf"last answer {100 * trained.last.value:.1f}%", text)
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
