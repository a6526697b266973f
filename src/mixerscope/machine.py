"""Where and how a run is computed: what changes no result beyond rounding, and is recorded with every result."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from threading import Lock
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

    memory_gib: float | None = None
    """What a cohort may use of a GPU's memory; left out, what is free. A larger cohort is trained in several parts."""
    checkpoint_seconds: float = 60.0
    """Between two checkpoints of a training, which is what a kill loses at most; changes no result."""

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise UserError(f"threads = {self.threads} should be at least 1")
        if self.memory_gib is not None and self.memory_gib <= 0:
            raise UserError(f"memory_gib = {self.memory_gib:g} should be more than 0")
        if not self.checkpoint_seconds > 0:
            raise UserError(f"checkpoint_seconds = {self.checkpoint_seconds:g} should be more than 0")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise UserError("torch finds no CUDA device here; train on the CPU, which is the default")

    @property
    def repeatable(self) -> bool:
        """Whether the same spec and cohort give the same bits again here."""
        return self.device == "cpu" or not self.compile


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


LARGEST_KEPT = (32 << 20) - (1 << 16)
"""Bytes. glibc's limit rises no further than 32 MiB, its own bookkeeping included."""


def keep_freed_memory() -> None:
    """Has the C library keep memory that is freed for the next tensor. To hand it back and to be given it again, page
    by page, costs more than what a small model computes in it.

    glibc maps blocks above a limit one by one, and hands back what is free at the end of its heap beyond twice that
    limit, which rises to the largest block it has seen freed. So it is shown one, of which no byte is ever touched. It
    then keeps up to 64 MiB; other C libraries take no notice.
    """
    torch.empty(LARGEST_KEPT, dtype=torch.uint8)


class Agreed:
    """A setting of the whole process that several threads may hold at once, as long as they want the same."""

    def __init__(self, name: str, read: Callable[[], str], write: Callable[[str], object]) -> None:
        self.name, self.read, self.write = name, read, write
        self.lock, self.holders, self.before = Lock(), 0, ""

    @contextmanager
    def held(self, value: str) -> Iterator[None]:
        """Sets it, and sets it back when the last holder has gone."""
        with self.lock:
            if not self.holders:
                self.before = self.read()
                self.write(value)
            elif self.read() != value:
                raise UserError(f"what runs at the same time in one process must agree on {self.name}")
            self.holders += 1
        try:
            yield
        finally:
            with self.lock:
                self.holders -= 1
                if not self.holders:
                    self.write(self.before)


MATMUL_PRECISION = Agreed(
    "tf32 or not", lambda: torch.get_float32_matmul_precision(), lambda value: torch.set_float32_matmul_precision(value)
)
"""`high` rounds the factors of float32 matrix products to 10 bits on a GPU, `highest` does not."""


def matmuls(precision: str) -> AbstractContextManager[None]:
    """While open, matrix products are computed as a spec's `train.precision` says, in all threads."""
    return MATMUL_PRECISION.held("high" if precision == "tf32" else "highest")
