"""What was found of a tracked state, as the page shows it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mixerscope.analysis.state_rules import StateRules
from mixerscope.analysis.tracking import WHOLE
from mixerscope.artifacts import Erased, Erasures, Estimate, Interchanges, Lengths, Probes
from mixerscope.artifacts.alignments import Alignments
from mixerscope.artifacts.erasures import LEAST_READ
from mixerscope.artifacts.recoveries import Recoveries
from mixerscope.artifacts.state_verdict import StateTest, StateVerdict
from mixerscope.results import RunResult

MEANINGS: Mapping[str, str] = {
    "carried": "the state is held and moved forward",
    "recomputed": "the state is worked out from the inputs at each position, and not handed on",
    "length-specific": "the state is held in a code that depends on the position",
}
"""Verdicts on states in plain words."""
MEANT: Mapping[str, str] = {"carried": "later answers go on", "length-specific": "another code at other positions"}
"""What a reason has in it that says as much itself."""
WRITTEN = {
    "shift": "another state is written, as a shift",
    "moved": "the same shift, taken from another position",
    "swap": "all that another document holds is written",
}
WHEN = {"now, ": "answer there", "now, inner ": "written before the last block", "later, ": "later answers"}
"""Which answers follow a state that is written, by how the names of such tests begin; `WRITTEN` is how they end."""
RECOVERED = ("same", "same_low", "same_high", "later", "later_low", "later_high")
PLACES = {"stream": "residual stream", "state": "recurrent states", "both": "stream and states"}
ALL_ANSWERS, LAST_ANSWER = "all answers", "last answer"
"""The two accuracies of a model that is asked at every position."""
OVER_ALL = re.compile(r"^accuracy (?=[\d.]+ at )")
"""How a reason begins that names an accuracy, which is over all answers."""


@dataclass(frozen=True)
class Tracked:
    """What the stages for tracked states found; None for those that were not asked for."""

    verdict: StateVerdict | None
    lengths: Lengths | None
    probes: Probes | None
    erasures: Erasures | None
    interchanges: Interchanges | None
    recoveries: Recoveries | None
    rules: StateRules
    damaged: int | None = None
    """Documents on which the damage of erasures was seen."""
    aligned: Alignments | None = None

    @property
    def accuracy(self) -> Estimate | None:
        """On fresh documents of the training length, over all answers."""
        trained = self.lengths.at(1) if self.lengths else None
        return trained.accuracy if trained else None

    @property
    def last(self) -> Estimate | None:
        """The same of the last answer of each document."""
        trained = self.lengths.at(1) if self.lengths else None
        return trained.last if trained else None

    @property
    def guessing(self) -> float | None:
        """Accuracy that is had without solving the task, of last answers."""
        trained = self.lengths.at(1) if self.lengths else None
        return trained.guessing if trained else None

    @property
    def guessing_all(self) -> float | None:
        """The same over all answers; None where that was not asked."""
        trained = self.lengths.at(1) if self.lengths else None
        return trained.guessing_all if trained else None

    @property
    def readable(self) -> bool:
        """Whether a probe's reading could be compared with what the model knows anywhere."""
        found = self.probes.readability if self.probes else ()
        return any(value is not None for row in found for value in row)

    @property
    def erasable(self) -> bool:
        """Whether the model knows enough for an erasure to take something away."""
        return any(one.damage[0] is not None for one in self.erasures.erased) if self.erasures else False

    @property
    def memory(self) -> bool:
        """Whether the model holds something from one position to the next, in which a state could be written."""
        return self.interchanges is not None and self.interchanges.cell("both", "shift") is not None

    @property
    def unwritten(self) -> bool:
        """Whether it may hold something that could not be written."""
        return self.interchanges is not None and bool(self.interchanges.unwritten)

    @property
    def rests(self) -> str:
        """The place whose later answers verdicts look at first, one of `PLACES`."""
        return "both" if self.memory else "stream"

    @property
    def asked(self) -> dict[str, StateTest]:
        """The questions of the verdict, by name; those that could not be asked are there without a value."""
        return {test.name: test for test in self.verdict.tests} if self.verdict else {}

    @property
    def answered(self) -> int:
        """Questions of which something was found."""
        return sum(test.value is not None for test in self.asked.values())


def tracked_of(run: RunResult) -> Tracked | None:
    """None for a run whose task tracks no state, or of which nothing of the kind was asked."""
    found = Tracked(
        verdict=run.find(StateVerdict),
        lengths=run.find(Lengths),
        probes=run.find(Probes),
        erasures=run.find(Erasures),
        interchanges=run.find(Interchanges),
        recoveries=run.find(Recoveries),
        rules=_rules(run),
        damaged=run.stages["erase"].record.settings["damaged_documents"] if run.find(Erasures) else None,
        aligned=run.find(Alignments),
    )
    kept = (found.verdict, found.lengths, found.probes, found.erasures, found.interchanges, found.recoveries)
    return found if any(artifact is not None for artifact in kept) else None


def _rules(run: RunResult) -> StateRules:
    stage = run.stages.get("track")
    return StateRules.model_validate(stage.record.settings.get("rules", {}) if stage else {})


def reason_of(verdict: StateVerdict) -> str:
    """Why it has its name. Of two accuracies, a reason that was kept says no more than that it is one."""
    return OVER_ALL.sub("accuracy over all answers ", verdict.reason)


