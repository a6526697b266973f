"""`mixerscope status`: how far the runs in a folder are."""

from pathlib import Path

from mixerscope.cli.console import plain_table, results


def status(folder: Path = Path("runs"), /) -> int:
    """How far the runs in a folder are, and who is making them; from any machine that sees the folder.

    Parameters
    ----------
    folder
        One that holds run folders.
    """
    from mixerscope.progress import duration
    from mixerscope.store.upkeep import overview

    found = overview(folder)
    interrupted = [begun for begun in found.begun if begun.holder is None]
    counts = [f"{found.finished} runs finished", f"{len(found.making)} in the making"]
    counts += [f"{sum(len(begun.runs) for begun in interrupted)} interrupted"] if interrupted else []
    counts += [f"{len(found.failed)} cohorts failed"] if found.failed else []
    results().print(", ".join(counts), markup=False)
    table = plain_table("in training", "step", "left", "by")
    for begun in found.begun:
        left = "" if begun.seconds_left is None else f"about {duration(begun.seconds_left)}"
        more = f" and {len(begun.runs) - 1} more" if len(begun.runs) > 1 else ""
        by = "nobody: the next call goes on" if begun.holder is None else str(begun.holder)
        table.add_row(f"{', '.join(begun.runs[:1])}{more}", f"{begun.done}/{begun.steps}", left, by)
    if found.begun:
        results().print(table)
    for label, reason in found.failed.items():
        results().print(f"{label} failed: {' '.join(reason.split())}", markup=False, soft_wrap=True)
    return 0
