"""Stages: what is done with trained models. One small file each; new ones register like mixers do."""

from mixerscope.stages.base import Cohort, Done, Impossible, Result, Stage, Watch

__all__ = ["Cohort", "Done", "Impossible", "Result", "Stage", "Watch"]
