"""State verdicts from numbers that are made up: what each rule rests on."""

from dataclasses import replace

import pytest

from mixerscope.analysis.state_rules import LEARNED, StateRules
from mixerscope.analysis.tracking import judge_tracking
from mixerscope.artifacts import AtLength, Earlier, Erased, Erasures, Estimate, Interchanged, Interchanges, Lengths
from mixerscope.artifacts.alignments import Aligned, Alignments

HOWS = ("shift", "moved", "swap")


def sure(value):
    return Estimate(value, value, value, 100)


def lengths(guessing=0.5):
    return Lengths((AtLength(16, 1, sure(1.0), sure(1.0), sure(1.0), guessing, ()),))


def exchanged(later, now=(1.0, 1.0, 1.0), inner=(1.0, 1.0, 1.0), met=None, memory=True, alone=None):
    """Shares for each way of writing, in memory alone the same as beside the stream."""
    cells = [Interchanged("stream", how, sure(a), sure(b), 0.0, ()) for how, a, b in zip(HOWS, now, later, strict=True)]
    cells += [Interchanged("inner", how, sure(a), sure(0.0), 0.0, ()) for how, a in zip(HOWS, inner, strict=True)]
    for place, shares in {"both": later, "state": alone or later}.items() if memory else ():
        cells += [Interchanged(place, how, sure(1.0), sure(b), 0.0, ()) for how, b in zip(HOWS, shares, strict=True)]
    return Interchanges(8, 11, 100, 1.0, tuple(cells), None if met is None else Earlier(4, 12, sure(met)), ())


def erased(*inside):
    """Memories: what a probe reads before and after, in other documents too, and what erasing costs."""
    rows = tuple(
        Erased(
            *(f"blocks.{i}.mixer.state", "class means, every step", 1, None, before, residual, (0.0,), (damage,)),
            unseen=residual,
        )
        for i, (before, residual, damage) in enumerate(inside)
    )
    return Erasures("answer", (16,), (1.0,), (0.5,), 0.5, rows, ())


def learned(later, moved, earlier, place="state", span=1.0):
    tests = (None if one is None else sure(one) for one in (later, moved, earlier))
    later, moved, earlier = tests
    whole = Aligned(place, "span", 9, None, sure(span), 0.0, 0.0)
    found = Aligned(place, "das", 1, None, later, 0.0, 0.0, moved, earlier)
    return Alignments(8, "answer", 10, 10, 1.0, (), (found, whole))


def name(*args, **kwargs):
    return judge_tracking(*args, **kwargs).name


@pytest.mark.parametrize(
    ("met", "expected"), [(None, "length-specific"), (0.5, "length-specific"), (1.0, "undetermined")]
)
def test_a_code_that_is_another_one_elsewhere_may_come_back(met, expected):
    assert name(lengths(), exchanged((1.0, 0.0, 1.0), met=met)) == expected


def test_what_is_met_again_must_be_what_is_used():
    held = exchanged((0.0, 0.0, 1.0), met=1.0)
    assert name(lengths(), held) == "undetermined"
    assert name(lengths(), held, erasures=erased((0.5, 0.5, 0.0))) == "carried", "in no code that a probe reads"
    assert name(lengths(), held, erasures=erased((0.5, 0.5, 1.0), (0.9, 0.5, 0.1))) == "undetermined"
    assert name(lengths(), held, erasures=erased((0.9, 0.5, 1.0))) == "carried", "what can be read is missed"


def test_an_answer_in_another_code_says_nothing_of_a_memory_that_nobody_looked_into():
    without, held = (exchanged((0.0, 0.0, 1.0), inner=(1.0, 0.0, 1.0), memory=memory) for memory in (False, True))
    assert name(lengths(), without) == "length-specific"
    found = judge_tracking(lengths(), held)
    assert (found.name, "stage align" in found.reason) == ("undetermined", True)
    assert name(lengths(), held, aligned=learned(0.5, 0.5, 0.5)) == "length-specific"


