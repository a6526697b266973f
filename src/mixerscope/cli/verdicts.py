"""Verdicts of finished runs as a table in the terminal."""

from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from mixerscope.runs import RunResult

STYLES = {
    "not learned": "red",
    "diverged": "red",
    "not retrieval": "yellow",
    "undetermined": "yellow",
    "other": "yellow",
}


def accuracy(result: "RunResult") -> float | None:
    """Share of fresh documents answered rightly; None for a run that diverged."""
    if diverged(result):
        return None
    return result.json("evaluation")["estimates"]["original.accuracy"]["value"]


def diverged(result: "RunResult") -> bool:
    return result.json("status")["outcome"] == "diverged"


def verdict_table(results: list["RunResult"]) -> RenderableType:
    """One row per run and corrupted slot, and below it what each part of the model does."""
    several_slots = any(len(result.spec.interventions.slots) > 1 for result in results)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False, show_edge=False)
    for column in ("architecture", *(["slot"] if several_slots else []), "accuracy"):
        table.add_column(column, no_wrap=True)
    table.add_column("mechanism")  # the one that may be broken into lines where the terminal is narrow
    for column in ("route", "share restored", "seed"):
        table.add_column(column, no_wrap=True)
    notes: list[Text] = []
    for result in results:
        name, seed = result.spec.model.architecture, str(result.spec.seed)
        if diverged(result):
            steps = result.json("status")["steps"]
            table.add_row(name, *([""] if several_slots else []), "–", Text("diverged", "red"), "–", "–", seed)
            notes.append(Text(f"{name}: the loss stopped being a number by step {steps}"))
            continue
        for slot, verdict in result.json("verdicts").items():
            mechanism: str = verdict["mechanism"]
            table.add_row(
                name,
                *([slot] if several_slots else []),
                f"{accuracy(result):.1%}",
                Text(mechanism, STYLES.get(mechanism.split(":")[0], "green")),
                " → ".join(verdict["route"]) or "–",
                _interval(verdict["share"]),
                seed,
            )
            notes += _notes(name, verdict)
    return Group(table, *notes)


def _interval(share: dict[str, Any] | None) -> str:
    return "–" if share is None else f"{share['value']:.2f} [{share['low']:.2f}, {share['high']:.2f}]"


def _notes(name: str, verdict: dict[str, Any]) -> list[Text]:
    if verdict["reason"]:
        return [Text(f"{name}: {verdict['reason']}")]
    moves = [f"block {m['block']} {m['component']}: {m['source']} → {m['target']}" for m in verdict["moves"]]
    return [Text(f"{name}: {'; '.join(moves)}")] if moves else []
