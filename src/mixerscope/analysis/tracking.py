"""How a state is tracked, judged from stored results: no model is needed, and thresholds can be changed."""

from collections.abc import Sequence
from dataclasses import dataclass

from mixerscope.analysis.state_rules import (
    BY_MEMORY,
    LEARNED,
    MET_BEFORE,
    READ,
    SPANNED,
    StateRules,
    Tests,
)
from mixerscope.artifacts import Erased, Erasures, Estimate, Interchanged, Interchanges, Lengths
from mixerscope.artifacts.alignments import ALONE, Aligned, Alignments
from mixerscope.artifacts.erasures import LEAST_READ
from mixerscope.artifacts.state_verdict import StateTest, StateVerdict
from mixerscope.showing import counted

IN_STREAM, IN_STATE = "stream", "state"
LEAST_TOLD = 32
"""Answers at one distance, from which on a share of them says that something else answers there; fewer count
together with those next to them."""
WHOLE = ("leace", "iterated projection", "class means, every step")
"""Erasures that are to take all of a label; others are controls of theirs."""
MOST_BY_CHANCE = 0.5
"""Of lost answers that follow: there are at least two to choose from, however much a rule may guess."""


def judge_tracking(
    lengths: Lengths,
    found: Interchanges,
    rules: StateRules | None = None,
    erasures: Erasures | None = None,
    aligned: Alignments | None = None,
) -> StateVerdict:
    """The verdict. Longer documents play no part in it: how a model does there is for the verdict to predict. Erasures,
    where there are any, give no name; they can only withdraw one."""
    rules = rules or StateRules()
    trained = lengths.at(1)
    memory = found.cell("both", "shift") is not None
    place = "both" if memory else "stream"
    asked: dict[str, Estimate | None] = {"accuracy": None if trained is None else trained.accuracy}
    for how in ("shift", "moved", "swap"):
        now, later = found.cell("stream", how), found.cell(place, how)
        inner = found.cell("inner", how)
        asked[f"now, {how}"] = None if now is None else now.now
        asked[f"now, inner {how}"] = None if inner is None else inner.now
        asked[f"later, {how}"] = None if later is None else later.later
    for how, name in BY_MEMORY.items():
        alone = found.cell("state", how)
        asked[name] = None if alone is None else alone.later
    guessing = trained.guessing if trained is not None else 1.0
    asked[MET_BEFORE] = None if found.earlier is None else _beyond(found.earlier.right, guessing)
    best = _best_learned(aligned, guessing, rules) if memory else None
    for name, one in zip(LEARNED, best.tests if best else (None, None, None), strict=True):
        asked[name] = one
    span = None if aligned is None or not memory else aligned.cell(ALONE, "span")
    asked[SPANNED] = None if span is None else span.later
    tests = tuple(
        StateTest(name, *(None, None, None) if one is None else (one.value, one.low, one.high))
        for name, one in asked.items()
    )
    code = None if erasures is None else _code_inside(erasures)
    known = guessing if trained is None or trained.guessing_all is None else trained.guessing_all
    name, reason, rests = Tests(rules, asked, known, memory, code, found.unwritten).named()
    ends = _not_everywhere(found, place, best, rules) if name == "carried" else None
    if ends is not None:
        name, reason, rests = "undetermined", f"{reason}, but {ends.said}", (*rests, ends.test)
    tests += () if code is None else (StateTest(READ, code[0], None, None),)
    erased = (
        {} if erasures is None else {place: _erased(erasures, place == IN_STATE) for place in (IN_STREAM, IN_STATE)}
    )
    costs: dict[str, float] = {}
    for place, one in erased.items():
        damage, left = (None, None) if one is None else (one.damage[0], one.unseen)
        cost = StateTest(f"erased, {place}", damage, None, None)
        tests += (cost, StateTest(f"left, {place}", left, None, None))
        costs |= {} if damage is None else {cost.name: damage}
    # Of other names erasing says nothing: what has another code at each position is not taken by one map for all.
    if name == "carried" and erasures is not None and costs:
        most = max(costs, key=lambda where: costs[where])
        # What could be read in some memory and was not erased may be what is missed.
        whole, missed = _all_erased_inside(erasures), costs[most] >= rules.costs
        what = "it" if whole or missed else "what of it could be erased"
        rests = (*rests, most)
        if not missed and whole:
            name, reason = "undetermined", f"{reason}, but erasing it costs {costs[most]:.2f}"
        else:
            reason = f"{reason}; erasing {what} costs {costs[most]:.2f} of what is known"
    return StateVerdict(name, reason, tests, tuple(dict.fromkeys(rests)))


@dataclass(frozen=True)
class _Learned:
    """A subspace, and its tests beyond guessing."""

    tests: tuple[Estimate | None, Estimate | None, Estimate | None]
    found: Aligned
    chance: float
    """Of lost answers that follow."""


@dataclass(frozen=True)
class _Elsewhere:
    """Where something else answers."""

    test: str
    said: str


