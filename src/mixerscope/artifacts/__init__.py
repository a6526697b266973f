"""Typed artifacts: each result has one class, one file name, one writer and one reader. Nothing here computes.

`mixerscope.artifacts.effects` holds the one that needs torch.
"""

from mixerscope.artifacts.base import Artifact, Frames, JsonArtifact, Readable, tables_of
from mixerscope.artifacts.emergence import Emergence, EmergencePoint
from mixerscope.artifacts.erasures import MOST_LEFT, Ablated, Erased, ErasedOnce, Erasures, Refitted
from mixerscope.artifacts.estimate import Estimate
from mixerscope.artifacts.interchanges import Earlier, Interchanged, Interchanges
from mixerscope.artifacts.lengths import AtLength, Lengths
from mixerscope.artifacts.patterns import Attended, Held, Patterns
from mixerscope.artifacts.probes import ProbedLabel, Probes
from mixerscope.artifacts.scores import Scores
from mixerscope.artifacts.self_test import SelfTest, SiteTest
from mixerscope.artifacts.stage import StageOutcome, StageRecord
from mixerscope.artifacts.training import Curve, Evaluation, Provenance, Record, Status, Timing, Weights
from mixerscope.artifacts.verdicts import Boundary, RouteMove, Verdict, Verdicts

__all__ = [
    "MOST_LEFT",
    "Ablated",
    "Artifact",
    "AtLength",
    "Attended",
    "Boundary",
    "Curve",
    "Earlier",
    "Emergence",
    "EmergencePoint",
    "Erased",
    "ErasedOnce",
    "Erasures",
    "Estimate",
    "Evaluation",
    "Frames",
    "Held",
    "Interchanged",
    "Interchanges",
    "JsonArtifact",
    "Lengths",
    "Patterns",
    "ProbedLabel",
    "Probes",
    "Provenance",
    "Readable",
    "Record",
    "Refitted",
    "RouteMove",
    "Scores",
    "SelfTest",
    "SiteTest",
    "StageOutcome",
    "StageRecord",
    "Status",
    "Timing",
    "Verdict",
    "Verdicts",
    "Weights",
    "tables_of",
]
