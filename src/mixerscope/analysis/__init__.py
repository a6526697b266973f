"""From measured grids to tables, intervals and verdicts."""

from mixerscope.analysis.cells import BEST, SHARE, best_roles, cell_rows
from mixerscope.analysis.edges import edge_rows
from mixerscope.analysis.emergence import emergence_plan, emergence_rows, observe
from mixerscope.analysis.routes import Boundary, RouteMove, Verdict, boundary_sites, verdict
from mixerscope.analysis.rules import CARRIES, MECHANISMS, MIN_GAP
from mixerscope.analysis.seeds import OverSeeds, over_seeds
from mixerscope.analysis.stats import Estimate, mean_estimate, proportion_estimate, ratio_estimate

__all__ = [
    "BEST",
    "CARRIES",
    "MECHANISMS",
    "MIN_GAP",
    "SHARE",
    "Boundary",
    "Estimate",
    "OverSeeds",
    "RouteMove",
    "Verdict",
    "best_roles",
    "boundary_sites",
    "cell_rows",
    "edge_rows",
    "emergence_plan",
    "emergence_rows",
    "mean_estimate",
    "observe",
    "over_seeds",
    "proportion_estimate",
    "ratio_estimate",
    "verdict",
]
