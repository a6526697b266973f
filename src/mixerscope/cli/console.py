"""Where words go: results to stdout, progress and remarks to stderr."""

import os
import sys
from typing import IO

from rich.console import Console

WIDE = 160
"""Columns when nobody is looking: a pipe has no width, and cells of a table should not be cut for it."""


def _console(file: IO[str]) -> Console:
    looking = file.isatty() or "COLUMNS" in os.environ
    return Console(file=file, width=None if looking else WIDE, highlight=False, emoji=False)


def results() -> Console:
    return _console(sys.stdout)


def remarks() -> Console:
    return _console(sys.stderr)
