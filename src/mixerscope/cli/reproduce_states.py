"""`mixerscope reproduce task-flip`: the second study, on tracked states."""

from pathlib import Path
from typing import TYPE_CHECKING

from mixerscope.cli.console import remarks, results
from mixerscope.errors import FINE, UserError

if TYPE_CHECKING:
    from mixerscope.experiments.task_flip.study import Asked
    from mixerscope.sweep.call import Call


def reproduce_states(
    asked: "Asked", call: "Call", kept: Path, collect: list[Path] | None, write_sweep: Path | None, command: str
) -> int:
    """Runs what was asked for of the study, keeps it and draws it; what is finished is not made again."""
    from mixerscope.experiments.paper.sweeps import as_file
    from mixerscope.experiments.task_flip.render import take_in, write_study
    from mixerscope.experiments.task_flip.study import NAME, sweeps
    from mixerscope.sweep.expand import expand

    runs = sweeps(asked)
    if write_sweep is not None:
        try:
            write_sweep.write_text(as_file(runs), encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot write the sweep to {write_sweep}: {error.strerror}") from error
        results().print(f"{len(expand(runs))} runs are in {write_sweep}", markup=False, soft_wrap=True)
        return FINE
    code = FINE
    if not collect:
        code = _run(as_file(runs), call)
        if call.dry_run:
            return code
    count = take_in(kept, collect or [call.out], asked, command)
    remarks().print(f"{count} runs are kept below {kept}", markup=False, soft_wrap=True)
    results().print(f"{NAME} is in {write_study(kept)}", markup=False, soft_wrap=True)
    return code


def _run(text: str, call: "Call") -> int:
    from mixerscope.cli.sweep_progress import following_sweep
    from mixerscope.experiments.task_flip.study import NAME
    from mixerscope.store import make_folder
    from mixerscope.sweep.call import carry_out

    if call.dry_run:
        import tempfile

        with tempfile.TemporaryDirectory() as place:
            file = Path(place) / f"{NAME}.sweep.json"
            file.write_text(text, encoding="utf-8")
            return carry_out(str(file), call, following_sweep)
    make_folder(call.out)
    file = call.out / f"{NAME}.sweep.json"
    file.write_text(text, encoding="utf-8")
    return carry_out(str(file), call, following_sweep)
