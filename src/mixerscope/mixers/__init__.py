"""Sequence mixers. Found by name through the registry; import one directly only to subclass or test it."""

from mixerscope.mixers.base import InitRule, Mixer, Mover

__all__ = ["InitRule", "Mixer", "Mover"]
