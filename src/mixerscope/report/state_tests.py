"""The questions of a verdict on a state, as a card shows them: what was found, what it rests on, why some were not."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mixerscope.analysis.tracking import BY_MEMORY, LEARNED, MET_BEFORE, READ, SPANNED, WHOLE
from mixerscope.artifacts import Erasures
from mixerscope.artifacts.state_verdict import StateTest
from mixerscope.report.tracking import PLACES, WHEN, WRITTEN, Tracked, silence

OF_MEMORY: Mapping[str, tuple[str, str]] = {
    BY_MEMORY["shift"]: ("follows shift, written into the memory alone", "later answers; the stream stays as it was"),
    BY_MEMORY["swap"]: ("follows swap, written into the memory alone", "later answers; the stream stays as it was"),
    MET_BEFORE: (
        "stays right with what was held earlier",
        "late in a document its memory is replaced by the nearest of what any document holds early; beyond guessing",
    ),
    LEARNED[0]: (
        "along learned directions: in the middle",
        "answers that follow the part of another document's memory along directions that were learned for it",
    ),
    LEARNED[1]: ("along learned directions: late", "the same part, exchanged late in documents"),
    LEARNED[2]: (
        "along learned directions: as held earlier",
        "right answers where that part is replaced by the nearest of what is held early; beyond guessing",
    ),
    SPANNED: (
        "along all directions among which they are learned",
        "answers that follow what another document's memory has within its loudest directions",
    ),
    READ: ("a probe reads the memory", "what is read of the state where most is: 0 is chance, 1 is all of it"),
}
"""Questions of a memory, in words, and what they mean."""
ERASED = {"erased": "lost of what is known", "left": "still read by a probe of other documents"}
LATER = ("later, shift", "later, moved")
HERE = ("now, inner shift", "now, inner moved")
SWAPPED = ("later, swap", BY_MEMORY["swap"], MET_BEFORE)
ANOTHER_CODE = "the state has another code at other positions"
RESTS_ON: Mapping[str, tuple[str, ...]] = {
    "guessing gives": ("accuracy",),
    "in memory alone": ("later, shift", BY_MEMORY["shift"]),
    "later answers go on from what is exchanged": LEARNED,
    "some directions may hold the state": LEARNED,
    "where nobody looked": (SPANNED, BY_MEMORY["swap"]),
    "the code is another one elsewhere": (*LATER, MET_BEFORE),
    "that can be read": (*SWAPPED, READ),
    "what is held late": SWAPPED,
    "with what was held earlier": SWAPPED,
    "a memory may hold the state in another code": ("now, shift", "later, shift"),
    "what is written changes the answer there": ("now, shift", "later, shift", *LEARNED),
    "of answers follow at once": ("now, shift", "later, shift"),
    "later answers": LATER,
    "how it is held elsewhere cannot be told": LATER,
}
"""What a reason says, and the questions that decided then; the first that fits counts."""
COST = re.compile(r"\berasing .*\bcosts\b")
"""Where a reason says so, the erasure that costs most decided too."""


@dataclass(frozen=True)
class Answer:
    """What was found, as a cell of a table."""

    value: float | None
    low: float | None = None
    high: float | None = None
    enough: bool = False
    """Whether a name can be had by it."""
    decided: bool = False
    """Whether the verdict rests on it."""
    why: str = ""
    """There is no value."""


@dataclass(frozen=True)
class Row:
    name: str
    about: str
    cells: tuple[Answer, ...]


def decided(tracked: Tracked) -> frozenset[str]:
    """The questions that a verdict rests on, where its reason tells."""
    reason = tracked.verdict.reason if tracked.verdict else ""
    names = next((names for said, names in RESTS_ON.items() if said in reason), ())
    if ANOTHER_CODE in reason:
        names = LATER if _enough(tracked, "later, shift") else HERE
    erased = [test for test in tracked.asked.values() if test.name.startswith("erased, ") and test.value is not None]
    if COST.search(reason) and erased:
        names = (*names, max(erased, key=lambda test: test.value or 0.0).name)
    return frozenset(name for name in names if _value(tracked, name) is not None)


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
        Row(name, about, (_answer(tracked, test, _unasked(tracked, test), bold=test != READ),))
        for test, (name, about) in OF_MEMORY.items()
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


def beyond(chance: float, value: float) -> float:
    """Of what a probe can read, the share that it does: 0 at chance."""
    return (value - chance) / (1 - chance) if chance < 1 else 0.0


def _value(tracked: Tracked, name: str) -> float | None:
    test = tracked.asked.get(name)
    return test.value if test else None


def _enough(tracked: Tracked, name: str) -> bool:
    test, rules = tracked.asked.get(name), tracked.rules
    if test is None or test.value is None:
        return False
    return test.value >= rules.follows and (test.low is None or test.low > rules.fails)


def _answer(tracked: Tracked, name: str, why: str, bold: bool = True) -> Answer:
    test: StateTest | None = tracked.asked.get(name)
    if test is None or test.value is None:
        return Answer(None, why=why)
    return Answer(test.value, test.low, test.high, bold and _enough(tracked, name), name in decided(tracked))


def _followed(tracked: Tracked, when: str, how: str) -> Answer:
    if tracked.interchanges is None or when + how not in tracked.asked:
        return _answer(tracked, when + how, "not asked")
    place = {"later, ": tracked.rests, "now, inner ": "inner"}.get(when, "stream")
    there = tracked.interchanges.cell(place, how) is not None
    return _answer(tracked, when + how, "no answer would be another" if there else "no such place")


def _unasked(tracked: Tracked, name: str) -> str:
    """Why a question of a memory has no answer."""
    if not tracked.memory:
        return "no memory"
    if name == MET_BEFORE:
        return "no state is met both early and late"
    if name in BY_MEMORY.values():
        return "no answer would be another"
    if name == READ:
        return "too little is known" if tracked.erasures else "stage erase was not run"
    return "cannot be told" if tracked.aligned else "stage align was not run"


def _erased(tracked: Tracked, found: Erasures, what: str, place: str) -> Answer:
    answer = _answer(tracked, f"{what}, {place}", _silent(found, place == "state"), bold=False)
    if what == "erased" or answer.value is None:
        return answer
    return Answer(beyond(found.chance, answer.value), decided=answer.decided)


def _silent(found: Erasures, inside: bool) -> str:
    """Why no erasure of a kind of place says anything of the state. In the stream those between blocks count alone."""
    stream = list(dict.fromkeys(one.site for one in found.erased if not one.site.endswith(".state")))
    sites = {one.site for one in found.erased if one.site.endswith(".state")} if inside else set(stream[1:-1])
    known = [one for one in found.erased if one.site in sites and one.method in WHOLE]
    if not known:
        return "there are none" if inside else "there is nothing between blocks"
    return ", or ".join(dict.fromkeys(silence(found, one) or "there is too little to lose" for one in known))
