"""Whole settings by name: one that a laptop learns in a minute, and the published one."""

import copy
from typing import Any

from mixerscope.errors import UnknownName
from mixerscope.registry import TASKS
from mixerscope.spec.run import task_object

SMALL_STEPS, SMALL_BATCH = 1500, 64
PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "small": (
        "a small task that one core learns in about a minute",
        {
            "model": {"width": 32, "init": "small_model"},
            "train": {
                "steps": SMALL_STEPS,
                "batch_size": SMALL_BATCH,
                "documents": SMALL_STEPS * SMALL_BATCH,  # every batch is fresh
                "lr": 5e-3,
                "eval_every": 50,
                "stop_at_accuracy": 0.98,
            },
        },
    ),
    "paper": (
        "the published setting: 50,016 steps and thousands of symbols, hours on a CPU",
        {"stages": {"patch": {"symbols": "query-class"}, "prove": {}, "judge": {}}},
    ),
}
"""Name to what it means, and the settings that differ from the defaults."""


def preset(name: str, task: str, architecture: str) -> dict[str, Any]:
    """A run spec to start from, as JSON: a task (or `task:preset` of it) and an architecture in a whole setting.

    A task that has a preset of the same name takes it, unless another one is named. The small setting asks what there
    is to ask of the task's models.
    """
    if name not in PRESETS:
        raise UnknownName("preset", name, PRESETS)
    data = copy.deepcopy(PRESETS[name][1])
    named = task_object(task)
    task_class = TASKS.load(named["name"])
    if "preset" not in named and name in task_class.presets:
        named["preset"] = name
    data.setdefault("stages", {stage: {} for stage in task_class.usual_stages})
    data["task"] = named
    data["model"] = {**data.get("model", {}), "architecture": architecture}
    return data
