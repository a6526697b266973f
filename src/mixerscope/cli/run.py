"""`mixerscope run`: one model, trained, taken apart and judged."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from mixerscope.cli.console import remarks, results
from mixerscope.errors import UserError

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
    set_: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
    out: Path = Path("runs"),
    fresh: Annotated[bool, Parameter(negative=())] = False,
    threads: int = 1,
    device: Literal["cpu", "cuda"] = "cpu",
    kernels: Literal["auto", "plain"] = "auto",
    compile_: Annotated[bool, Parameter(name="--compile", negative=())] = False,
) -> int:
    """Train one model, intervene on it and name its mechanism.

    Parameters
    ----------
    spec
        A JSON file; `mixerscope new spec` writes one.
    task
        A task's name, or `atr:paper` for a preset of it, instead of a file.
    arch
        An architecture's name, instead of a file.
    set_
        path=value, such as train.steps=100, model.width=32 or task.num_pairs=8; may be given several times.
    out
        The run gets a folder of its own in here.
    fresh
        Train even if the finished run is there.
    threads
        Cores torch may use; more than one can change the last bits of a result.
    device
        Where the model is trained and taken apart.
    kernels
        `plain` computes everything with PyTorch's own operations.
    compile_
        Pass training steps through torch.compile: about twice the speed on a GPU, after half a minute.
    """
    from mixerscope.cli.settings import make_spec
    from mixerscope.cli.verdicts import diverged, verdict_table
    from mixerscope.machine import Machine

    machine = Machine(device, threads, kernels, compile_)
    result = finished_run(make_spec(_base(spec, task, arch), set_), out, fresh=fresh, machine=machine)
    results().print(verdict_table([result]))
    results().print(f"the run is in {result.folder.path}", markup=False, soft_wrap=True)
    return 1 if diverged(result) else 0


def finished_run(spec: "RunSpec", out: Path, *, fresh: bool, machine: "Machine | None" = None) -> "RunResult":
    """The run of a spec: found with every file intact, or made while progress is shown."""
    from mixerscope.cli.progress import following
    from mixerscope.machine import CPU
    from mixerscope.runs import run, run_folder

    folder = run_folder(spec, out)
    if folder.finished and not fresh:
        folder.verify()
        remarks().print(f"found the finished run {folder.path}, nothing to train", markup=False, soft_wrap=True)
        return run(spec, out)
    with following(spec.model.architecture) as progress:
        return run(spec, out, progress, fresh=fresh, machine=machine or CPU)


def _base(spec: Path | None, task: str | None, arch: str | None) -> dict[str, Any]:
    from mixerscope.cli.settings import read_spec_file

    if spec is not None:
        if task is not None or arch is not None:
            raise UserError("give a spec file or --task and --arch, not both; --set changes what a file says")
        return read_spec_file(spec)
    if task is None or arch is None:
        raise UserError("give a spec file, or both --task and --arch, as in `mixerscope run --task ar --arch mamba`")
    return {"task": task, "model": {"architecture": arch}}
