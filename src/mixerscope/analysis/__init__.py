"""From stored effects to verdicts, intervals and comparisons: pure functions, which need no model."""

from mixerscope.analysis.judge import hypotheses, judge, judge_slot
from mixerscope.analysis.naming import FalseNames, false_names
from mixerscope.analysis.rules import Rules
from mixerscope.analysis.seeds import OverSeeds, over_seeds
from mixerscope.analysis.stats import mean_estimate, proportion_estimate, ratio_estimate

__all__ = [
    "FalseNames",
    "OverSeeds",
    "Rules",
    "false_names",
    "hypotheses",
    "judge",
    "judge_slot",
    "mean_estimate",
    "over_seeds",
    "proportion_estimate",
    "ratio_estimate",
]
