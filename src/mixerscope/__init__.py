"""Mixerscope: which mechanism did this sequence-model architecture learn?"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mixerscope.analysis import over_seeds, verdict
    from mixerscope.interventions import (
        Cell,
        Edge,
        activations,
        adapt,
        attribution_patching,
        check_model,
        interchange,
        interchange_cohort,
        logit_lens,
        make_pairs,
        patch_paths,
        plan_grid,
    )
    from mixerscope.mixers import Mixer
    from mixerscope.model import Model, build_model
    from mixerscope.registry import register
    from mixerscope.report import write_report
    from mixerscope.runs import load_run, run, run_cohort
    from mixerscope.sites import Site, edit, record
    from mixerscope.spec import InterventionSpec, RunSpec
    from mixerscope.sweep import Sweep
    from mixerscope.tasks import AR, ATR, MQAR, Batch, NGram, SelectiveCopy, Task
    from mixerscope.training import train_cohort

__version__ = "0.1.0"

# Loaded on first use: `import mixerscope` and `mixerscope ls` stay fast, and torch is imported only where it is needed.
_EXPORTS = {
    "AR": "mixerscope.tasks",
    "SelectiveCopy": "mixerscope.tasks",
    "NGram": "mixerscope.tasks",
    "MQAR": "mixerscope.tasks",
    "ATR": "mixerscope.tasks",
    "Batch": "mixerscope.tasks",
    "Cell": "mixerscope.interventions",
    "Edge": "mixerscope.interventions",
    "Mixer": "mixerscope.mixers",
    "Model": "mixerscope.model",
    "InterventionSpec": "mixerscope.spec",
    "RunSpec": "mixerscope.spec",
    "Site": "mixerscope.sites",
    "Sweep": "mixerscope.sweep",
    "Task": "mixerscope.tasks",
    "activations": "mixerscope.interventions",
    "attribution_patching": "mixerscope.interventions",
    "build_model": "mixerscope.model",
    "check_model": "mixerscope.interventions",
    "adapt": "mixerscope.interventions",
    "edit": "mixerscope.sites",
    "interchange": "mixerscope.interventions",
    "interchange_cohort": "mixerscope.interventions",
    "load_run": "mixerscope.runs",
    "logit_lens": "mixerscope.interventions",
    "make_pairs": "mixerscope.interventions",
    "over_seeds": "mixerscope.analysis",
    "patch_paths": "mixerscope.interventions",
    "plan_grid": "mixerscope.interventions",
    "record": "mixerscope.sites",
    "register": "mixerscope.registry",
    "write_report": "mixerscope.report",
    "run": "mixerscope.runs",
    "run_cohort": "mixerscope.runs",
    "train_cohort": "mixerscope.training",
    "verdict": "mixerscope.analysis",
}
__all__ = [
    "AR",
    "ATR",
    "MQAR",
    "Batch",
    "Cell",
    "Edge",
    "InterventionSpec",
    "Mixer",
    "Model",
    "NGram",
    "RunSpec",
    "SelectiveCopy",
    "Site",
    "Sweep",
    "Task",
    "activations",
    "adapt",
    "attribution_patching",
    "build_model",
    "check_model",
    "edit",
    "interchange",
    "interchange_cohort",
    "load_run",
    "logit_lens",
    "make_pairs",
    "over_seeds",
    "patch_paths",
    "plan_grid",
    "record",
    "register",
    "run",
    "run_cohort",
    "train_cohort",
    "verdict",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        from importlib import import_module

        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'mixerscope' has no attribute {name!r}")
