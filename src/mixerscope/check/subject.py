"""The mixer under test, and what all tests need of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mixerscope.mixers.base import InitRule, Mixer
from mixerscope.randomness import construction, stream

DEPTH = 2
STIR = 0.2
"""Noise put on freshly initialised weights: many published rules start so close to zero that nothing would show."""
TOLERANCE = 1e-9
"""Largest difference, as a share of the largest value, that counts as rounding in float64."""


SINGLE_TOLERANCE = 1e-3
"""The same in float32, where long sums and transforms of Fourier's kind round."""
LENGTHS = (1, 2, 7, 13, 40, 64, 129)
"""Of documents: around powers of two, and longer than the chunks in which many mixers work."""


@dataclass(frozen=True)
class Subject:
    """A mixer class with the width and options it is tried at."""

    cls: type[Mixer]
    name: str | None
    """Its name in the registry, None for a class that is not there."""
    width: int
    options: Mapping[str, Any] = field(default_factory=dict)
    length: int | None = None
    """A further length of documents to try."""

    @property
    def lengths(self) -> tuple[int, ...]:
        return LENGTHS if self.length is None else tuple(sorted({*LENGTHS, self.length}))

    def fresh(self, seed: int = 0, dtype: torch.dtype = torch.float64) -> Mixer:
        """An instance with the weights its own rule gives it."""
        with construction(seed):
            mixer = self.cls(self.width, **self.options)
        mixer.init_weights(stream(seed, "check", "weights"), InitRule(DEPTH))
        return mixer.to(dtype)

    def build(self, seed: int = 0) -> Mixer:
        """An instance in float64 with weights as they might be after some training."""
        mixer = self.fresh(seed)
        rng = stream(seed, "check", "stir")
        with torch.no_grad():
            for parameter in mixer.parameters():
                parameter += STIR * torch.randn(parameter.shape, generator=rng, dtype=parameter.dtype)
        return mixer

    def documents(self, count: int, length: int, seed: int = 0) -> Tensor:
        """[count, length, width] inputs as a norm would hand them over."""
        rng = stream(seed, "check", "documents", count, length)
        return torch.randn(count, length, self.width, generator=rng, dtype=torch.float64)


def gap(found: Tensor, expected: Tensor) -> float:
    """The largest difference as a share of the largest expected value; infinite where a value is not finite."""
    if not bool(found.isfinite().all() and expected.isfinite().all()):
        return float("inf")
    difference = (found - expected).abs().max().item() if found.numel() else 0.0
    if difference == 0.0:
        return 0.0
    size = expected.abs().max().item()
    return difference / size if size else float("inf")
