"""Random streams. Every random number comes from a generator made here; global RNG state is never touched."""

import hashlib
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
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


def global_states() -> tuple[bytes, bytes, str]:
    """What the global generators of torch, numpy and Python hold, to see whether somebody drew from them."""
    of_numpy: Any = np.random.get_state(legacy=False)  # noqa: NPY002 - it is this one that is watched
    words, position = of_numpy["state"]["key"], of_numpy["state"]["pos"]
    return torch.get_rng_state().numpy().tobytes(), words.tobytes() + str(position).encode(), repr(random.getstate())


@contextmanager
def scrambled(seed: int) -> Iterator[None]:
    """Puts the global generators of torch, numpy and Python in a state of the seed; afterwards they are as before."""
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
    with construction(seed):
        np.random.set_state(np.random.RandomState(seed).get_state())  # noqa: NPY002
        random.setstate(random.Random(seed).getstate())
        try:
            yield
        finally:
            np.random.set_state(numpy_state)  # noqa: NPY002
            random.setstate(python_state)
