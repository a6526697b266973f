"""Synthetic tasks, usable on their own: `AR(num_pairs=16).sample(1000, rng)`."""

from mixerscope.tasks.ar import AR
from mixerscope.tasks.atr import ATR
from mixerscope.tasks.base import UNSCORED, Batch, Change, Symbols, Task
from mixerscope.tasks.baselines import guessing_baselines
from mixerscope.tasks.dyck import Dyck
from mixerscope.tasks.export import export
from mixerscope.tasks.flip_flop import FlipFlop
from mixerscope.tasks.grammar import Grammar, GrammarRecipe
from mixerscope.tasks.mqar import MQAR
from mixerscope.tasks.ngram import NGram
from mixerscope.tasks.selective_copy import SelectiveCopy
from mixerscope.tasks.state_tracking import StateTask
from mixerscope.tasks.words import GroupWord, Parity

__all__ = [
    "AR",
    "ATR",
    "MQAR",
    "UNSCORED",
    "Batch",
    "Change",
    "Dyck",
    "FlipFlop",
    "Grammar",
    "GrammarRecipe",
    "GroupWord",
    "NGram",
    "Parity",
    "SelectiveCopy",
    "StateTask",
    "Symbols",
    "Task",
    "export",
    "guessing_baselines",
]
