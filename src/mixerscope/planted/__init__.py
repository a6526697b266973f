"""Models with a mechanism that is known, because their weights were written by hand: what a tool can be judged with."""

from mixerscope.planted.truth import DOCUMENTS, SIZE, TASK, Planted, Route
from mixerscope.planted.zoo import ALL, EVERY, MIXED, MORE, RETRIEVERS, SHAMS

__all__ = ["ALL", "DOCUMENTS", "EVERY", "MIXED", "MORE", "RETRIEVERS", "SHAMS", "SIZE", "TASK", "Planted", "Route"]
