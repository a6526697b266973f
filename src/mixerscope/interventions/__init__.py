"""Interventions: write into one activation and see what becomes of the answer."""

from mixerscope.interventions.cache import activations, logit_lens
from mixerscope.interventions.edits import (
    EDITS,
    Add,
    Edit,
    Here,
    Mean,
    Noise,
    ProjectOut,
    Resample,
    Swap,
    Zero,
)
from mixerscope.interventions.effects import METRICS, Effects
from mixerscope.interventions.engine import Grid, Measured, interchange
from mixerscope.interventions.pairs import Pairs, make_pairs
from mixerscope.interventions.plan import DIRECTIONS, Cell, editable_sites, plan_grid
from mixerscope.interventions.selftest import SelfTest, SiteTest, self_test
from mixerscope.interventions.states import state_sites

__all__ = [
    "DIRECTIONS",
    "EDITS",
    "METRICS",
    "Add",
    "Cell",
    "Edit",
    "Effects",
    "Grid",
    "Here",
    "Mean",
    "Measured",
    "Noise",
    "Pairs",
    "ProjectOut",
    "Resample",
    "SelfTest",
    "SiteTest",
    "Swap",
    "Zero",
    "activations",
    "editable_sites",
    "interchange",
    "logit_lens",
    "make_pairs",
    "plan_grid",
    "self_test",
    "state_sites",
]
