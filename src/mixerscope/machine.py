"""Where and how a run is computed: what changes no result beyond rounding, and is recorded with every result."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch

from mixerscope.errors import UserError

Kernels = Literal["auto", "plain"]


@dataclass(frozen=True)
class Machine:
    """The device and how it is used."""

    device: Literal["cpu", "cuda"] = "cpu"
    threads: int = 1
    """Of the CPU. With one, the same spec gives the same bytes whatever the number of cores."""
    kernels: Kernels = "auto"
    """`auto`: on a GPU, kernels of our own wherever they agree with the plain operations; `plain`: never."""
    compile: bool = False
    """Whether training steps go through `torch.compile`: about twice the speed on a GPU, after half a minute."""

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise UserError(f"threads = {self.threads} should be at least 1")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise UserError("torch finds no CUDA device here; train on the CPU, which is the default")


CPU = Machine()


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Sets the number of threads torch computes with, and sets it back."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
