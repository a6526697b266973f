"""How a state is tracked, judged from stored results: no model is needed, and thresholds can be changed."""

from pydantic import Field, model_validator

from mixerscope.artifacts import Erased, Erasures, Estimate, Interchanges, Lengths
from mixerscope.artifacts.alignments import ALONE, Alignments
from mixerscope.artifacts.erasures import LEAST_READ
from mixerscope.artifacts.state_verdict import StateName, StateTest, StateVerdict
from mixerscope.showing import counted
from mixerscope.spec import Spec

IN_STREAM, IN_STATE = "stream", "state"
BY_MEMORY = {how: f"later, {how}, memory alone" for how in ("shift", "swap")}
"""What is written into recurrent states, and not into the stream."""
SPANNED = "later, span"
"""Everything exchanged that lies within the axes among which directions are learned."""
LEAST_TOLD = 32
"""Answers at one distance, from which on a share of them says that something else answers there."""
MET_BEFORE = "later, as held earlier"
"""Right answers, beyond guessing, from the nearest of what is held early in a document."""
LEARNED = ("later, learned", "later, learned, moved", "later, learned, as held earlier")
"""Along directions that were learned, in models with recurrent states: exchanged in the middle, exchanged late, and
beside what is held early."""
WHOLE = ("leace", "iterated projection", "class means, every step")
"""Erasures that are to take all of a label; others are controls of theirs."""
READ = "read, state"
"""Of the state in a memory, by a probe, from chance to all of it, where most is read."""
MOST_BY_CHANCE = 0.5
"""Of lost answers that follow: there are at least two to choose from, however much a rule may guess."""


class StateRules(Spec):
    """Thresholds of a state verdict."""

    solves: float = Field(default=0.95, gt=0, le=1)
    """Accuracy at the training length, whose interval must reach above it."""
    follows: float = Field(default=0.75, gt=0, le=1)
    """Share of answers that must be those of the state that was written."""
    fails: float = Field(default=0.5, ge=0, lt=1)
    """Share below which they are not."""
    nothing: float = Field(default=0.1, ge=0, lt=1)
    """Share below which the code of one position means nothing at another one. Between this and `follows` it means
    something there: the means of a memory that grows move, too."""
    costs: float = Field(default=0.05, ge=0, lt=1)
    """Share of what a model knows beyond guessing that erasing the state must cost somewhere, where a fresh probe
    confirms that it was erased: a state that nobody misses is not held."""
    reads: float = Field(default=0.25, gt=0, lt=1)
    """Share of the way from chance to everything that a probe must read in a memory for the state to have a code there.
    Where later answers do not follow that code, nor miss it, memories may be near by it and differ in what is used."""

    @model_validator(mode="after")
    def _ordered(self) -> "StateRules":
        if not self.nothing <= self.fails < self.follows:
            given = f"nothing = {self.nothing:g}, fails = {self.fails:g}, follows = {self.follows:g}"
            raise ValueError(f"shares should rise in this order: {given}")
        return self


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
    best = _best_learned(aligned, guessing) if memory else None
    for name, one in zip(LEARNED, best or (None, None, None), strict=True):
        asked[name] = one
    span = None if aligned is None or not memory else aligned.cell(ALONE, "span")
    asked[SPANNED] = None if span is None else span.later
    tests = tuple(
        StateTest(name, *(None, None, None) if one is None else (one.value, one.low, one.high))
        for name, one in asked.items()
    )
    code = None if erasures is None else _code_inside(erasures)
    name, reason = _named(asked, guessing, rules, memory, code)
    if found.unwritten and name in ("recomputed", "length-specific"):
        without = f"what {found.unwritten[0]} holds could not be written, as it has no step of its own"
        name, reason = "undetermined", f"{reason}; but {without}"
    ends = _not_everywhere(found, place, rules) if name == "carried" else None
    if ends is not None:
        name, reason = "undetermined", f"{reason}, but {ends[1]:.2f} of those {counted(ends[0], 'input')} later"
    tests += () if code is None else (StateTest(READ, code[0], None, None),)
    erased = (
        {} if erasures is None else {place: _erased(erasures, place == IN_STATE) for place in (IN_STREAM, IN_STATE)}
    )
    for place, one in erased.items():
        damage, left = (None, None) if one is None else (one.damage[0], one.unseen)
        tests += (StateTest(f"erased, {place}", damage, None, None), StateTest(f"left, {place}", left, None, None))
    costs = [one.damage[0] for one in erased.values() if one is not None and one.damage[0] is not None]
    # Of other names erasing says nothing: what has another code at each position is not taken by one map for all.
    if name == "carried" and costs:
        # What could be read in some memory and was not erased may be what is missed.
        whole = erasures is not None and _all_erased_inside(erasures)
        if max(costs) < rules.costs and whole:
            return StateVerdict("undetermined", f"{reason}, but erasing it costs {max(costs):.2f}", tests)
        what = "it" if whole or max(costs) >= rules.costs else "what of it could be erased"
        reason = f"{reason}; erasing {what} costs {max(costs):.2f} of what is known"
    return StateVerdict(name, reason, tests)


