"""`mixerscope ls`: names, without importing what they stand for."""

from collections import Counter
from pathlib import Path
from typing import Literal

from rich.table import Table

from mixerscope.cli.console import plain_table, print_rows, results
from mixerscope.errors import CorruptFile
from mixerscope.registry import MIXERS, OBJECTIVES, STAGES, TASKS, Entry, architecture_entries

Kind = Literal["mixers", "architectures", "tasks", "stages", "objectives", "runs"]
LISTINGS = {
    "mixers": MIXERS.entries,
    "architectures": architecture_entries,
    "tasks": TASKS.entries,
    "stages": STAGES.entries,
    "objectives": OBJECTIVES.entries,
}


def ls(kind: Kind | None = None, /, *, out: Path = Path("runs")) -> int:
    """List mixers, architectures, tasks, stages, objectives or finished runs.

    Example: mixerscope ls tasks

    Parameters
    ----------
    kind
        What to list; left out: everything but the runs.
    out
        Where to look for runs, at any depth.
    """
    if kind == "runs":
        return _list_runs(out)
    for name in LISTINGS if kind is None else [kind]:
        results().print(_names_table(name, LISTINGS[name]()))
    return 0


def _names_table(kind: str, entries: list[Entry]) -> Table:
    foreign = any(entry.origin != "mixerscope" for entry in entries)
    table = plain_table(kind, "", *(["from"] if foreign else []))
    for entry in entries:
        table.add_row(entry.name, entry.summary, *([entry.origin] if foreign else []))
    return table


def _list_runs(root: Path) -> int:
    """Reads JSON only: nothing here waits for torch."""
    from mixerscope.listing import listed_runs
    from mixerscope.spec.labels import labels

    damaged: list[str] = []
    found = listed_runs(root, damaged)
    names = labels([run.training for run in found.values()], always=("model.width",))
    alike = Counter(names)
    names = [name if alike[name] == 1 else f"{name} {run.id}" for name, run in zip(names, found.values(), strict=True)]
    rows = [
        (path, name, str(run.training["task"]["name"]), run.outcome, run.mechanism)
        for (path, run), name in zip(found.items(), names, strict=True)
    ]
    if rows:
        print_rows(("run", "model", "task", "outcome", "mechanism"), rows)
    if damaged:
        raise CorruptFile("; ".join(damaged))
    return 0
