"""Verdicts of finished runs as a table in the terminal."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from mixerscope.artifacts import Estimate
    from mixerscope.results import RunResult

STYLES = {
    "not above guessing": "red",
    "not learned": "red",
    "contradicted": "yellow",
    "unproven": "yellow",
    "diverged": "red",
    "cannot be patched": "yellow",
    "not judged": "yellow",
    "not retrieval": "yellow",
    "undetermined": "yellow",
    "other": "yellow",
}


WIDEST_NAME, NARROWEST = 44, 12
"""Columns of the terminal: runs that differ in many settings have long names, and what was found must stay in sight."""


def accuracy(result: "RunResult") -> float | None:
    """Share of fresh documents answered rightly; of a run that was not measured, of the dev set when it was last
    evaluated; None where it never was."""
    from mixerscope.artifacts import Scores

    scores = result.find(Scores)
    if scores is not None:
        return scores.accuracy.value
    return result.curve.last.accuracy if result.curve.last else None


def diverged(result: "RunResult") -> bool:
    return result.status.outcome == "diverged"


def verdict_table(results: Sequence["RunResult"]) -> RenderableType:
    """One row per run and patched slot, and below the table what each part of the models does, or what went wrong.
    Models that track a state, which has neither slots nor routes, have a table of their own."""
    from mixerscope.artifacts import Verdicts
    from mixerscope.spec.labels import labels

    names = labels([result.training for result in results])
    shared = {name for name, count in Counter(names).items() if count > 1}  # the same settings in other code
    named = [
        (f"{label} {result.run_id}" if label in shared else label, result)
        for label, result in zip(names, results, strict=True)
    ]
    states = [one for one in named if one[1].state_verdict is not None and one[1].find(Verdicts) is None]
    routes = [one for one in named if one not in states]
    if states and routes:
        return Group(_route_table(routes), "", _state_table(states))
    return _state_table(states) if states else _route_table(routes)


def _state_table(named: Sequence[tuple[str, "RunResult"]]) -> RenderableType:
    """How states are tracked. Of the two accuracies that over all answers is the one that verdicts go by."""
    from mixerscope.artifacts import Lengths
    from mixerscope.report.tracking import ALL_ANSWERS, LAST_ANSWER, reason_of

    table = _table()
    for column in (ALL_ANSWERS, LAST_ANSWER):
        table.add_column(column, no_wrap=True)
    table.add_column("verdict", min_width=NARROWEST)
    table.add_column("seed", no_wrap=True)
    notes: list[Text] = []
    for name, result in named:
        verdict, lengths = result.state_verdict, result.find(Lengths)
        if verdict is None:
            continue
        trained = lengths.at(1) if lengths else None
        last = trained.last.value if trained else accuracy(result)  # training asks for the last one alone
        table.add_row(
            Text(name),
            _percent(trained.accuracy.value if trained else None),
            _percent(last),
            Text(verdict.name, STYLES.get(verdict.name, "green")),
            str(result.training["seed"]),
        )
        notes += [Text(f"{name}: {said}") for said in (reason_of(verdict), result.reason) if said]
    return Group(table, *notes)


def _table() -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False, show_edge=False)
    table.add_column("model", max_width=WIDEST_NAME, overflow="fold")
    return table


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def _route_table(named: Sequence[tuple[str, "RunResult"]]) -> RenderableType:
    from mixerscope.analysis import false_names
    from mixerscope.artifacts import Verdicts
    from mixerscope.sweep.seeds import seed_lines

    results = [result for _, result in named]
    found = [result.find(Verdicts) for result in results]
    several_slots = any(verdicts is not None and len(verdicts) > 1 for verdicts in found)
    table = _table()
    for column in (*(["slot"] if several_slots else []), "accuracy"):
        table.add_column(column, no_wrap=True)
    table.add_column("mechanism", min_width=NARROWEST)  # broken into lines where the terminal is narrow, never left out
    for column in ("route", "documents", "seed"):
        table.add_column(column, no_wrap=True)
    notes: list[Text] = []
    for (name, result), verdicts in zip(named, found, strict=True):
        reached, seed = accuracy(result), str(result.training["seed"])
        for verdict in verdicts or [None]:
            mechanism = verdict.mechanism if verdict else _without_verdict(result)
            table.add_row(
                Text(name),
                *([Text(verdict.slot if verdict else "")] if several_slots else []),
                _percent(reached),
                Text(mechanism, STYLES.get(mechanism.split(":")[0], "green")),
                Text(" → ".join(verdict.route) if verdict else "") or "–",
                _interval(verdict.share if verdict else None),
                seed,
            )
            if verdict and (said := verdict.reason or "; ".join(map(str, verdict.moves))):
                notes.append(Text(f"{name}: {said}"))
        if result.reason:
            notes.append(Text(f"{name}: {result.reason}"))
    judged = [(result, tuple(verdicts or ())) for result, verdicts in zip(results, found, strict=True)]
    verdicts = [verdict for _, own in judged for verdict in own]
    naming = [false_names(verdicts).sentence()] if len(verdicts) > 1 else []
    return Group(table, *notes, *map(Text, [*seed_lines(judged), *naming]))


def _without_verdict(result: "RunResult") -> str:
    """What stands in the place of a mechanism."""
    if diverged(result):
        return "diverged"
    return "cannot be patched" if result.reason else "not judged"


def _interval(share: "Estimate | None") -> str:
    return "–" if share is None else f"{share.value:.2f} [{share.low:.2f}, {share.high:.2f}]"