def _not_everywhere(found: Interchanges, place: str, rules: StateRules) -> tuple[int, float] | None:
    """How much later it is, and the share of answers that follow what is written there, where that is one that fails
    though at other distances they follow: something else answers there. Only of the last ones where it was not kept of
    how many answers a share is. None if there is no such place."""
    for how in ("shift", "swap"):
        cell = found.cell(place, how)
        shares = [] if cell is None else list(enumerate(cell.by_distance))[1:]
        known = [(at, value) for at, value in shares if value is not None]
        if cell is None or not known or max(value for _, value in known) < rules.follows:
            continue
        asked = [one for one in known if cell.told[one[0]] >= LEAST_TOLD] if cell.told else known[-1:]
        at, least = min(asked, key=lambda one: one[1], default=(0, 1.0))
        if least < rules.fails:
            return at, least
    return None


def _best_learned(aligned: Alignments | None, guessing: float) -> list[Estimate | None] | None:
    """Of the subspaces that were learned, the one whose weakest test is strongest: answers behind an exchange in the
    middle, behind one late in documents, and behind the nearest of what is held early, all beyond guessing: an answer
    that is lost may follow by chance."""
    chance = min(guessing, MOST_BY_CHANCE)
    rows = [
        [
            None if test is None else _beyond(test, known)
            for test, known in ((one.later, chance), (one.moved, chance), (one.earlier, guessing))
        ]
        for one in (aligned.learned() if aligned is not None else ())
    ]
    told = [row for row in rows if row[0] is not None]
    return max(told, key=lambda row: min(one.value for one in row if one is not None), default=None)


def _beyond(right: Estimate, guessing: float) -> Estimate | None:
    """The share of right answers beyond guessing; None where nothing is beyond it."""
    if guessing >= 1:
        return None
    value, low, high = ((one - guessing) / (1 - guessing) for one in (right.value, right.low, right.high))
    return Estimate(value, low, high, right.n)


def _erased(erasures: Erasures, inside: bool) -> Erased | None:
    """The erasure that costs most, of those that took the label, as a fresh probe says: inside recurrences, or in the
    stream between blocks: before the first there is the token alone, and behind the last the head reads whatever is
    there."""
    boundaries = list(dict.fromkeys(one.site for one in erasures.erased if not _inside(one)))
    known = [
        one
        for one in erasures.erased
        if erasures.speaks(one)
        and one.damage[0] is not None
        and one.method in WHOLE
        and (_inside(one) if inside else one.site in boundaries[1:-1])
    ]
    return max(known, key=lambda one: one.damage[0] or 0.0, default=None)


def _code_inside(erasures: Erasures) -> tuple[float, float] | None:
    """Of the memory in which a probe reads most: how much that is, from 0, chance, to 1, and what erasing costs. None
    where there is no memory, nothing to be read, or too little is known for a cost."""
    known = [one for one in erasures.erased if _inside(one) and one.method in WHOLE]
    best = max(known, key=lambda one: one.before, default=None)
    if best is None or best.damage[0] is None or erasures.chance >= 1:
        return None
    return (best.before - erasures.chance) / (1 - erasures.chance), best.damage[0]


def _all_erased_inside(erasures: Erasures) -> bool:
    """Whether nothing is left in any memory in which the label could be read."""
    known = [one for one in erasures.erased if _inside(one) and one.method in WHOLE]
    return all(erasures.speaks(one) for one in known if one.before > erasures.chance + LEAST_READ)


def _inside(one: Erased) -> bool:
    return one.site.endswith(".state")


