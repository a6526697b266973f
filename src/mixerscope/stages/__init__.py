"""Stages: what is done with trained models. One small file each; new ones register like mixers do."""

from mixerscope.stages.base import Done, Impossible, Result, Stage, Trained, Watch

__all__ = ["Done", "Impossible", "Result", "Stage", "Trained", "Watch"]
