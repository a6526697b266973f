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
    job_seconds: float | None = None,
    keep_weights: Annotated[bool, Parameter(negative=())] = False,
    use: Annotated[list[str] | None, Parameter(negative=())] = None,
    skip: Annotated[list[Path] | None, Parameter(negative=())] = None,
    pack: Path | None = None,
) -> int:
    """Train every run of a sweep, take each through its stages, and say what took how long.

    Parameters
    ----------
    source
        A JSON file with `base` and `vary`, the name of one that is shipped (`figure3`), or `module:function`.
    set_
        path=value, such as train.precision=tf32 or model.architecture=mine.py:Mine; goes over every run; may be given
        several times.
    out
        Every run gets a folder of its own in here; those that are finished are not made again.
    dry_run
        Say what would be done, and do nothing.
    stop_after
        Seconds after which nothing is running any more; what could not be finished by then is left for the next call.
    device
        Where the models are trained and patched.
    threads
        Cores torch may use; more than one can change the last bits of a result.
    kernels
        `plain` computes everything with PyTorch's own operations.
    compile_
        Pass training steps through torch.compile: about twice the speed on a GPU, after half a minute.
    in_flight
        Cohorts at once; 4 on a GPU and 1 on a CPU unless you say otherwise.
    job_seconds
        What one job may take, as far as can be foreseen; 480 unless you say otherwise.
    largest
        Models in one cohort at most.
    keep_weights
        Keep the trained weights in the run folders; the tables are always kept.
    use
        file.py:Class or pkg.module:Class of a mixer, task, stage or objective of yours, which is then known as
        local/Class; may be given several times.
    skip
        Runs finished elsewhere, which are not made here: a JSON list of run ids, or a pack; may be given several times.
    pack
        One file with the results of all finished runs of the sweep in the folder, to carry elsewhere.
    """
    from mixerscope.cli.sweep_progress import following_sweep
    from mixerscope.machine import Machine
    from mixerscope.spec.reading import typed_settings, use_all
    from mixerscope.sweep import execute, load_runs, make_plan
    from mixerscope.sweep.call import check_pack, finished_elsewhere, found_lines, pack_lines
    from mixerscope.sweep.cohorts import LARGEST
    from mixerscope.sweep.plan import JOB_SECONDS, Imagined
    from mixerscope.sweep.text import plan_lines

    machine = (Imagined if dry_run else Machine)(device, threads, kernels, compile_)
    check_pack(pack)
    use_all(use)
    plan = make_plan(
        load_runs(source, typed_settings(set_)),
        out,
        machine,
        in_flight=in_flight,
        largest=LARGEST if largest is None else largest,
        job_seconds=JOB_SECONDS if job_seconds is None else job_seconds,
        skip=finished_elsewhere(skip),
    )
    if dry_run:
        _say(plan_lines(plan))
        return 0
    with following_sweep(plan) as listener:
        outcome = execute(plan, out, machine, stop_after=stop_after, keep_weights=keep_weights, listener=listener)
    _say(found_lines(plan, outcome, out))
    _say(pack_lines(plan, out, pack))
    _say([f"`mixerscope report {out} --best` makes a page of these runs, without `--best` of all"])
    return 1 if outcome.failed or plan.damaged else 0


def _say(lines: list[str]) -> None:
    for line in lines:
        results().print(line, markup=False, soft_wrap=True)