def _named(
    asked: dict[str, Estimate | None],
    guessing: float,
    rules: StateRules,
    memory: bool,
    code: tuple[float, float] | None,
) -> tuple[StateName, str]:
    accuracy = asked["accuracy"]
    if accuracy is None:
        return "undetermined", "accuracy at the training length was not measured"
    if guessing >= rules.solves:
        return "undetermined", f"guessing gives {guessing:.2f}, so that being right says nothing"
    if accuracy.high < rules.solves or accuracy.low <= guessing:
        return "not learned", f"accuracy {accuracy.value:.2f} at the training length, guessing gives {guessing:.2f}"

    def share(name: str) -> str:
        one = asked[name]
        return "nothing" if one is None else f"{one.value:.2f}"

    def follows(name: str) -> bool:
        one = asked[name]
        return one is not None and one.value >= rules.follows and one.low > rules.fails

    def fails(name: str) -> bool:
        one = asked[name]
        return one is not None and one.value < rules.fails and one.high < rules.follows

    def none(name: str) -> bool:
        """Whether the code of one position means nothing at another one."""
        one = asked[name]
        return fails(name) and one is not None and one.value < rules.nothing

    if follows("later, shift"):
        if follows("later, moved") and not memory:
            # One position may be read by all later ones; that it is so everywhere, nobody looked.
            return "undetermined", f"later answers read what is written ({share('later, shift')}), but nothing is held"
        alone = BY_MEMORY["shift"]
        if asked[alone] is not None and not follows(alone):
            by = f"in stream and memory ({share('later, shift')}), and {share(alone)} of them in memory alone"
            return "undetermined", f"later answers read what is written {by}"
        if follows("later, moved"):
            return "carried", f"later answers go on from the state that is written ({share('later, shift')})"
        if fails("later, moved") and not fails(MET_BEFORE) and asked[MET_BEFORE] is not None:
            # A code that turns, and comes back, may go on for ever.
            return "undetermined", f"the code is another one elsewhere, and is met again ({share(MET_BEFORE)})"
        if none("later, moved"):
            return "length-specific", f"the state has another code at other positions ({share('later, moved')})"
        between = f"{share('later, moved')} by the code of another position"
        said = f"later answers follow what is written ({share('later, shift')}), and {between}"
        return "undetermined", f"{said}, neither {rules.follows:g} nor below {rules.nothing:g}"
    swapped = BY_MEMORY["swap"]
    if follows("later, swap") and follows(MET_BEFORE) and (asked[swapped] is None or follows(swapped)):
        if code is None:
            early = f"with what was held earlier {share(MET_BEFORE)} of later answers stay right"
            return "undetermined", f"{early}, if by what is used; stage erase would tell"
        if code[0] >= rules.reads and code[1] < rules.follows:
            unused = f"a code of the state that can be read ({code[0]:.2f}) and is hardly missed ({code[1]:.2f})"
            early = f"with what was held earlier {share(MET_BEFORE)} of later answers stay right"
            return "undetermined", f"{early}, but what is near there may be {unused}"
        return "carried", f"what is held late is what was held early ({share(MET_BEFORE)}), if in no one code"
    learned, moved, met = LEARNED
    if follows(learned) and follows(moved) and follows(met):
        return "carried", f"later answers go on from what is exchanged along some directions ({share(learned)})"
    if follows("later, swap") and not fails(MET_BEFORE) and asked[MET_BEFORE] is not None:
        early = f"with what was held earlier {share(MET_BEFORE)} of later answers stay right"
        return "undetermined", f"{early}, neither {rules.follows:g} nor below {rules.fails:g}"
    # Inputs or a count may be exchanged too, but then late ones are not early ones: no state is held.
    if asked[learned] is not None and not fails(learned) and not fails(met):
        where = "" if follows(learned) else f", with {share(learned)} of what comes later"
        return "undetermined", f"some directions may hold the state{where}, though not in one code of each state"
    if fails("later, shift") and follows("now, shift"):
        if memory and asked[learned] is None:
            return "undetermined", "a memory may hold the state in another code; stage align would tell"
        if follows(swapped) and asked[SPANNED] is not None and not follows(SPANNED):
            quiet = f"{share(SPANNED)} of later answers go on from its loudest directions, {share(swapped)} from all"
            return "undetermined", f"the memory may hold the state where nobody looked: {quiet}"
        # Not at the last boundary, where the head reads the same code at every position.
        if follows("now, inner shift") and none("now, inner moved"):
            return "length-specific", f"the state has another code at other positions ({share('now, inner moved')})"
        return "recomputed", f"what is written changes the answer there, and {share('later, shift')} of later ones"
    return "undetermined", f"{share('now, shift')} of answers follow at once, {share('later, shift')} later"
