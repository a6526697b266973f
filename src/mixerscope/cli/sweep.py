"""`mixerscope sweep`: many models at once, in cohorts and jobs."""

from typing import Annotated

from cyclopts import Parameter

from mixerscope.cli.console import results
from mixerscope.sweep.call import SOURCE, Call


def sweep(
    source: Annotated[str, Parameter(name="FILE", help=SOURCE)],
    /,
    *,
    call: Annotated[Call, Parameter(name="*", negative=())] = Call(),  # noqa: B008 - it is frozen
) -> int:
    """Train every run of a sweep, take each through its stages, and say what took how long."""
    from mixerscope.cli.sweep_progress import following_sweep
    from mixerscope.store import Seal
    from mixerscope.sweep.call import carry_out

    code = carry_out(source, call, following_sweep)
    if not call.dry_run and any(call.out.glob(f"*/{Seal.file}")):
        page = f"`mixerscope report {call.out} --best` makes a page of these runs, without `--best` of all"
        results().print(page, markup=False, soft_wrap=True)
    return code
