"""`mixerscope sweep`: many models at once, in cohorts and jobs."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from mixerscope.cli.console import results


def sweep(
    source: Annotated[str, Parameter(name="FILE")],
    /,
    *,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
    out: Path = Path("runs"),
    dry_run: Annotated[bool, Parameter(negative=())] = False,
    stop_after: float | None = None,
    device: Literal["cpu", "cuda"] = "cpu",
    threads: int = 1,
    kernels: Literal["auto", "plain"] = "auto",
    compile_: Annotated[bool, Parameter(name="--compile", negative=())] = False,
    in_flight: int | None = None,
    largest: int | None = None,
    keep_weights: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Train every run of a sweep, intervene on each, and say what took how long.

    Parameters
    ----------
    source
        A JSON file with `base` and `vary`, the name of one that is shipped (`figure3`), or `module:function`.
    set_
        path=value, such as train.precision=tf32; goes over every run; may be given several times.
    out
        Every run gets a folder of its own in here; those that are finished are not made again.
    dry_run
        Say what would be done, and do nothing.
    stop_after
        Seconds after which nothing is running any more; what could not be finished by then is left for the next call.
    device
        Where the models are trained and taken apart.
    threads
        Cores torch may use; more than one can change the last bits of a result.
    kernels
        `plain` computes everything with PyTorch's own operations.
    compile_
        Pass training steps through torch.compile: about twice the speed on a GPU, after half a minute.
    in_flight
        Cohorts at once; 4 on a GPU and 1 on a CPU unless you say otherwise.
    largest
        Models in one cohort at most.
    keep_weights
        Keep the trained weights in the run folders; the tables are always kept.
    """
    from mixerscope.cli.sweep_progress import following_sweep
    from mixerscope.machine import Machine
    from mixerscope.spec import parse_settings
    from mixerscope.sweep import execute, load_runs, make_plan
    from mixerscope.sweep.best import best_lines, best_runs, finished_runs
    from mixerscope.sweep.cohorts import LARGEST
    from mixerscope.sweep.plan import Imagined
    from mixerscope.sweep.table import read_rows
    from mixerscope.sweep.text import outcome_lines, plan_lines

    machine = (Imagined if dry_run else Machine)(device, threads, kernels, compile_)
    runs = load_runs(source, parse_settings(set_))
    plan = make_plan(runs, out, machine, in_flight=in_flight, largest=LARGEST if largest is None else largest)
    if dry_run:
        _say(plan_lines(plan))
        return 0
    with following_sweep(plan) as listener:
        outcome = execute(plan, out, machine, stop_after=stop_after, keep_weights=keep_weights, listener=listener)
    _say(best_lines(best_runs(finished_runs(runs, out))))
    _say([*plan.damaged, *outcome_lines(outcome, read_rows(out))])
    _say([f"`mixerscope report {out} --best` makes a page of these runs, without `--best` of all"])
    return 1 if outcome.failed or plan.damaged else 0


def _say(lines: list[str]) -> None:
    for line in lines:
        results().print(line, markup=False, soft_wrap=True)
