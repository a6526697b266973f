"""Where words go: results to stdout, progress and remarks to stderr."""

import os
import sys
from typing import IO

from rich.console import Console
from rich.table import Table

WIDE = 160
"""Columns when nobody is looking: a pipe has no width, and cells of a table should not be cut for it."""


def _console(file: IO[str]) -> Console:
    looking = file.isatty() or "COLUMNS" in os.environ
    return Console(file=file, width=None if looking else WIDE, highlight=False, emoji=False)


def results() -> Console:
    return _console(sys.stdout)


def remarks() -> Console:
    return _console(sys.stderr)


def plain_table(*columns: str) -> Table:
    """A table without lines, which reads well in a pipe too."""
    return Table(*columns, box=None, padding=(0, 2, 0, 0), show_header=any(columns))
