"""The questions of a verdict on a state, as a card shows them: what was found, what it rests on, why some were not."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from mixerscope.analysis.state_rules import BY_MEMORY, LEARNED, MET_BEFORE, READ, SPANNED
from mixerscope.analysis.tracking import WHOLE
from mixerscope.artifacts import Erasures
from mixerscope.artifacts.state_verdict import StateTest
from mixerscope.report.tracking import PLACES, WHEN, WRITTEN, Tracked, silence

ANSWERS, GUESSING, CHANCE = "of answers", "beyond guessing", "beyond chance"
"""What a number is a share of. Beyond guessing, or chance: 0 is no more than that, 1 is all."""


class Question(NamedTuple):
    name: str
    about: str
    share: str


OF_MEMORY: Mapping[str, Question] = {
    BY_MEMORY["shift"]: Question(
        "follows shift, written into the memory alone", "later answers; the stream stays as it was", ANSWERS
    ),
    BY_MEMORY["swap"]: Question(
        "follows swap, written into the memory alone", "later answers; the stream stays as it was", ANSWERS
    ),
    MET_BEFORE: Question(
        "stays right with what was held earlier",
        "late in a document its memory is replaced by the nearest of what any document holds early",
        GUESSING,
    ),
    LEARNED[0]: Question(
        "along learned directions: in the middle",
        "later answers follow the part of another document's memory along directions that were learned for it",
        GUESSING,
    ),
    LEARNED[1]: Question("along learned directions: late", "the same part, exchanged late in documents", GUESSING),
    LEARNED[2]: Question(
        "along learned directions: as held earlier",
        "later answers stay right where that part is replaced by the nearest of what is held early",
        GUESSING,
    ),
    SPANNED: Question(
        "along all directions among which they are learned",
        "later answers follow what another document's memory has within its loudest directions",
        ANSWERS,
    ),
    READ: Question("a probe reads the memory", "what it reads of the state, where that is most", CHANCE),
}
"""Questions of a memory, in words, what they mean, and what their numbers are shares of."""
ERASED = {"erased": "lost of what is known", "left": "still read by a probe of other documents"}


@dataclass(frozen=True)
class Answer:
    """What was found, as a cell of a table."""

    value: float | None
    low: float | None = None
    high: float | None = None
    follows: bool = False
    """Whether answers do, by the rules."""
    decided: bool = False
    """Whether the verdict rests on it."""
    why: str = ""
    """There is no value."""
    share: str = ""
    """What the value is a share of, where a table has several kinds."""


@dataclass(frozen=True)
class Row:
    name: str
    about: str
    cells: tuple[Answer, ...]


def decided(tracked: Tracked) -> frozenset[str]:
    """The questions with an answer that a verdict rests on; none where that was not kept."""
    rests_on = tracked.verdict.rests_on if tracked.verdict else ()
    return frozenset(name for name in rests_on if (test := tracked.asked.get(name)) and test.value is not None)


def marked(rows: Iterable[Row]) -> bool:
    """Whether the verdict rests on something in these rows: it may rest on what no table shows."""
    return any(cell.decided for row in rows for cell in row.cells)


def written_rows(tracked: Tracked) -> list[Row]:
    """Answers that follow another state, by which of them and by how it was written."""
    where = {"later, ": PLACES[tracked.rests]}
    return [
        Row(name, where.get(when, PLACES["stream"]), tuple(_followed(tracked, when, how) for how in WRITTEN))
        for when, name in WHEN.items()
    ]


def memory_rows(tracked: Tracked) -> list[Row]:
    """What was asked of a memory; empty where nothing of the kind stands in the verdict."""
    if not any(name in tracked.asked for name in OF_MEMORY):
        return []
    # Verdicts by older rules asked less, and none has a reading that could not be compared.
    return [
        Row(one.name, one.about, (_answer(tracked, test, _unasked(tracked, test), one.share),))
        for test, one in OF_MEMORY.items()
        if test in tracked.asked or test == READ
    ]


def unasked(rows: list[Row]) -> str:
    """Why there is none of these answers; empty where there is one."""
    cells = [cell for row in rows for cell in row.cells]
    return "" if any(cell.value is not None for cell in cells) else " or ".join(dict.fromkeys(c.why for c in cells))


def erased_rows(tracked: Tracked) -> list[Row]:
    """What erasing costs, and what is read afterwards from chance, 0, to all of it; the residual stream, then states.
    Empty where it was not asked, or where there is too little to lose."""
    found = tracked.erasures
    if found is None or not tracked.erasable or "erased, stream" not in tracked.asked:
        return []
    return [
        Row(name, "", tuple(_erased(tracked, found, what, place) for place in ("stream", "state")))
        for what, name in ERASED.items()
    ]


def _follows(tracked: Tracked, test: StateTest) -> bool:
    """As the rules have it, of what is about answers."""
    if test.value is None or not test.name.startswith(("now, ", "later, ")):
        return False
    return tracked.rules.says_follows(test.value, test.low)


def _answer(tracked: Tracked, name: str, why: str, share: str = "") -> Answer:
    test = tracked.asked.get(name)
    if test is None or test.value is None:
        return Answer(None, why=why)
    follows, rests = _follows(tracked, test), name in decided(tracked)
    return Answer(test.value, test.low, test.high, follows, rests, share=share)


def _followed(tracked: Tracked, when: str, how: str) -> Answer:
    if tracked.interchanges is None or when + how not in tracked.asked:
        return _answer(tracked, when + how, "not asked")
    place = {"later, ": tracked.rests, "now, inner ": "inner"}.get(when, "stream")
    there = tracked.interchanges.cell(place, how) is not None
    return _answer(tracked, when + how, "no answer would be another" if there else "no such place")


def _unasked(tracked: Tracked, name: str) -> str:
    """Why a question of a memory has no answer."""
    if not tracked.memory:
        return "could not be written" if tracked.unwritten else "no memory"
    if name == MET_BEFORE:
        return "no state is met both early and late"
    if name in BY_MEMORY.values():
        return "no answer would be another"
    if name == READ:
        return "too little is known" if tracked.erasures else "stage erase was not run"
    if tracked.aligned is None:
        return "stage align was not run"
    if name in LEARNED and not tracked.aligned.learned():
        return "not learned in memory alone (older align)"
    return "cannot be told"


def _erased(tracked: Tracked, found: Erasures, what: str, place: str) -> Answer:
    answer = _answer(tracked, f"{what}, {place}", _silent(found, place))
    if what == "erased" or answer.value is None:
        return answer
    return Answer(found.share_read(answer.value), decided=answer.decided)


def _silent(found: Erasures, place: str) -> str:
    """Why no erasure of a kind of place says anything of the state."""
    there, nowhere = {
        "stream": (found.between_blocks(), "there is nothing between blocks"),
        "state": (found.inside(), "there are none"),
    }[place]
    known = [one for one in there if one.method in WHOLE]
    reasons = dict.fromkeys(silence(found, one) or "there is too little to lose" for one in known)
    return ", or ".join(reasons) or nowhere
