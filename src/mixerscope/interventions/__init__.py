"""Interventions: write into one activation and see what becomes of the answer."""

from mixerscope.interventions.adapt import Adapted, adapt
from mixerscope.interventions.attribution import ApproximationError, Attribution, attribution_patching
from mixerscope.interventions.cache import activations, logit_lens
from mixerscope.interventions.check_model import ModelCheck, check_model
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
from mixerscope.interventions.engine import (
    Grid,
    Measured,
    grids_or_failures,
    interchange,
    interchange_cohort,
    unedited_effects,
)
from mixerscope.interventions.hugging_face import adapt_hf
from mixerscope.interventions.pairs import Pairs, PairSettings, make_pairs
from mixerscope.interventions.paths import Edge, PathGrid, patch_paths
from mixerscope.interventions.plan import (
    DIRECTIONS,
    Cell,
    boundary_sites,
    editable_sites,
    full_plan,
    judging_cells,
    plan_grid,
    verdict_plan,
)
from mixerscope.interventions.prove import Route, other_sizes, prove, prove_cohort, prove_table, verdict, verdicts
from mixerscope.interventions.reads import Reads
from mixerscope.interventions.selftest import SelfTest, SiteTest, self_test
from mixerscope.interventions.states import state_sites
from mixerscope.interventions.table import edge_rows, effect_table

__all__ = [
    "DIRECTIONS",
    "EDITS",
    "METRICS",
    "Adapted",
    "Add",
    "ApproximationError",
    "Attribution",
    "Cell",
    "Edge",
    "Edit",
    "Effects",
    "Grid",
    "Here",
    "Mean",
    "Measured",
    "ModelCheck",
    "Noise",
    "PairSettings",
    "Pairs",
    "PathGrid",
    "ProjectOut",
    "Reads",
    "Resample",
    "Route",
    "SelfTest",
    "SiteTest",
    "Swap",
    "Zero",
    "activations",
    "adapt",
    "adapt_hf",
    "attribution_patching",
    "boundary_sites",
    "check_model",
    "edge_rows",
    "editable_sites",
    "effect_table",
    "full_plan",
    "grids_or_failures",
    "interchange",
    "interchange_cohort",
    "judging_cells",
    "logit_lens",
    "make_pairs",
    "other_sizes",
    "patch_paths",
    "plan_grid",
    "prove",
    "prove_cohort",
    "prove_table",
    "self_test",
    "state_sites",
    "unedited_effects",
    "verdict",
    "verdict_plan",
    "verdicts",
]
