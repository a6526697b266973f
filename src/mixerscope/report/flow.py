"""The way of the information through a model, as a picture can show it: where it stands, block by block.

The verdict says which route has a name and which part made each move; the proof says how many documents take the routes
of the other slots. What failed a test, or was not put to one, says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from mixerscope.analysis import Rules
from mixerscope.analysis.rules import NOT_LEARNED, UNPROVEN
from mixerscope.analysis.stats import proportion_estimate
from mixerscope.artifacts import Estimate, Verdict
from mixerscope.artifacts.effects import ANYWHERE, Facts
from mixerscope.artifacts.proof import USUAL, Proof, TestedRoute

LEAST = 0.05
"""Share of the documents from which on a route is drawn."""

State = Literal["proven", "failed", "untested"]


@dataclass(frozen=True)
class Step:
    """Where the information stands: after so many blocks (a half is inside one), at which place."""

    level: float
    place: str
    by: str = ""
    """The part that brought it here; empty where that is not known, or where it stayed."""
    share: float | None = None
    """Documents in which that part's output, restored here, is enough; None where it was not measured."""


@dataclass(frozen=True)
class Lane:
    """One route of one slot's information."""

    slot: str
    state: State
    share: Estimate
    """Documents that take it."""
    steps: tuple[Step, ...]


def lanes_of(facts: Facts, verdicts: Sequence[Verdict], proof: Proof | None, rules: Mapping[str, Any]) -> list[Lane]:
    """The routes of one model: those that its verdicts name, and those of the other slots that were tested."""
    if not facts.read or all(verdict.mechanism == NOT_LEARNED for verdict in verdicts):
        return []
    found: list[Lane] = []
    for verdict in verdicts:
        named = _named(facts, verdict)
        found += [named] if named else _refuted(verdict, _tested(facts, verdict.slot, proof, rules))
    judged = {verdict.slot for verdict in verdicts}
    for slot in facts.together:
        if slot not in judged:
            found += _tested(facts, slot, proof, rules)
    return found


def _named(facts: Facts, verdict: Verdict) -> Lane | None:
    """The route of a verdict, move by move; None where it has none."""
    if not verdict.route or verdict.share is None:
        return None
    steps = [Step(0, verdict.slot)]
    for block in range(len(facts.blocks)):
        inside = [move for move in verdict.moves if move.block == block]
        for i, move in enumerate(inside):
            share = move.share.value if move.share else None
            steps.append(Step(block + (i + 1) / len(inside), move.target, move.component, share))
        if not inside:
            steps.append(Step(block + 1, steps[-1].place))
    if not verdict.moves:  # which part moved it is not known: only where it stood between the blocks
        carriers = [boundary.carrier or ANYWHERE for boundary in verdict.boundaries[1:-1]]
        steps = _steps(facts, verdict.slot, carriers)
    untested = verdict.mechanism.startswith(UNPROVEN) or not any(test.name == "sufficient" for test in verdict.tests)
    return Lane(verdict.slot, "untested" if untested else "proven", verdict.share, tuple(steps))


def _refuted(verdict: Verdict, lanes: list[Lane]) -> list[Lane]:
    """The routes of a slot whose verdict failed a test: documents take them, and yet none of them passed."""
    failed = any(test.passed is False for test in verdict.tests)
    return [replace(lane, state="failed") for lane in lanes] if failed else lanes


def _tested(facts: Facts, slot: str, proof: Proof | None, rules: Mapping[str, Any]) -> list[Lane]:
    """The routes of a slot that the proof tried and that some documents take."""
    halfway, names = (rules.get(name, getattr(Rules(), name)) for name in ("carries", "names"))
    lanes: list[Lane] = []
    for route in proof.routes if proof else ():
        if route.slot == slot and route.on == USUAL and bool(route.gap.any()):
            share = proportion_estimate(_takes(route, halfway))
            if share.value >= LEAST:
                state: State = "proven" if share.low > names else "failed"
                lanes.append(Lane(slot, state, share, tuple(_steps(facts, slot, route.carriers))))
    return lanes


def _takes(route: TestedRoute, halfway: float) -> Any:
    return route.brings_back(halfway) & route.takes_away(halfway)


def _steps(facts: Facts, slot: str, carriers: Sequence[str]) -> list[Step]:
    """From the token through the stations to where the answer is read; a station that says nothing is passed over."""
    count = len(facts.blocks)
    levels = [(i + 1) / len(facts.blocks[0]) for i in range(len(carriers))] if facts.one_block else range(1, count)
    middle = [Step(level, place) for level, place in zip(levels, carriers, strict=False) if place != ANYWHERE]
    return [Step(0, slot), *middle, Step(count, facts.read[0])]


def as_json(lanes: Sequence[Lane]) -> list[dict[str, Any]]:
    """For the page."""
    return [
        {
            "slot": lane.slot,
            "state": lane.state,
            "share": round(lane.share.value, 4),
            "interval": [round(lane.share.low, 4), round(lane.share.high, 4)],
            "n": lane.share.n,
            "steps": [
                [round(s.level, 3), s.place, s.by, None if s.share is None else round(s.share, 4)] for s in lane.steps
            ],
        }
        for lane in lanes
    ]
