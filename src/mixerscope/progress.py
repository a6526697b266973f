"""How far something is, told to whoever waits: the contract, and plain lines for those who have nothing better."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mixerscope.errors import MixerscopeError, printable
from mixerscope.signals import refuse_signals


@dataclass(frozen=True)
class Stop:
    """What someone who is told may answer: the work ends here, and what is finished is kept."""

    reason: str


class Cancelled(MixerscopeError):
    """Work ended because someone who was told of it asked for that."""

    def __init__(self, stop: Stop) -> None:
        self.stop = stop
        super().__init__(stop.reason)


Progress = Callable[[str, int, int, str], Stop | None]
"""Called with the stage ('train', or the name of a stage), the work done, the work in all, and a note such as the
accuracy. Answers with a `Stop` to end the work, which then raises `Cancelled`, else with nothing."""

UNITS = (("day", 86400), ("hour", 3600), ("minute", 60))


def duration(seconds: float) -> str:
    """`40 seconds`, `3 hours`: roughly, in the unit that people would choose."""
    unit, size = next(((unit, size) for unit, size in UNITS if seconds >= 2 * size), ("second", 1))
    count = max(1, round(seconds / size))
    return f"{count} {unit}{'' if count == 1 else 's'}"


QUIET_SECONDS = 2.0
"""Between two lines of one stage."""


class Lines:
    """A line on stderr now and then, and one at the end of each stage."""

    def __init__(self, label: str) -> None:
        self.label, self.stage, self.latest = label, "", ""
        self.started = self.said = 0.0

    def __call__(self, stage: str, done: int, total: int, note: str) -> None:
        now = time.monotonic()
        if stage != self.stage:
            self.close()
            self.stage, self.started, self.said = stage, now, now
        spent = max(now - self.started, 1e-9)
        left = f", {(total - done) * spent / done:.0f} s left" if 0 < done < total else ""
        self.latest = f"{self.label}: {stage} {done}/{total}{f', {note}' if note else ''}"
        if now - self.said >= QUIET_SECONDS:
            self.said = now
            _say(f"{self.latest}{left}")

    def close(self) -> None:
        if self.latest:
            _say(f"{self.latest}, {time.monotonic() - self.started:.0f} s")
            self.latest = ""


def _say(line: str) -> None:
    sys.stderr.write(f"{printable(line)}\n")
    sys.stderr.flush()


@contextmanager
def told(progress: Progress | bool, label: str) -> Iterator[Callable[[str, int, int, str], None]]:
    """What to call: it tells a function that was given, lines on stderr, or nobody, and raises if asked to stop.

    A signal asks too; see `signals`.
    """
    lines = Lines(label)
    listener = progress if callable(progress) else lines

    def tell(stage: str, done: int, total: int, note: str) -> None:
        refuse_signals()
        answer = listener(stage, done, total, note) if progress else None
        if isinstance(answer, Stop):
            raise Cancelled(answer)

    yield tell
    lines.close()
