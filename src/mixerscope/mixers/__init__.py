"""Sequence mixers. Found by name through the registry; import one directly only to subclass or test it."""

from mixerscope.mixers.base import InitRule, Mixer, Move

__all__ = ["InitRule", "Mixer", "Move"]
