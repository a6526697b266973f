"""From measured grids to tables, intervals and verdicts."""

from mixerscope.analysis.cells import BEST, SHARE, best_roles, cell_rows
from mixerscope.analysis.emergence import emergence_plan, emergence_rows, observe
from mixerscope.analysis.routes import (
    CARRIES,
    MECHANISMS,
    MIN_GAP,
    Boundary,
    RouteMove,
    Verdict,
    boundary_sites,
    verdict,
)
from mixerscope.analysis.stats import Estimate, mean_estimate, ratio_estimate, resampling_counts

__all__ = [
    "BEST",
    "CARRIES",
    "MECHANISMS",
    "MIN_GAP",
    "SHARE",
    "Boundary",
    "Estimate",
    "RouteMove",
    "Verdict",
    "best_roles",
    "boundary_sites",
    "cell_rows",
    "emergence_plan",
    "emergence_rows",
    "mean_estimate",
    "observe",
    "ratio_estimate",
    "resampling_counts",
    "verdict",
]