def test_answers_that_follow_directions_do_not_count_beyond_what_a_rule_guesses():
    """Where the last tokens tell most answers, those that differ are the ones they do not tell."""
    held = exchanged((0.0, 0.0, 1.0))
    assert name(lengths(0.88), held, aligned=learned(0.9, 0.9, 0.98)) == "carried"
    assert name(lengths(0.5), held, aligned=learned(0.55, 0.9, 0.98)) == "recomputed"
    assert name(lengths(0.88), held, aligned=learned(0.9, 0.9, 0.88)) == "recomputed", "right answers do"


def test_directions_that_may_hold_the_state_leave_it_open():
    held = exchanged((0.0, 0.0, 1.0))
    found = judge_tracking(lengths(), held, aligned=learned(0.9, 0.5, 0.95))
    assert (found.name, found.rests_on) == ("undetermined", LEARNED)
    assert found.reason.startswith("some directions may hold the state, though")
    assert name(lengths(), held, aligned=learned(0.9, 0.5, 0.5)) == "recomputed", "what is held is not met again"


def test_any_of_the_learned_directions_may_hold_the_state():
    """A code that is another one late: exchanging it there says nothing, of few directions and of many alike."""
    held, found = exchanged((0.0, 0.0, 1.0)), learned(1.0, 0.5, 1.0)
    [one, span] = found.cells
    few, none = (replace(one, later=sure(later), moved=sure(moved)) for later, moved in ((0.7, 0.5), (0.6, 0.6)))
    for cells in ((few, one), (one, few), (none, one), (one, none)):
        verdict = judge_tracking(lengths(), held, aligned=replace(found, cells=(*cells, span)))
        assert (verdict.name, verdict.rests_on) == ("undetermined", LEARNED)
    assert name(lengths(), held, aligned=replace(found, cells=(few, none, span))) == "recomputed"
    late = replace(one, moved=sure(0.9))
    wide = replace(one, moved=Estimate(0.95, 0.4, 1.0, 100))
    assert name(lengths(), held, aligned=replace(found, cells=(wide, late, span))) == "carried"


def test_what_is_met_again_in_part_leaves_it_open():
    held = exchanged((0.0, 0.0, 1.0), met=0.8)
    found = judge_tracking(lengths(), held, aligned=learned(0.5, 0.5, 0.5))
    assert (found.name, "0.60 of later answers stay right, neither" in found.reason) == ("undetermined", True)
    seldom = replace(held, earlier=Earlier(4, 12, sure(0.7)))
    assert name(lengths(), seldom, aligned=learned(0.5, 0.5, 0.5)) == "recomputed"


def test_directions_behind_which_nothing_can_be_told_are_none():
    assert name(lengths(), exchanged((0.0, 0.0, 1.0)), aligned=learned(None, None, None)) == "undetermined"


def test_directions_count_only_in_memory_alone_and_where_they_could_be_found():
    held = exchanged((0.0, 0.0, 1.0))
    assert name(lengths(), held, aligned=learned(1.0, 1.0, 1.0)) == "carried"
    beside = judge_tracking(lengths(), held, aligned=learned(1.0, 1.0, 1.0, place="both"))
    assert (beside.name, "stage align would tell" in beside.reason) == ("undetermined", True)
    assert name(lengths(), held, aligned=learned(0.0, 0.0, 0.0)) == "recomputed"
    for alone in (1.0, 0.6):
        between = exchanged((0.0, 0.0, 0.6), alone=(0.0, 0.0, alone))
        assert name(lengths(), between, aligned=learned(0.0, 0.0, 0.0, span=0.2)) == "undetermined"
    deaf = exchanged((0.0, 0.0, 0.0))
    assert name(lengths(), deaf, aligned=learned(0.0, 0.0, 0.0, span=0.2)) == "recomputed", "nothing in it is read"
    quiet = judge_tracking(lengths(), held, aligned=learned(0.0, 0.0, 0.0, span=0.2))
    assert quiet.name == "undetermined"
    assert "0.20 of later answers go on from its loudest directions" in quiet.reason


