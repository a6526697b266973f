"""The runs that are trained for measurements and checks."""

from typing import Any

from mixerscope.spec import RunSpec

RATES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)


TASKS: dict[str, Any] = {"recall": "ar:paper", "treecall": "atr:paper", "parity": {"name": "parity", "length": 12}}
STATES = {"layers": 4, "init": "small_model"}
STATES_OPTIONS = {"attention": {"heads": 4, "relative": "rope"}, "mamba2": {"heads": 8, "d_state": 64}}


def published_spec(architecture: str, width: int, precision: str, task: str = "recall") -> RunSpec:
    """Recall or treecall as published, parity as in the state study; fewer documents, which changes no step's cost."""
    model: dict[str, Any] = {"architecture": architecture, "width": width}
    train: dict[str, Any] = {"documents": 32 * 200, "precision": precision}
    if task == "parity":
        model |= {**STATES, "options": STATES_OPTIONS.get(architecture, {})}
        train |= {"batch_size": 128, "documents": 128 * 200}
    return RunSpec.model_validate({"task": TASKS[task], "model": model, "train": train})


def small_spec(architecture: str = "attention") -> RunSpec:
    return RunSpec.model_validate(
        {
            "task": {"name": "ar", "num_pairs": 4, "num_keys": 8, "num_values": 8},
            "model": {"architecture": architecture, "width": 16, "max_length": 16},
            "train": {"steps": 100, "documents": 3200, "eval_every": 100},
        }
    )


def with_rates(spec: RunSpec, rates: tuple[float, ...] = RATES) -> list[RunSpec]:
    return [spec.changed(train=spec.train.changed(lr=rate)) for rate in rates]
