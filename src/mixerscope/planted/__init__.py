"""Models with a mechanism that is known, because their weights were written by hand: what a tool can be judged with."""

from mixerscope.planted.zoo import ALL, DOCUMENTS, MIXED, RETRIEVERS, SHAMS, SIZE, TASK, Planted

__all__ = ["ALL", "DOCUMENTS", "MIXED", "RETRIEVERS", "SHAMS", "SIZE", "TASK", "Planted"]
