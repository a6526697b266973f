"""What the command line and the worker have in common: what people typed, before a sweep, and what they read after."""

from collections.abc import Sequence
from pathlib import Path

from mixerscope.errors import UserError
from mixerscope.sweep.best import best_lines, best_runs, finished_runs
from mixerscope.sweep.execute import Outcome
from mixerscope.sweep.plan import Plan
from mixerscope.sweep.table import read_rows
from mixerscope.sweep.text import outcome_lines


def finished_elsewhere(files: Sequence[Path] | None) -> dict[str, frozenset[str] | None]:
    """The runs in files that a person named with `--skip`: lists of ids, or packs, which also say what was asked."""
    if not files:
        return {}
    from mixerscope.packs import finished_analyses

    return {run_id: stages for file in files for run_id, stages in finished_analyses(file).items()}


def check_pack(file: Path | None) -> None:
    """Refuses, before anything is trained, a pack that could not be written in the end."""
    if file is None:
        return
    if file.is_dir() or not file.parent.is_dir():
        raise UserError(f"cannot write the pack to {file}: it should be a file in a folder that exists")
    from mixerscope.packs import claim_pack

    claim_pack(file)


def found_lines(plan: Plan, outcome: Outcome, root: Path) -> list[str]:
    """What a call ends with: the best runs, what is damaged, and what took how long."""
    best = best_runs(finished_runs(plan.sound, root))
    return [*best_lines(best), *plan.damaged.values(), *outcome_lines(outcome, read_rows(root))]


def pack_lines(plan: Plan, root: Path, file: Path | None) -> list[str]:
    """Packs all finished runs of a sweep into one file, if there is to be one, and says how large it is."""
    if file is None:
        return []
    results = finished_runs(plan.sound, root)
    if not results:
        return [f"no run is finished below {root}, so {file} was not written"]
    from mixerscope.packs import write_pack

    write_pack(file, results)
    return [f"{len(results)} finished runs are packed in {file}, {file.stat().st_size / 2**20:.1f} MiB"]
