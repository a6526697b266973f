"""From measured grids to tables, intervals and verdicts."""

from mixerscope.analysis.cells import SHARE, cell_rows
from mixerscope.analysis.routes import Boundary, RouteMove, Verdict, boundary_sites, verdict
from mixerscope.analysis.rules import CARRIES, MECHANISMS, MIN_GAP
from mixerscope.analysis.seeds import OverSeeds, over_seeds
from mixerscope.analysis.stats import Estimate, mean_estimate, proportion_estimate, ratio_estimate

__all__ = [
    "CARRIES",
    "MECHANISMS",
    "MIN_GAP",
    "SHARE",
    "Boundary",
    "Estimate",
    "OverSeeds",
    "RouteMove",
    "Verdict",
    "boundary_sites",
    "cell_rows",
    "mean_estimate",
    "over_seeds",
    "proportion_estimate",
    "ratio_estimate",
    "verdict",
]
