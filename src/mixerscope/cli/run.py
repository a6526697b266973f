"""`mixerscope run`: one model, trained, patched and judged."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from mixerscope.cli.console import remarks, results
from mixerscope.errors import UserError
from mixerscope.signals import heeded

if TYPE_CHECKING:
    from mixerscope.machine import Machine
    from mixerscope.runs import RunResult
    from mixerscope.spec import RunSpec


def run(
    spec: Path | None = None,
    /,
    *,
    task: str | None = None,
    arch: str | None = None,
    preset: Literal["small", "paper"] = "small",
    use: Annotated[list[str] | None, Parameter(negative=())] = None,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
    out: Path = Path("runs"),
    fresh: Annotated[bool, Parameter(negative=())] = False,
    threads: int = 1,
    device: Literal["cpu", "cuda"] = "cpu",
    kernels: Literal["auto", "plain"] = "auto",
    compile_: Annotated[bool, Parameter(name="--compile", negative=())] = False,
    checkpoint_every: float = 60.0,
    no_wait: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Train one model, patch it and name its mechanism.

    Parameters
    ----------
    spec
        A JSON file; `mixerscope new spec` writes one.
    task
        A task's name, `atr:paper` for a preset of it, or `file.py:Class`, instead of a file.
    arch
        An architecture's name, or `file.py:Class` for a mixer of yours, instead of a file.
    preset
        What --task and --arch start from: `small` learns in about a minute on one core, `paper` is as published.
    use
        `file.py:Class` or `pkg.module:Class`, a component that a spec file names as local/Class; may be given several
        times.
    set_
        path=value, such as train.steps=100, model.width=32 or task.num_pairs=8; may be given several times.
    out
        The run gets a folder of its own in here.
    fresh
        Train even if the finished run is there.
    threads
        Cores torch may use; more than one can change the last bits of a result.
    device
        Where the model is trained and patched.
    kernels
        `plain` computes everything with PyTorch's own operations.
    compile_
        Pass training steps through torch.compile: about twice the speed on a GPU, after half a minute.
    checkpoint_every
        Seconds between two checkpoints of the training, which is what a kill loses at most.
    no_wait
        Do not wait for a run that another process is making.
    """
    from mixerscope.cli.settings import make_spec
    from mixerscope.cli.verdicts import diverged, verdict_table
    from mixerscope.machine import Machine
    from mixerscope.spec.reading import use_all

    machine = Machine(device, threads, kernels, compile_, checkpoint_seconds=checkpoint_every)
    use_all(use)
    wanted = make_spec(_base(spec, task, arch, preset), set_)
    result = finished_run(wanted, out, fresh=fresh, machine=machine, wait=not no_wait)
    results().print(verdict_table([result]))
    results().print(f"the run is in {result.folder.path}", markup=False, soft_wrap=True)
    return 1 if diverged(result) else 0


def finished_run(
    spec: "RunSpec", out: Path, *, fresh: bool, machine: "Machine | None" = None, wait: bool = True
) -> "RunResult":
    """The run of a spec: found with every file intact, or made while progress is shown."""
    from mixerscope.cli.progress import following
    from mixerscope.machine import CPU
    from mixerscope.results import run_folder
    from mixerscope.runnable import check_runnable
    from mixerscope.runs import is_finished, run, run_cohort
    from mixerscope.signals import refuse_signals
    from mixerscope.store import locked, make_folder

    folder, machine = run_folder(spec, out), machine or CPU
    if folder.sealed and not fresh:
        folder.verify()
        if is_finished(spec, out):
            remarks().print(f"found the finished run {folder.path}, nothing to train", markup=False, soft_wrap=True)
            return run(spec, out, progress=False)
    # Whatever may refuse does so before anything is said or made.
    check_runnable(spec)
    make_folder(out)
    with heeded(), locked(out, [folder.path.name], wait, refuse_signals) as locks:
        trained = folder.sealed and not fresh
        say = f"found {folder.path} trained already" if trained else cost(spec, machine)
        remarks().print(say, markup=False, soft_wrap=True)
        with following(spec.model.architecture) as progress:
            return run_cohort([spec], out, progress, machine, fresh=fresh, locks=locks)[0]


def cost(spec: "RunSpec", machine: "Machine") -> str:
    """What a run takes, roughly, said before it starts."""
    from mixerscope.progress import duration
    from mixerscope.sweep.cohorts import Cohort
    from mixerscope.sweep.cost import estimate

    seconds = estimate(Cohort((spec,)), machine).total
    about = f"{'at most ' if spec.train.stop_at_accuracy is not None else ''}about {duration(seconds)}"
    return f"{spec.train.steps:,} steps of {spec.train.batch_size} documents: {about} on {machine.device}"


def _base(spec: Path | None, task: str | None, arch: str | None, preset: str) -> dict[str, Any]:
    from mixerscope.cli.settings import read_spec_file
    from mixerscope.spec import preset as whole_setting
    from mixerscope.spec.reading import typed_name

    if spec is not None:
        if task is not None or arch is not None:
            raise UserError("give a spec file or --task and --arch, not both; --set changes what a file says")
        return read_spec_file(spec)
    if task is None or arch is None:
        raise UserError("give a spec file, or both --task and --arch, as in `mixerscope run --task ar --arch mamba`")
    return whole_setting(preset, typed_name(task), typed_name(arch))
