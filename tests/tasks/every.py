"""All tasks and presets, for tests that must hold for each of them."""

import torch

from mixerscope.registry import TASKS
from mixerscope.tasks.base import Task

BUILT_IN = [entry.name for entry in TASKS.entries() if entry.origin == "mixerscope"]
PRESETS = [(name, preset) for name in BUILT_IN for preset in TASKS.load(name).presets]


def task_of(name: str, preset: str) -> Task:
    return TASKS.load(name).preset(preset)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
