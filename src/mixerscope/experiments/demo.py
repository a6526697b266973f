"""The demo: three architectures on a recall task that a laptop solves in a minute or two."""

from mixerscope.spec import RunSpec

WIDTH = 32
STEPS = 1000
BATCH = 64
TASK = {"name": "ar", "num_pairs": 4, "num_keys": 8, "num_values": 8, "num_queries": 2}
# Chosen by the steps each architecture needs to solve the task; what they learn was not looked at.
LEARNING_RATES = {"attention": 1e-3, "based": 5e-3, "mamba": 1e-2}
ACCURACY = 0.95
"""What each model must reach on fresh documents."""


def demo_specs() -> list[RunSpec]:
    """One run per architecture. Which mechanism they learn is measured, not assumed."""
    return [
        RunSpec.model_validate(
            {
                "task": TASK,
                "model": {"architecture": architecture, "width": WIDTH, "init": "small_model"},
                "train": {
                    "steps": STEPS,
                    "batch_size": BATCH,
                    "documents": STEPS * BATCH,  # every batch is fresh
                    "lr": rate,
                    "eval_every": 50,
                    "stop_at_accuracy": 0.98,
                },
                "interventions": {"avoid_present": True},
            }
        )
        for architecture, rate in LEARNING_RATES.items()
    ]
