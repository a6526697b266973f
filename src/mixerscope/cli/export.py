"""`mixerscope export`: a run for the Hugging Face Hub, or results in a schema that others read."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from mixerscope.cli.console import results
from mixerscope.errors import FAILED, FINE, UserError, remark


def export(
    run: Annotated[Path, Parameter(name="RUN")],
    /,
    *,
    to: Path,
    format: Literal["huggingface", "every-eval-ever"] = "huggingface",
    organisation: str = "unknown",
    use: Annotated[list[str] | None, Parameter(negative=())] = None,
    strict: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """A run as a folder for the Hugging Face Hub, or results as records of Every Eval Ever.

    Parameters
    ----------
    run
        A run's folder, or one that holds it and no other; for records one that holds as many as you like.
    to
        The folder to write, which must not be there yet.
    format
        `huggingface`: weights, settings, evidence and a card with the verdict and its proof. `every-eval-ever`: a JSON
        record for each run, version 0.3.0 of that schema.
    organisation
        Who publishes the records.
    use
        `file.py:Class` or `pkg.module:Class`, a component of yours that the run names as local/Class; may be given
        several times.
    strict
        Refuse a folder in which a run is damaged or has no score; else it is named and left out, and the exit code
        is 1.
    """
    from mixerscope.cli.damage import sound_runs
    from mixerscope.spec.reading import use_all

    use_all(use)
    if format == "huggingface":
        from mixerscope.export.huggingface import export_run
        from mixerscope.store import find_runs

        found = find_runs(run)
        if len(found) > 1:
            raise UserError(f"{run} holds {len(found)} runs; name the folder of one of them")
        made = export_run(found[0].path, to)
        results().print(f"{made}: README.md is its card", markup=False, soft_wrap=True)
        return FINE
    from mixerscope.export.every_eval_ever import write_records

    runs, left_out = sound_runs(run, strict)
    made, without = write_records(runs, to, organisation, strict)
    for complaint in without:
        remark(f"left out: {complaint}")
    from mixerscope.showing import counted

    results().print(f"{counted(len(runs) - len(without), 'record')}: {made}", markup=False, soft_wrap=True)
    return FAILED if left_out or without else FINE
