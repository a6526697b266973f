"""Random streams. Every random number comes from a generator made here; global RNG state is never touched."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_GLOBAL_GENERATOR = threading.RLock()
"""There is one for all threads; two that construct models at once would draw from each other's stream."""


def stream(seed: int, *purpose: str | int) -> torch.Generator:
    """A generator of its own for each (seed, purpose), on the CPU."""
    key = "/".join(str(part) for part in (seed, *purpose))
    value = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 1
    return torch.Generator().manual_seed(value)


@contextmanager
def construction(seed: int) -> Iterator[None]:
    """Torch layers draw from the global generator when constructed; in here that is repeatable and leaves no trace."""
    with _GLOBAL_GENERATOR:
        before = torch.get_rng_state()
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            torch.set_rng_state(before)
