"""`mixerscope reproduce task-flip`: the second study, on tracked states."""

from pathlib import Path
from typing import TYPE_CHECKING

from mixerscope.cli.console import remarks, results
from mixerscope.cli.reproduce import run_sweeps, write_sweeps
from mixerscope.errors import FINE
from mixerscope.showing import counted

if TYPE_CHECKING:
    from mixerscope.experiments.task_flip.study import Asked
    from mixerscope.sweep.call import Call


def reproduce_states(
    asked: "Asked",
    call: "Call",
    kept: Path,
    collect: list[Path] | None,
    missing: bool,
    write_sweep: Path | None,
    command: str,
) -> int:
    """Runs what was asked for of the study, keeps it and draws it; what is finished is not made again."""
    from mixerscope.experiments.paper.records import refuse_other_packs
    from mixerscope.experiments.paper.sweeps import without
    from mixerscope.experiments.task_flip.render import take_in, write_study
    from mixerscope.experiments.task_flip.study import NAME, sweeps
    from mixerscope.experiments.task_flip.tables import stored, whole_ids

    runs = without(sweeps(asked), whole_ids(kept / NAME) if missing else set())
    if write_sweep is not None:
        return write_sweeps(runs, write_sweep)
    if not call.dry_run:
        # What is damaged is refused before anything is trained.
        stored(kept / NAME)
        refuse_other_packs(kept / NAME)
    code = FINE if collect or not runs else run_sweeps(NAME, runs, call)
    if call.dry_run:
        return code
    if collect or runs:  # where nothing is missing there may be no runs at all
        count, tuned = take_in(kept, collect or [call.out], asked, command)
        more = f" and {counted(tuned, 'fine-tuned model')}" if tuned else ""
        remarks().print(f"{counted(count, 'run')}{more} are kept below {kept}", markup=False, soft_wrap=True)
    results().print(f"{NAME} is in {write_study(kept)}", markup=False, soft_wrap=True)
    return code
