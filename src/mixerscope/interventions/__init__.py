"""Interchange interventions: swap one activation for its twin's and see what becomes of the answer."""

from mixerscope.interventions.effects import Effects
from mixerscope.interventions.engine import Grid, Measured, interchange
from mixerscope.interventions.pairs import Pairs, make_pairs
from mixerscope.interventions.plan import DIRECTIONS, Cell, editable_sites, plan_grid
from mixerscope.interventions.selftest import SelfTest, SiteTest, self_test

__all__ = [
    "DIRECTIONS",
    "Cell",
    "Effects",
    "Grid",
    "Measured",
    "Pairs",
    "SelfTest",
    "SiteTest",
    "editable_sites",
    "interchange",
    "make_pairs",
    "plan_grid",
    "self_test",
]