def test_what_later_answers_read_in_the_stream_is_not_held_by_a_memory():
    shift = exchanged((1.0, 1.0, 1.0), alone=(0.0, 0.0, 0.0))
    found = judge_tracking(lengths(), shift)
    assert (found.name, "(1.00), and 0.00 where in memory alone" in found.reason) == ("undetermined", True)
    assert found.rests_on == ("later, shift", "later, shift, memory alone")
    swap = exchanged((0.0, 0.0, 1.0), alone=(0.0, 0.0, 0.2), met=1.0)
    found = judge_tracking(lengths(), swap, erasures=erased((0.5, 0.5, 0.0)))
    assert (found.name, "(1.00), and 0.20 where in memory alone" in found.reason) == ("undetermined", True)


@pytest.mark.parametrize(
    ("moved", "expected"), [(0.05, "length-specific"), (0.3, "undetermined"), (0.6, "undetermined")]
)
def test_a_code_that_means_something_elsewhere_is_not_another_one(moved, expected):
    assert name(lengths(), exchanged((1.0, moved, 1.0))) == expected


def test_without_a_step_of_its_own_a_mixer_may_hold_anything():
    without = exchanged((0.0, 0.0, 0.0), memory=False)
    assert name(lengths(), without) == "recomputed"
    found = judge_tracking(lengths(), replace(without, unwritten=("blocks.0.mixer",)))
    assert (found.name, "blocks.0.mixer holds could not be written" in found.reason) == ("undetermined", True)
    unasked = judge_tracking(lengths(), replace(without, unwritten=None))
    assert (unasked.name, "stage interchange would tell" in unasked.reason) == ("undetermined", True)
    inner = exchanged((0.0, 0.0, 0.0), inner=(1.0, 0.0, 1.0), memory=False)
    assert name(lengths(), inner) == "length-specific"
    assert name(lengths(), replace(inner, unwritten=("blocks.0.mixer",))) == "undetermined"
    read = judge_tracking(lengths(), replace(exchanged((1.0, 1.0, 1.0), memory=False), unwritten=("blocks.1.mixer",)))
    assert "but what blocks.1.mixer holds could not be written" in read.reason
    # What was written and is followed by the code of its position says so, whatever else is held.
    timed = exchanged((1.0, 0.0, 1.0))
    assert name(lengths(), replace(timed, unwritten=("blocks.1.mixer",))) == "length-specific"


@pytest.mark.parametrize("how", ["shift", "swap"])
@pytest.mark.parametrize(
    ("shares", "told", "expected"),
    [
        ((1.0, 1.0, 1.0, 1.0), (), "carried"),
        ((1.0, 1.0, 1.0, 0.0), (), "undetermined"),
        ((1.0, 1.0, 0.0, 1.0), (), "carried"),
        ((1.0, 1.0, 0.0, 1.0), (99, 99, 99, 99), "undetermined"),
        ((1.0, 1.0, 0.0, 1.0), (99, 99, 31, 99), "carried"),  # together with the distance before
        ((1.0, 1.0, 1.0, 0.0), (99, 99, 99, 31), "carried"),
        ((1.0, 1.0, 0.0, 0.0), (99, 99, 20, 20), "undetermined"),
        ((1.0, 0.0, 1.0, 1.0), (9, 9, 9, 9), "carried"),
        ((1.0, 0.0, 1.0, 0.0), (9, 9, 9, 9), "undetermined"),
    ],
)
def test_answers_at_every_distance_follow_what_is_carried(how, shares, told, expected):
    """Of runs that did not keep how many answers a share is of, the last ones alone are asked."""
    held = exchanged((1.0, 1.0, 1.0))
    for place in ("both", "state"):
        where = place, how
        cells = [replace(c, by_distance=shares, told=told) if (c.place, c.how) == where else c for c in held.cells]
        found = judge_tracking(lengths(), replace(held, cells=tuple(cells)))
        assert found.name == expected, found.reason
        if expected == "undetermined":
            said = f"follow {how} in memory alone" if place == "state" else f"follow {how}"
            assert found.reason.endswith(said)
            assert f"later, {how}{', memory alone' if place == 'state' else ''}" in found.rests_on


