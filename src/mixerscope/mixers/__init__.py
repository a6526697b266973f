"""Sequence mixers. Found by name through the registry; import one directly only to subclass or test it."""

from mixerscope.mixers.base import Mixer, Move

__all__ = ["Mixer", "Move"]
