"""`mixerscope ls`: names, without importing what they stand for."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.table import Table
from rich.text import Text

from mixerscope.cli.console import plain_table, results
from mixerscope.errors import CorruptFile, UserError
from mixerscope.registry import MIXERS, OBJECTIVES, STAGES, TASKS, Entry, architecture_entries

if TYPE_CHECKING:
    from mixerscope.artifacts import Verdicts
    from mixerscope.results import RunResult

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
    from mixerscope.artifacts import Verdicts
    from mixerscope.results import load_run
    from mixerscope.spec.labels import labels
    from mixerscope.store import find_all_runs

    table = plain_table("run", "model", "task", "outcome", "mechanism")
    damaged: list[str] = []
    listed: list[tuple[RunResult, str]] = []
    for folder in find_all_runs(root, damaged):
        try:
            result = load_run(folder.path)
            verdicts = result.find(Verdicts)
            mechanism = result.reason if verdicts is None else _mechanisms(verdicts)
            listed.append((result, f"{result.status.outcome}\t{mechanism}\t{result.training['task']['name']}"))
        except (CorruptFile, UserError) as error:
            damaged.append(str(error))
    names = labels([result.training for result, _ in listed], always=("model.width",))
    names = [
        name if names.count(name) == 1 else f"{name} {result.run_id}"
        for name, (result, _) in zip(names, listed, strict=True)
    ]
    for (result, facts), name in zip(listed, names, strict=True):
        outcome, mechanism, task = facts.split("\t")
        table.add_row(*(Text(text) for text in (str(result.folder.path), name, task, outcome, mechanism)))
    if listed:
        results().print(table)
    if damaged:
        raise CorruptFile("; ".join(damaged))
    return 0


def _mechanisms(verdicts: "Verdicts") -> str:
    """The mechanism, or one for each slot where several were corrupted."""
    if len(verdicts) == 1:
        return verdicts.verdicts[0].mechanism
    return ", ".join(f"{verdict.slot}: {verdict.mechanism}" for verdict in verdicts)
