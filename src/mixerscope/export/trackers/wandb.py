"""Weights & Biases in offline mode: nothing leaves this machine until somebody calls `wandb sync`."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from mixerscope.export.trackers import Tracked

wandb: Any = import_module("wandb")


def send(runs: Sequence[Tracked], out: Path, project: str) -> None:
    """An offline run for each, under its own id, so that sending it again from elsewhere is the same run."""
    out.mkdir(exist_ok=True)
    settings = wandb.Settings(
        silent=True,
        console="off",
        # Of this machine and this process, which did not train the models.
        x_disable_stats=True,
        x_disable_meta=True,
        disable_git=True,
        save_code=False,
    )
    for run in runs:
        sent = wandb.init(
            project=project,
            name=run.label,
            id=run.run_id,
            group=str(run.config["task.name"]),
            dir=str(out),
            mode="offline",
            config=dict(run.config),
            settings=settings,
        )
        for step, values in run.series:
            sent.log(values, step=step)
        sent.summary.update({**run.final, **run.texts})
        sent.finish()