def _not_everywhere(found: Interchanges, place: str, best: _Learned | None, rules: StateRules) -> _Elsewhere | None:
    """A distance at which answers do not follow what is written, though at others they do. None if there is none."""
    written = {
        f"later, {how}{'' if where == place else ', memory alone'}": (found.cell(where, how), how)
        for where in dict.fromkeys((place, "state"))
        for how in ("shift", "swap")
    }
    asked: dict[str, tuple[Interchanged | Aligned | None, str, float]] = {
        test: (cell, how, 0.0) for test, (cell, how) in written.items()
    }
    if best is not None:
        asked[LEARNED[0]] = best.found, "learned directions", best.chance
    for test, (cell, how, chance) in asked.items():
        shares = () if cell is None else cell.by_distance[1:]
        known = [value for value in shares if value is not None]
        if cell is None or not known or max(known) < rules.follows:
            continue
        at, follow = min(_pooled(shares, cell.told[1:]), key=lambda one: one[1])
        least = max(0.0, (follow - chance) / (1 - chance))
        if least < rules.fails:
            alone = " in memory alone" if test.endswith("memory alone") else ""
            return _Elsewhere(test, f"{least:.2f} of answers {counted(at, 'input')} later follow {how}{alone}")
    return None


def _pooled(shares: Sequence[float | None], told: Sequence[int]) -> list[tuple[int, float]]:
    """From the last distance on, how many inputs later and the share that follows: of enough answers each, with those
    of the distances before where there are fewer. Where it was not kept of how many answers shares are, the last one
    alone."""
    known = [(at, value) for at, value in enumerate(shares, 1) if value is not None]
    if not told:
        return known[-1:]
    pools: list[tuple[int, float]] = []
    count = follow = 0.0
    for at, value in reversed(known):
        count, follow = count + told[at - 1], follow + value * told[at - 1]
        if count >= LEAST_TOLD:
            pools.append((at, follow / count))
            count = follow = 0.0
    # What is left over are the nearest ones; all of them where they are few altogether.
    return pools or [(known[0][0], follow / count)]


def _best_learned(aligned: Alignments | None, guessing: float, rules: StateRules) -> _Learned | None:
    """Of the subspaces that were learned, the one whose weakest test is strongest: answers behind an exchange in the
    middle, behind one late in documents, and behind the nearest of what is held early, all beyond guessing: an answer
    that is lost may follow by chance. Where none follows in all three, the one that may most hold the state all the
    same, as the first and the last say: what is held may be another code late, and exchanging it there say nothing."""
    chance = min(guessing, MOST_BY_CHANCE)

    def beyond(test: Estimate | None, known: float) -> Estimate | None:
        return None if test is None else _beyond(test, known)

    rows = [
        _Learned((beyond(one.later, chance), beyond(one.moved, chance), beyond(one.earlier, guessing)), one, chance)
        for one in (aligned.learned() if aligned is not None else ())
    ]
    told = [row for row in rows if row.tests[0] is not None]
    whole = [
        row for row in told if all(one is not None and rules.says_follows(one.value, one.low) for one in row.tests)
    ]
    if whole:
        return max(whole, key=lambda row: min(one.value for one in row.tests if one is not None))
    return max(told, key=lambda row: min(one.high for one in row.tests[::2] if one is not None), default=None)


def _beyond(right: Estimate, guessing: float) -> Estimate | None:
    """The share of right answers beyond guessing; None where nothing is beyond it."""
    if guessing >= 1:
        return None
    value, low, high = ((one - guessing) / (1 - guessing) for one in (right.value, right.low, right.high))
    return Estimate(value, low, high, right.n)


def _erased(erasures: Erasures, inside: bool) -> Erased | None:
    """The erasure that costs most, of those that took the label, as a fresh probe says: inside recurrences, or in the
    stream between blocks."""
    rows = erasures.inside() if inside else erasures.between_blocks()
    known = [one for one in rows if erasures.speaks(one) and one.damage[0] is not None and one.method in WHOLE]
    return max(known, key=lambda one: one.damage[0] or 0.0, default=None)


def _code_inside(erasures: Erasures) -> tuple[float, float] | None:
    """Of the memory in which a probe reads most: how much that is, from 0, chance, to 1, and what erasing costs. None
    where there is no memory, nothing to be read, or too little is known for a cost."""
    known = [one for one in erasures.inside() if one.method in WHOLE]
    best = max(known, key=lambda one: one.before, default=None)
    read = None if best is None else erasures.share_read(best.before)
    if best is None or read is None or best.damage[0] is None:
        return None
    return read, best.damage[0]


def _all_erased_inside(erasures: Erasures) -> bool:
    """Whether nothing is left in any memory in which the label could be read."""
    known = [one for one in erasures.inside() if one.method in WHOLE]
    return all(erasures.speaks(one) for one in known if one.before > erasures.chance + LEAST_READ)