def test_answers_at_every_distance_follow_learned_directions():
    held, found = exchanged((0.0, 0.0, 1.0)), learned(0.9, 0.9, 0.98)
    assert name(lengths(), held, aligned=found) == "carried"
    [one, span] = found.cells
    late = replace(one, by_distance=(1.0, 1.0, 1.0, 0.6), told=(99,) * 4)
    verdict = judge_tracking(lengths(), held, aligned=replace(found, cells=(late, span)))
    assert (verdict.name, verdict.rests_on) == ("undetermined", LEARNED)
    # Half of two answers follow by chance.
    assert verdict.reason.endswith("but 0.20 of answers 3 inputs later follow learned directions")


@pytest.mark.parametrize(("within", "expected"), [(0.02, "recomputed"), (0.1, "undetermined")])
def test_that_directions_hold_no_state_is_said_where_their_intervals_say_so(within, expected):
    """With 0.42 of later answers beyond chance, and what is held early met again."""
    found = learned(0.71, 0.9, 0.98)
    [one, span] = found.cells
    later = Estimate(one.later.value, one.later.value - within, one.later.value + within, one.later.n)
    found = replace(found, cells=(replace(one, later=later), span))
    assert name(lengths(), exchanged((0.0, 0.0, 1.0)), aligned=found) == expected


def test_a_way_of_writing_that_nothing_follows_at_any_distance_withdraws_nothing():
    held, found = exchanged((0.0, 0.0, 1.0)), learned(0.9, 0.9, 0.98)
    deaf = [replace(c, by_distance=(1.0, 0.1, 0.7, 0.2), told=(99,) * 4) if c.how == "shift" else c for c in held.cells]
    assert name(lengths(), replace(held, cells=tuple(deaf)), aligned=found) == "carried"


def test_accuracy_over_all_answers_is_held_against_guesses_of_all_answers():
    held = exchanged((1.0, 1.0, 1.0))
    [short] = lengths().lengths
    assert name(Lengths((replace(short, guessing_all=0.5),)), held) == "carried"
    assert name(Lengths((replace(short, guessing_all=0.96),)), held) == "undetermined"
    near = replace(short, accuracy=Estimate(0.95, 0.93, 0.97, 100))
    assert name(Lengths((replace(near, guessing_all=0.92),)), held) == "carried"
    assert name(Lengths((replace(near, guessing_all=0.94),)), held) == "not learned", "a guess may be as good"


def test_shares_rise_from_nothing_to_what_follows():
    for wrong in ({"nothing": 0.6}, {"fails": 0.8}, {"follows": 0.4}):
        with pytest.raises(ValueError, match="shares should rise in this order"):
            StateRules.model_validate(wrong)


def test_erasing_withdraws_a_name_only_where_no_memory_is_left():
    held = exchanged((1.0, 1.0, 1.0))
    assert name(lengths(), held, erasures=erased((1.0, 0.5, 0.0))) == "undetermined"
    assert name(lengths(), held, erasures=erased((1.0, 0.5, 0.0), (1.0, 0.9, 0.0))) == "carried"
    timed = exchanged((1.0, 0.0, 1.0))
    assert name(lengths(), timed, erasures=erased((1.0, 0.5, 0.0))) == "length-specific"


def test_where_everything_is_guessed_or_nothing_was_measured_there_is_no_name():
    held = exchanged((0.0, 0.0, 1.0), met=1.0)
    found = judge_tracking(lengths(1.0), held, aligned=learned(1.0, 1.0, 1.0))
    assert (found.name, found.reason) == ("undetermined", "guessing gives 1.00, so that being right says nothing")
    assert name(Lengths(()), held, aligned=learned(1.0, 1.0, 1.0)) == "undetermined"
