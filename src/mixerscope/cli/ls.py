"""`mixerscope ls`: names, without importing what they stand for."""

import json
from pathlib import Path
from typing import Any, Literal

from rich.table import Table

from mixerscope.cli.console import plain_table, results
from mixerscope.errors import CorruptFile, UserError
from mixerscope.registry import MIXERS, TASKS, Entry, architecture_entries

Kind = Literal["mixers", "architectures", "tasks", "runs"]
LISTINGS = {"mixers": MIXERS.entries, "architectures": architecture_entries, "tasks": TASKS.entries}


def ls(kind: Kind | None = None, /, *, out: Path = Path("runs")) -> int:
    """List mixers, architectures, tasks or finished runs.

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
    from mixerscope.store import RunFolder
    from mixerscope.store.folder import SEAL

    if not root.is_dir():
        raise UserError(f"{root} is not a folder; `ls runs --out DIR` looks elsewhere")
    folders = [RunFolder(seal.parent) for seal in sorted(root.rglob(SEAL))]
    if not folders:
        raise UserError(f"{root} holds no finished runs; `mixerscope run --out {root} ...` makes one")
    table = plain_table("run", "task", "architecture", "width", "outcome", "mechanism", "seed")
    damaged: list[str] = []
    for folder in folders:
        try:
            spec: dict[str, Any] = json.loads(folder.checked("spec.json").read_text())
            outcome: str = json.loads(folder.checked("status.json").read_text())["outcome"]
            mechanism = "" if outcome == "diverged" else _mechanisms(folder.checked("verdicts.json"))
        except CorruptFile as error:
            damaged.append(str(error))
            continue
        model = spec["model"]
        facts = (spec["task"]["name"], model["architecture"], model["width"], outcome, mechanism, spec["seed"])
        table.add_row(str(folder.path), *(str(fact) for fact in facts))
    results().print(table)
    if damaged:
        raise CorruptFile("; ".join(damaged))
    return 0


def _mechanisms(path: Path) -> str:
    """The mechanism, or one for each slot where several were corrupted."""
    verdicts: dict[str, Any] = json.loads(path.read_text())
    if len(verdicts) == 1:
        return next(iter(verdicts.values()))["mechanism"]
    return ", ".join(f"{slot}: {verdict['mechanism']}" for slot, verdict in verdicts.items())
