"""All tasks and presets, for tests that must hold for each of them."""

import torch

from mixerscope.registry import TASKS
from mixerscope.tasks.base import Task
from mixerscope.tasks.state_tracking import StateTask

BUILT_IN = [entry.name for entry in TASKS.entries() if entry.origin == "mixerscope"]
PRESETS = [(name, preset) for name in BUILT_IN for preset in TASKS.load(name).presets]

STATES = {name for name in BUILT_IN if issubclass(TASKS.load(name), StateTask)}
"""Tasks that ask at every position, for the state that the inputs led to."""


def task_of(name: str, preset: str) -> Task:
    return TASKS.load(name).preset(preset)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
