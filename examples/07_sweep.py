"""Two architectures, three learning rates each: every rate of one architecture is trained in the same stack."""

import mixerscope as ms

sweep = ms.Sweep(
    base={
        "task": {"name": "ar", "num_pairs": 3, "num_keys": 6, "num_values": 6},
        "model": {"width": 16, "init": "small_model"},
        "train": {"steps": 60, "batch_size": 32, "documents": 1920, "eval_every": 30},
        "stages": {"patch": {"documents": 32}, "judge": {}},
    },
    vary={"model.architecture": ["attention", "based"], "train.lr": [1e-3, 3e-3, 1e-2]},
)
for result in ms.run_sweep(sweep, "runs/example-sweep"):
    print(result.spec.model.architecture, result.spec.train.lr, f"{result.curve.points[-1].accuracy:.0%}")
