"""How a tracked state is named: questions, the thresholds of their answers, and what follows from them."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import Field, model_validator

from mixerscope.artifacts import Estimate
from mixerscope.artifacts.state_verdict import StateName
from mixerscope.spec import Spec

BY_MEMORY = {how: f"later, {how}, memory alone" for how in ("shift", "swap")}
"""What is written into recurrent states, and not into the stream."""
SPANNED = "later, span"
"""Everything exchanged that lies within the axes among which directions are learned."""
SHIFTED, MOVED, SWAPPED = (f"later, {how}" for how in ("shift", "moved", "swap"))
NOW, INNER, INNER_MOVED = "now, shift", "now, inner shift", "now, inner moved"
MET_BEFORE = "later, as held earlier"
"""Right answers, beyond guessing, from the nearest of what is held early in a document."""
LEARNED = ("later, learned", "later, learned, moved", "later, learned, as held earlier")
"""Along directions that were learned, in models with recurrent states: exchanged in the middle, exchanged late, and
beside what is held early."""
READ = "read, state"
"""Of the state in a memory, by a probe, from chance to all of it, where most is read."""


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

    def says_follows(self, value: float, low: float | None) -> bool:
        """Whether answers follow, of which this is the share, and the lower end of its interval where it has one."""
        return value >= self.follows and (low is None or low > self.fails)

    @model_validator(mode="after")
    def _ordered(self) -> "StateRules":
        if not self.nothing <= self.fails < self.follows:
            given = f"nothing = {self.nothing:g}, fails = {self.fails:g}, follows = {self.follows:g}"
            raise ValueError(f"shares should rise in this order: {given}")
        return self


Named = tuple[StateName, str, tuple[str, ...]]
"""The name, why, and the tests that decided."""


@dataclass(frozen=True)
class Tests:
    """What was found, and the rules by which it has a name."""

    rules: StateRules
    asked: Mapping[str, Estimate | None]
    """By name; None where it could not be asked."""
    guessing: float
    """Of the accuracy."""
    memory: bool
    """Whether something is held that could be written."""
    code: tuple[float, float] | None
    """Of the memory in which a probe reads most: how much, and what erasing that costs."""
    unwritten: tuple[str, ...] | None
    """Mixers that may hold what could not be written; None where that is not known."""

    def named(self) -> Named:
        rules, accuracy = self.rules, self.asked["accuracy"]
        if accuracy is None:
            return "undetermined", "accuracy at the training length was not measured", ()
        if self.guessing >= rules.solves:
            said = f"guessing gives {self.guessing:.2f}, so that being right says nothing"
            return "undetermined", said, ()
        if accuracy.high < rules.solves or accuracy.low <= self.guessing:
            said = f"accuracy {accuracy.value:.2f} at the training length, guessing gives {self.guessing:.2f}"
            return "not learned", said, ("accuracy",)
        for branch in (self._by_one_code, self._by_what_was_held, self._by_directions, self._by_the_answer_there):
            found = branch()
            if found is not None:
                return found
        return (
            "undetermined",
            f"{self._share(NOW)} of answers follow at once, {self._share(SHIFTED)} later",
            (NOW, SHIFTED),
        )

    def _by_one_code(self) -> Named | None:
        """Where later answers follow the difference between the means of two states."""
        if not self._follows(SHIFTED):
            return None
        alone = BY_MEMORY["shift"]
        if not self.memory:
            if self._follows(MOVED):
                # One position may be read by all later ones; that it is so everywhere, nobody looked.
                read = f"later answers read what is written ({self._share(SHIFTED)})"
                return "undetermined", f"{read}, but {self._unheld()}", (SHIFTED, MOVED)
        elif self.asked[alone] is not None and not self._follows(alone):
            return None  # the stream is read there, beside a memory in which it may be otherwise
        rests = (SHIFTED, *((alone,) if self.asked[alone] is not None else ()), MOVED)
        if self._follows(MOVED):
            return "carried", f"later answers go on from the state that is written ({self._share(SHIFTED)})", rests
        if self._fails(MOVED) and self.asked[MET_BEFORE] is not None:
            rests = (*rests, MET_BEFORE)
            if not self._fails(MET_BEFORE):
                # A code that turns, and comes back, may go on for ever.
                met = f"the code is another one elsewhere, and is met again ({self._share(MET_BEFORE)})"
                return "undetermined", met, rests
        if self._means_nothing(MOVED):
            there = f"the state has another code at other positions ({self._share(MOVED)})"
            return "length-specific", there, rests
        between = f"{self._share(MOVED)} by the code of another position"
        said = f"later answers follow what is written ({self._share(SHIFTED)}), and {between}"
        return "undetermined", f"{said}, neither {self.rules.follows:g} nor below {self.rules.nothing:g}", rests

    def _by_what_was_held(self) -> Named | None:
        """Where they follow all that is written, and stay right with what was held earlier."""
        alone = BY_MEMORY["swap"]
        if not self._follows(SWAPPED) or not self._follows(MET_BEFORE):
            return None
        if self.asked[alone] is not None and not self._follows(alone):
            return None
        rests = (SWAPPED, *((alone,) if self.asked[alone] is not None else ()), MET_BEFORE)
        early = f"with what was held earlier {self._share(MET_BEFORE)} of later answers stay right"
        if self.code is None:
            return "undetermined", f"{early}, if by what is used; stage erase would tell", rests
        reads, costs = self.code
        if reads >= self.rules.reads and costs < self.rules.follows:
            unused = f"a code of the state that can be read ({reads:.2f}) and is hardly missed ({costs:.2f})"
            return "undetermined", f"{early}, but what is near there may be {unused}", (*rests, READ)
        late = f"what is held late is what was held early ({self._share(MET_BEFORE)}), if in no one code"
        return "carried", late, (*rests, READ)

    def _by_directions(self) -> Named | None:
        """Where they follow what is exchanged along learned directions, or where these leave it open."""
        learned, _, met = LEARNED
        if all(map(self._follows, LEARNED)):
            along = f"later answers go on from what is exchanged along some directions ({self._share(learned)})"
            return "carried", along, LEARNED
        alone = BY_MEMORY["shift"]
        if self._follows(SHIFTED):  # and not in memory alone, or there was a name
            by = f"in stream and memory ({self._share(SHIFTED)}), and {self._share(alone)} where in memory alone"
            return "undetermined", f"later answers read what is written {by}", (SHIFTED, alone)
        alone = BY_MEMORY["swap"]
        if self._follows(SWAPPED) and self.asked[alone] is not None and not self._follows(alone):
            by = f"in stream and memory ({self._share(SWAPPED)}), and {self._share(alone)} where in memory alone"
            return "undetermined", f"later answers follow all that is written {by}", (SWAPPED, alone)
        if self._follows(SWAPPED) and not self._fails(MET_BEFORE) and self.asked[MET_BEFORE] is not None:
            early = f"with what was held earlier {self._share(MET_BEFORE)} of later answers stay right"
            between = f"neither {self.rules.follows:g} nor below {self.rules.fails:g}"
            return "undetermined", f"{early}, {between}", (SWAPPED, MET_BEFORE)
        # Inputs or a count may be exchanged too, but then late ones are not early ones: no state is held. That there is
        # none is said only where luck of what was learned and drawn can hardly have hidden it.
        if self.asked[learned] is not None and not self._surely_fails(learned) and not self._surely_fails(met):
            where = "" if self._follows(learned) else f", with {self._share(learned)} of what comes later"
            said = f"some directions may hold the state{where}, though not in one code of each state"
            return "undetermined", said, LEARNED
        return None

    def _by_the_answer_there(self) -> Named | None:
        """Where the answer follows at once, and later ones do not."""
        if not self._fails(SHIFTED) or not self._follows(NOW):
            return None
        learned, alone, rests = LEARNED[0], BY_MEMORY["swap"], (NOW, SHIFTED)
        if self.memory:
            if self.asked[learned] is None:
                said = "a memory may hold the state in another code; stage align would tell"
                return "undetermined", said, rests
            if not self._fails(alone) and not self._follows(SPANNED):
                quiet = (
                    f"{self._share(SPANNED)} of later answers go on from its loudest directions,"
                    f" {self._share(alone)} from all"
                )
                said = f"the memory may hold the state where nobody looked: {quiet}"
                return "undetermined", said, (alone, SPANNED)
            rests = (*rests, alone, learned, SPANNED)
        changes = f"what is written changes the answer there, and {self._share(SHIFTED)} of later ones"
        if self.unwritten is None or self.unwritten:
            return "undetermined", f"{changes}, but {self._unheld()}", rests
        # Not at the last boundary, where the head reads the same code at every position.
        if self._follows(INNER) and self._means_nothing(INNER_MOVED):
            there = f"the state has another code at other positions ({self._share(INNER_MOVED)})"
            return "length-specific", there, (*rests, INNER, INNER_MOVED)
        return "recomputed", changes, rests

    def _unheld(self) -> str:
        """Of what is not written, what is known."""
        if self.unwritten is None:
            return "whether something else is held was not asked; stage interchange would tell"
        return f"what {self.unwritten[0]} holds could not be written" if self.unwritten else "nothing is held"

    def _share(self, name: str) -> str:
        one = self.asked[name]
        return "nothing" if one is None else f"{one.value:.2f}"

    def _follows(self, name: str) -> bool:
        one = self.asked[name]
        return one is not None and self.rules.says_follows(one.value, one.low)

    def _fails(self, name: str) -> bool:
        one = self.asked[name]
        return one is not None and one.value < self.rules.fails and one.high < self.rules.follows

    def _surely_fails(self, name: str) -> bool:
        one = self.asked[name]
        return one is not None and one.high < self.rules.fails

    def _means_nothing(self, name: str) -> bool:
        """Whether the code of one position means nothing at another one."""
        one = self.asked[name]
        return self._fails(name) and one is not None and one.value < self.rules.nothing
