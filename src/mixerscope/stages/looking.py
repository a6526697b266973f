"""All that watches one training, as one observer."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from mixerscope.stages.base import Result, Watch
from mixerscope.training import Observer


class Looking:
    """The watches of a training by the names of their stages, and the seconds each takes."""

    def __init__(self, watches: Mapping[str, Watch]) -> None:
        self.watches = watches
        self.seconds = dict.fromkeys(watches, 0.0)

    def observer(self) -> Observer | None:
        """One that serves them all."""
        steps = sorted({step for watch in self.watches.values() for step in watch.steps})
        return Observer(tuple(steps), self._look) if self.watches else None

    def results(self, name: str, ended: Sequence[tuple[int, Mapping[str, Tensor]]]) -> list[Result]:
        with self._timed(name):
            return self.watches[name].results(ended)

    def kept(self) -> dict[str, Any] | None:
        """What all have seen so far, as JSON; None where one of them cannot say."""
        seen = {name: watch.kept() for name, watch in self.watches.items()}
        if any(value is None for value in seen.values()):
            return None
        return {"seen": seen, "seconds": dict(self.seconds)}

    def restore(self, kept: Mapping[str, Any]) -> None:
        for name, watch in self.watches.items():
            watch.restore(kept["seen"][name])
        self.seconds = {name: kept["seconds"][name] for name in self.watches}

    def _look(self, step: int, weights: Mapping[int, dict[str, Tensor]]) -> None:
        for name, watch in self.watches.items():
            if step in watch.steps:
                with self._timed(name):
                    watch.look(step, weights)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - started
