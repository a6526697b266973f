"""`mixerscope track`: finished runs in somebody's tracker."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from mixerscope.cli.console import results
from mixerscope.errors import FAILED, FINE


def track(
    folder: Path,
    /,
    *,
    to: Literal["tensorboard", "wandb", "trackio"],
    out: Path | None = None,
    project: str = "mixerscope",
    strict: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Learning curves, emergence, final scores and verdicts of finished runs as the local files of a tracker.

    Parameters
    ----------
    folder
        A run's folder, or one that holds run folders.
    to
        A tracker whose package is installed; each is an extra of its name. W&B is used offline.
    out
        A new folder for its files; left out: one of the tracker's name, here.
    project
        What the tracker calls these runs.
    strict
        Refuse a folder in which a run is damaged; else it is named and left out, and the exit code is 1.
    """
    from mixerscope.cli.damage import sound_runs
    from mixerscope.export.trackers import track as send

    runs, left_out = sound_runs(folder, strict)
    look = send(runs, to, out or Path(to), project)
    results().print(f"{len(runs)} run{'s' if len(runs) > 1 else ''}: {look}", markup=False, soft_wrap=True)
    return FAILED if left_out else FINE
