"""What cohorts in flight share of one device: turns in Python, memory, streams."""

import queue
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from mixerscope.machine import Machine

MEMORY_SHARE = 0.85
"""Of a GPU's memory, for all cohorts in flight together."""
TURN = 0.0005
"""Seconds that a thread may keep the others waiting for Python; a graph of small models takes some milliseconds."""


class Streams:
    """One for each cohort in flight, lent to one after the other: memory freed on a stream is used again on it."""

    def __init__(self, machine: Machine, count: int) -> None:
        self.machine = machine
        self.free: queue.SimpleQueue[torch.cuda.Stream] = queue.SimpleQueue()
        for _ in range(count if machine.device == "cuda" else 0):
            # Captured steps have the priority of the stream that captured them, an ordinary one. What is launched
            # one by one, evaluating, patching, goes before them: it is little, and its thread waits for it.
            self.free.put(torch.cuda.Stream(priority=-1))

    @contextmanager
    def own(self) -> Iterator[None]:
        """Which stream is current is a matter of each thread; work on different ones overlaps."""
        if self.machine.device == "cpu":
            yield
            return
        stream = self.free.get_nowait()
        try:
            with torch.cuda.stream(stream):
                yield
                stream.synchronize()
        finally:
            self.free.put(stream)


@contextmanager
def short_turns(machine: Machine) -> Iterator[None]:
    """A thread that comes back from the GPU waits for its turn in Python, several times per launch; beside one that
    compiles or patches, turns of the usual length would leave the GPU idle."""
    before = sys.getswitchinterval()
    if machine.device == "cuda":
        sys.setswitchinterval(TURN)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def with_its_share(machine: Machine, in_flight: int) -> Machine:
    """The machine as each cohort in flight sees it: how a cohort is cut to fit must not depend on the others."""
    if machine.device == "cpu" or machine.memory_gib is not None:
        return machine
    return replace(machine, memory_gib=MEMORY_SHARE * torch.cuda.mem_get_info()[1] / 2**30 / in_flight)
