"""`mixerscope new`: files to start from."""

import json
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from mixerscope.cli.console import results
from mixerscope.errors import CannotWrite, UserError

new = App(name="new", help="Write a spec file to start from.", result_action="return_value")


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