def meaning_of(verdict: StateVerdict) -> str:
    """Its name in plain words; empty where there are none, or its reason says as much."""
    meant = MEANT.get(verdict.name)
    return "" if meant and meant in verdict.reason else MEANINGS.get(verdict.name, "")


def as_json(tracked: Tracked | None) -> dict[str, Any] | None:
    """For the page: what is drawn, and what is said of it when pointed at."""
    if tracked is None:
        return None
    return {
        "lengths": tracked.lengths and [_length(one) for one in tracked.lengths.lengths],
        "probes": tracked.probes and _probes(tracked.probes),
        "erasures": tracked.erasures and _erasures(tracked.erasures, tracked.damaged),
        "written": tracked.interchanges and _written(tracked.interchanges, tracked.rests),
        "recovered": tracked.recoveries and _recovered(tracked.recoveries),
    }


def _length(one: Any) -> dict[str, Any]:
    return {
        **{name: getattr(one, name) for name in ("times", "length", "guessing")},
        **{name: _estimate(getattr(one, name)) for name in ("accuracy", "last", "whole")},
        "by": _rounded(one.by_position),
    }


def _probes(probes: Probes) -> dict[str, Any]:
    at = [probes.sites.index(site) for site in probes.boundaries]
    kinds = ("readability", "accuracy", "shuffled", "control", "untrained")
    return {
        "at": [_boundary(i) for i in range(len(at))],
        "lines": [
            {
                "name": label.name if label.positions == "every" else f"{label.name}, {label.positions} positions",
                "n": label.judged,
                "floor": round(max(label.chance, label.position, label.window), 4),
                "ceiling": round(label.ceiling, 4),
                **{kind: _rounded([getattr(probes, kind)[row][i] for i in at]) for kind in kinds},
                "low": _rounded([probes.accuracy_low[row][i] for i in at]) if probes.accuracy_low else None,
                "high": _rounded([probes.accuracy_high[row][i] for i in at]) if probes.accuracy_high else None,
            }
            for row, label in enumerate(probes.labels)
        ],
    }


def _erasures(found: Erasures, documents: int | None) -> dict[str, Any]:
    """Every erasure of the whole label: in the stream by boundary, and in recurrences."""
    stream = found.boundaries

    def place(site: str) -> str:
        return _boundary(stream.index(site)) if site in stream else f"block {site.split('.')[1]}, state"

    rows = [
        {
            "place": place(one.site),
            "method": one.method,
            "damage": one.damage[0],
            "damage_low": one.damage_low[0] if one.damage_low else None,
            "damage_high": one.damage_high[0] if one.damage_high else None,
            "left": one.residual,
            "unseen": one.unseen,
            "before": one.before,
            "before_share": found.share_read(one.before),
            "left_share": found.share_read(one.residual),
            "unseen_share": None if one.unseen is None else found.share_read(one.unseen),
            "rank": one.rank,
            "speaks": found.speaks(one),
            "why": silence(found, one),
            "beats": one.percentile,
        }
        for one in found.erased
        if one.method in WHOLE
    ]
    return {
        "chance": found.chance,
        "clean": found.clean[0],
        "guessing": found.guessing[0],
        "n": documents,
        "rows": rows,
    }


def silence(found: Erasures, one: Erased) -> str:
    """Why an erasure says nothing of the state; empty where it does."""
    most = found.chance + found.tolerance
    if found.speaks(one):
        return ""
    if one.before <= found.chance + LEAST_READ:
        return "nothing could be read there before"
    if one.residual > most:
        return "a fresh probe still reads it"
    if one.unseen is None:
        return "no probe of other documents was kept"
    return "a probe of other documents still reads it"


def _written(found: Interchanges, rests: str) -> dict[str, Any]:
    cells = [one for one in found.cells if one.place in PLACES]
    return {
        "position": found.position,
        "n": found.pairs,
        "rests": PLACES[rests],
        "cells": [
            {
                "place": PLACES[one.place],
                "how": one.how,
                "about": WRITTEN[one.how],
                "now": _estimate(one.now),
                "later": _estimate(one.later),
                "by": _rounded(one.by_distance),
                "told": list(one.told),
            }
            for one in cells
        ],
    }


def _recovered(found: Recoveries) -> dict[str, Any]:
    sites = list(dict.fromkeys(cell.site for cell in found.cells if cell.position is not None))
    positions = sorted({cell.position for cell in found.cells if cell.position is not None})
    cells = {(cell.site, cell.position): cell for cell in found.cells}

    def column(site: str, which: str) -> list[float | None]:
        known = [cells.get((site, position)) for position in positions]
        return _rounded([None if cell is None else getattr(cell, which) for cell in known])

    return {
        "position": found.position,
        "n": found.pairs,
        "sites": [_boundary(i) for i in range(len(sites))],
        "positions": positions,
        **{name: [column(site, name) for site in sites] for name in RECOVERED},
    }


def _boundary(i: int) -> str:
    return f"after block {i - 1}" if i else "input"


def _estimate(one: Estimate | None) -> list[Any] | None:
    return one and [*_rounded((one.value, one.low, one.high)), one.n]


def _rounded(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else round(value, 4) for value in values]
