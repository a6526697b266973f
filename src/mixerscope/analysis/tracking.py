"""How a state is tracked, judged from stored results: no model is needed, and thresholds can be changed."""

from pydantic import Field

from mixerscope.artifacts import Estimate, Interchanges, Lengths
from mixerscope.artifacts.state_verdict import StateName, StateTest, StateVerdict
from mixerscope.spec import Spec


class StateRules(Spec):
    """Thresholds of a state verdict."""

    solves: float = Field(default=0.95, gt=0, le=1)
    """Accuracy at the training length, whose interval must reach above it."""
    follows: float = Field(default=0.75, gt=0, le=1)
    """Share of answers that must be those of the state that was written."""
    fails: float = Field(default=0.5, ge=0, lt=1)
    """Share below which they are not."""


def judge_tracking(lengths: Lengths, found: Interchanges, rules: StateRules | None = None) -> StateVerdict:
    """The verdict. Longer documents play no part in it: how a model does there is for the verdict to predict."""
    rules = rules or StateRules()
    trained = lengths.at(1)
    place = "both" if found.cell("both", "shift") is not None else "stream"
    asked: dict[str, Estimate | None] = {"accuracy": None if trained is None else trained.accuracy}
    for how in ("shift", "moved", "swap"):
        now, later = found.cell("stream", how), found.cell(place, how)
        inner = found.cell("inner", how)
        asked[f"now, {how}"] = None if now is None else now.now
        asked[f"now, inner {how}"] = None if inner is None else inner.now
        asked[f"later, {how}"] = None if later is None else later.later
    tests = tuple(
        StateTest(name, *(None, None, None) if one is None else (one.value, one.low, one.high))
        for name, one in asked.items()
    )
    name, reason = _named(asked, trained.guessing if trained is not None else 1.0, rules)
    return StateVerdict(name, reason, tests)


def _named(asked: dict[str, Estimate | None], guessing: float, rules: StateRules) -> tuple[StateName, str]:
    accuracy = asked["accuracy"]
    if accuracy is None:
        return "undetermined", "accuracy at the training length was not measured"
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

    if follows("later, shift"):
        if follows("later, moved"):
            return "carried", f"later answers go on from the state that is written ({share('later, shift')})"
        if fails("later, moved"):
            return "length-specific", f"the state has another code at other positions ({share('later, moved')})"
        return "undetermined", f"how it is held elsewhere cannot be told ({share('later, moved')})"
    if fails("later, shift") and follows("now, shift"):
        # Not at the last boundary, where the head reads the same code at every position.
        if follows("now, inner shift") and fails("now, inner moved"):
            return "length-specific", f"the state has another code at other positions ({share('now, inner moved')})"
        return "recomputed", f"what is written changes the answer there, and {share('later, shift')} of later ones"
    return "undetermined", f"{share('now, shift')} of answers follow at once, {share('later, shift')} later"
