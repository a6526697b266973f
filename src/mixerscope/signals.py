"""Signals that ask a process to end: noted, so that work can be put down between two steps, within seconds.

A thread of its own waits for them, since the main one may be deep in a long operation. Whoever tells of progress asks
`received`; a process that has not ended after `GRACE` seconds is ended where it stands, which loses no finished file.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mixerscope.errors import Interrupted, complain

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE = 8.0
"""Seconds: those who send signals often kill after ten."""
LAST = 1.5
"""Seconds of these ten for what is done last."""
LOOKED_EVERY, SEEN_GONE = 0.5, 2
"""Seconds between two looks for what a process depends on, and how often it must be missed: networks forget files."""
OVER = b"\0"
SHOW_CURSOR = "\x1b[?25h"
"""Those who draw bars on a terminal hide the cursor, and could not show it again."""

_noted: list[signal.Signals] = []


def received() -> Interrupted | None:
    """What to raise if this process was asked to end, else None."""
    return Interrupted(_noted[0]) if _noted else None


def refuse_signals() -> None:
    """Raises if this process was asked to end."""
    if (interrupted := received()) is not None:
        raise interrupted


@contextmanager
def heeded(last: Callable[[], object] | None = None) -> Iterator[None]:
    """While open, signals are noted and not acted upon, but for those that were ignored. Main thread only. `last` is
    called before a process that does not end by itself is ended, and has `LAST` seconds."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    over = threading.Event()
    thread = threading.Thread(target=_listen, args=(reader, over, last), name="signals", daemon=True)
    before = {one: handler for one in SIGNALS if (handler := signal.getsignal(one)) != signal.SIG_IGN}
    woken = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for one in before:
        signal.signal(one, lambda number, frame: None)
    thread.start()
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        signal.set_wakeup_fd(woken)
        over.set()
        os.write(writer, OVER)
        thread.join()
        os.close(reader)
        os.close(writer)
        _noted.clear()


@contextmanager
def ended_when(gone: Callable[[], bool]) -> Iterator[None]:
    """While open, this process asks itself to end when something it depends on is gone, seen so `SEEN_GONE` times."""
    over = threading.Event()

    def watch() -> None:
        seen = 0
        while not over.wait(LOOKED_EVERY):
            seen = seen + 1 if gone() else 0
            if seen == SEEN_GONE:
                os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=watch, name="gone", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def parent_gone() -> Callable[[], bool]:
    """Whether the process that started this one has ended since, however it did."""
    parent = os.getppid()
    return lambda: os.getppid() != parent


def _listen(reader: int, over: threading.Event, last: Callable[[], object] | None) -> None:
    while (byte := os.read(reader, 1)) != OVER:
        if byte[0] not in SIGNALS:
            continue
        again = bool(_noted)
        _noted.append(signal.Signals(byte[0]))
        if again:
            _end_now()  # somebody is in a hurry
        threading.Thread(target=_see_to_the_end, args=(over, last), name="grace", daemon=True).start()


def _see_to_the_end(over: threading.Event, last: Callable[[], object] | None) -> None:
    if over.wait(GRACE):
        return
    if last is not None:
        thread = threading.Thread(target=last, name="last", daemon=True)
        thread.start()
        thread.join(LAST)
    _end_now()


def _end_now() -> None:
    if sys.stderr.isatty():
        sys.stderr.write(SHOW_CURSOR)
    os._exit(complain(Interrupted(_noted[0])))
