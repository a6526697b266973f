"""Synthetic tasks, usable on their own: `AR(num_pairs=16).sample(1000, rng)`."""

from mixerscope.tasks.ar import AR
from mixerscope.tasks.base import UNSCORED, Batch, Task

__all__ = ["AR", "UNSCORED", "Batch", "Task"]
