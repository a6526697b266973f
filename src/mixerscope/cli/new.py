"""`mixerscope new`: files to start from."""

import json
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from mixerscope.cli.console import results
from mixerscope.cli.skeleton import Kind, write_skeleton
from mixerscope.errors import CannotWrite, UserError

HERE = Path()
Name = Annotated[str, Parameter(help="Of the package and its folder, which must not exist yet.")]
Out = Annotated[Path, Parameter(help="Where the folder goes.")]

new = App(name="new", help="Write something to start from: a spec file, or a package.", result_action="return_value")


@new.command(name="spec")
def new_spec(
    path: Path = Path("spec.json"),
    /,
    *,
    task: str = "ar",
    arch: str = "attention",
    preset: Literal["small", "paper"] = "small",
    set_: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
) -> int:
    """Write a run spec with every default written out. Example: mixerscope new spec --arch mamba mamba.json

    Parameters
    ----------
    path
        A file that does not exist yet.
    task
        `mixerscope ls tasks`.
    arch
        `mixerscope ls architectures`.
    preset
        What to start from: `small` learns in about a minute on one core, `paper` is the published setting.
    set_
        path=value, such as train.steps=100; may be given several times.
    """
    from mixerscope.cli.settings import make_spec
    from mixerscope.spec import preset as whole_setting
    from mixerscope.spec.reading import typed_name
    from mixerscope.store import write_bytes

    spec = make_spec(whole_setting(preset, typed_name(task), typed_name(arch)), set_)
    text = json.dumps(spec.model_dump(mode="json"), indent=2) + "\n"
    if path.exists():
        raise UserError(f"{path} exists already; give another name")
    try:
        write_bytes(path, text.encode())
    except CannotWrite as error:
        raise UserError(str(error)) from error
    results().print(f"wrote {path}; `mixerscope run {path}` runs it", markup=False, soft_wrap=True)
    return 0


@new.command(name="mixer")
def new_mixer(name: Name, /, *, out: Out = HERE) -> int:
    """Write a package with a mixer, its entry point and a test that passes. Example: mixerscope new mixer my-mixer"""
    return _new_package("mixer", name, out)


@new.command(name="task")
def new_task(name: Name, /, *, out: Out = HERE) -> int:
    """Write a package with a task, its entry point and a test that passes. Example: mixerscope new task my-task"""
    return _new_package("task", name, out)


@new.command(name="stage")
def new_stage(name: Name, /, *, out: Out = HERE) -> int:
    """Write a package with a stage, its entry point and a test that passes. Example: mixerscope new stage my-stage"""
    return _new_package("stage", name, out)


def _new_package(kind: Kind, name: str, out: Path) -> int:
    folder = write_skeleton(kind, name, out)
    known = f"{name}/{name.replace('-', '_')}"
    tried = f"mixerscope check {known}" if kind != "stage" else "mixerscope ls stages"
    said = [f"wrote {folder}, a package with a {kind}; next:", f"  pip install -e '{folder}[test]'"]
    said += [f"  pytest {folder}/tests", f"  {tried}"]
    results().print("\n".join(said), markup=False, soft_wrap=True)
    return 0
