"""The runs that are trained for measurements and checks."""

from mixerscope.spec import RunSpec

RATES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)


TASKS = {"recall": "ar:paper", "treecall": "atr:paper"}


def published_spec(architecture: str, width: int, precision: str, task: str = "recall") -> RunSpec:
    """Associative recall or treecall as published; fewer documents, which changes no step's cost."""
    train = {"documents": 32 * 200, "precision": precision}
    return RunSpec.model_validate(
        {"task": TASKS[task], "model": {"architecture": architecture, "width": width}, "train": train}
    )


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
