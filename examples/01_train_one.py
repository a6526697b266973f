"""Train one model and look at its learning curve."""

import mixerscope as ms

spec = ms.RunSpec.model_validate(
    {
        "task": {"name": "ar", "num_pairs": 3, "num_keys": 6, "num_values": 6, "num_queries": 2},
        "model": {"architecture": "based", "width": 32, "init": "small_model"},
        "train": {"steps": 300, "batch_size": 64, "documents": 19_200, "lr": 5e-3, "eval_every": 50},
    }
)
[member] = ms.train_cohort([spec])
for point in member.history:
    print(f"step {point.step:4d}  accuracy {point.accuracy:.3f}")
