"""Two architectures, three learning rates each: every rate of one architecture is trained in the same stack."""

from pathlib import Path

import mixerscope as ms
from mixerscope.machine import Machine
from mixerscope.sweep import execute, make_plan
from mixerscope.sweep.best import finished_runs

sweep = ms.Sweep(
    base={
        "task": {"name": "ar", "num_pairs": 3, "num_keys": 6, "num_values": 6},
        "model": {"width": 16, "init": "small_model"},
        "train": {"steps": 60, "batch_size": 32, "documents": 1920, "eval_every": 30},
        "stages": {"patch": {"documents": 32}, "judge": {}},
    },
    vary={"model.architecture": ["attention", "based"], "train.lr": [1e-3, 3e-3, 1e-2]},
)
root, machine = Path("runs/example-sweep"), Machine("cpu")
outcome = execute(make_plan(sweep.runs(), root, machine), root, machine)
for row in outcome.cohorts:
    print(f"{row.label}: {row.members} models in {row.wall_s:.1f} s")
for result in finished_runs(sweep.runs(), root):
    print(result.spec.model.architecture, result.spec.train.lr, f"{result.curve.points[-1].accuracy:.0%}")
