"""The demo: three architectures on a recall task that a laptop solves in a minute or two."""

from typing import Any

from mixerscope.spec import RunSpec

STEPS = 1500
TASK = {"name": "ar", "num_pairs": 4, "num_keys": 16, "num_values": 16, "num_queries": 4}
# Width, learning rate and documents a step with which each solves the task soonest on a CPU.
SETTINGS: dict[str, dict[str, Any]] = {
    "attention": {"width": 64, "lr": 3e-3, "batch_size": 128},
    "based": {"width": 32, "lr": 5e-3, "batch_size": 64},
    "mamba": {"width": 64, "lr": 1e-2, "batch_size": 64},
}
ACCURACY = 0.95
"""What each model must reach on fresh documents."""


def demo_specs() -> list[RunSpec]:
    """One run per architecture. Which mechanism they learn is measured, not assumed."""
    return [
        RunSpec.model_validate(
            {
                "task": TASK,
                "model": {"architecture": architecture, "width": setting["width"], "init": "wide_embedding"},
                "train": {
                    "steps": STEPS,
                    "batch_size": setting["batch_size"],
                    "documents": STEPS * setting["batch_size"],
                    "lr": setting["lr"],
                    "eval_every": 50,
                    "stop_at_accuracy": 0.98,
                },
                "interventions": {"avoid_present": True},
            }
        )
        for architecture, setting in SETTINGS.items()
    ]
