"""Progress of runs on stderr: a bar with rate and time left on a terminal, a line now and then elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from mixerscope.cli.console import remarks

QUIET_SECONDS = 5.0
"""Between two lines of one stage, where there is no terminal."""
LABELS = {"train": "training", "patch": "patching", "prove": "proving", "judge": "judging", "collect": "collecting"}
"""Other stages go by their names."""


def rate_text(rate: float) -> str:
    return f"{rate:.0f}/s" if rate >= 10 else f"{rate:.1f}/s"


class Follower:
    """Called by a run as its progress goes; `label` says whose it is."""

    def __init__(self, label: str) -> None:
        self.label = label

    def __call__(self, stage: str, done: int, total: int, note: str) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """The run is over."""


class Bars(Follower):
    """One bar per stage."""

    def __init__(self, label: str, progress: Progress) -> None:
        super().__init__(label)
        self.progress = progress
        self.stage: str | None = None
        self.bar: TaskID | None = None

    def __call__(self, stage: str, done: int, total: int, note: str) -> None:
        if stage != self.stage or self.bar is None:
            self.close()
            self.stage = stage
            self.bar = self.progress.add_task(f"{self.label}: {LABELS.get(stage, stage)}", total=total, note="")
        self.progress.update(self.bar, completed=done, note=note)

    def close(self) -> None:
        """Training may end before its step limit; its bar is full then."""
        if self.bar is not None:
            done = self.progress.tasks[self.bar].completed
            self.progress.update(self.bar, total=max(done, 1))


class Lines(Follower):
    """The first and last word of each stage, and one every few seconds in between."""

    def __init__(self, label: str, console: Console) -> None:
        super().__init__(label)
        self.console = console
        self.stage: str | None = None
        self.started = self.said = 0.0
        self.latest = ""

    def __call__(self, stage: str, done: int, total: int, note: str) -> None:
        now = time.monotonic()
        if stage != self.stage:
            self.close()
            self.stage, self.started, self.said = stage, now, now
        rate = done / max(now - self.started, 1e-9)
        left = f", {(total - done) / rate:.0f} s left" if rate and done < total else ""
        self.latest = f"{self.label}: {LABELS.get(stage, stage)} {done}/{total}{f', {note}' if note else ''}"
        if now - self.said >= QUIET_SECONDS:
            self.said = now
            self._say(f"{self.latest}, {rate_text(rate)}{left}")

    def close(self) -> None:
        if self.latest:
            self._say(f"{self.latest}, {time.monotonic() - self.started:.0f} s")
            self.latest = ""

    def _say(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)


class RateColumn(ProgressColumn):
    """Steps or batches of cells a second, since the stage began."""

    def render(self, task: Task) -> Text:
        elapsed = task.finished_time or task.elapsed
        return Text(rate_text(task.completed / elapsed) if elapsed else "")


def bars_on(console: Console) -> Progress:
    """Bars with a label, how far they are, how fast, how long still, and a note."""
    columns = (
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        RateColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[note]}", markup=False),
    )
    return Progress(*columns, console=console, refresh_per_second=5)


@contextmanager
def following(label: str) -> Iterator[Follower]:
    """What a run should be given as `progress`, for as long as the block lasts."""
    console = remarks()
    if not console.is_terminal:
        lines = Lines(label, console)
        yield lines
        lines.close()
        return
    with bars_on(console) as progress:
        bars = Bars(label, progress)
        yield bars
        bars.close()
