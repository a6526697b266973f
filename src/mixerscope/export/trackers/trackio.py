"""Trackio, the tracker of Hugging Face, in its local files."""

import io
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

from mixerscope.errors import UserError
from mixerscope.export.trackers import Tracked


def send(runs: Sequence[Tracked], out: Path, project: str) -> None:
    """A run for each in the database of the project below `out`. It has no place for texts but the configuration."""
    out.mkdir(exist_ok=True)
    if "trackio" in sys.modules and Path(sys.modules["trackio"].TRACKIO_DIR) != out.absolute():
        raise UserError(
            "trackio was imported before, and writes where it did then; start anew, or use the command line"
        )
    os.environ["TRACKIO_DIR"] = str(out.absolute())  # read when it is imported
    trackio: Any = import_module("trackio")

    with redirect_stdout(io.StringIO()):  # it says how to look at each run, which we say once
        for run in runs:
            trackio.init(
                project=project,
                name=run.name,
                group=str(run.config["task.name"]),
                config={**run.config, "model": run.label, **run.texts},
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
            for step, values in run.series:
                trackio.log(dict(values), step=step)
            if run.final:
                trackio.log(dict(run.final), step=run.series[-1][0] if run.series else 0)
            trackio.finish()
