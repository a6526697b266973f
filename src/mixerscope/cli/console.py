"""Where words go: results to stdout, progress and remarks to stderr."""

import os
import sys
from collections.abc import Sequence
from typing import IO, Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mixerscope.errors import printable

WIDE = 160
"""Columns when nobody is looking: a pipe has no width, and cells of a table should not be cut for it."""


class _Safe(Console):
    """Data may hold what a terminal obeys; here it is spelled out."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(printable(one) if isinstance(one, str) else one for one in objects), **options)

    def on_broken_pipe(self) -> None:
        """Rich would end the process with 1; what the end of a reader means is for `main` to say."""
        raise BrokenPipeError


class _SafeTable(Table):
    """Cells are text and no markup."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        super().add_row(*map(_safe, cells), **options)


def _safe(cell: Any) -> Any:
    if isinstance(cell, Text):
        return cell if printable(cell.plain) == cell.plain else Text(printable(cell.plain), cell.style)
    return Text(printable(cell)) if isinstance(cell, str) else cell


def _console(file: IO[str]) -> Console:
    looking = file.isatty() or "COLUMNS" in os.environ
    return _Safe(file=file, width=None if looking else WIDE, highlight=False, emoji=False)


def results() -> Console:
    return _console(sys.stdout)


def remarks() -> Console:
    return _console(sys.stderr)


def plain_table(*columns: str) -> Table:
    """A table without lines, which reads well in a pipe too."""
    return _SafeTable(*columns, box=None, padding=(0, 2, 0, 0), show_header=any(columns))


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A long table, of which nothing is cut or wrapped: one line a row, in a fraction of the time of a `Table`."""
    lines = [tuple(cell if cell.isprintable() else _on_a_line(cell) for cell in line) for line in (columns, *rows)]
    sizes = [tuple(len(cell) if cell.isascii() else cell_len(cell) for cell in line) for line in lines]
    widths = [max(column) for column in zip(*sizes, strict=True)]
    text: list[str] = []
    for line, size in zip(lines, sizes, strict=True):
        cells = (cell + " " * (width - own) for cell, width, own in zip(line, widths, size, strict=True))
        text.append("  ".join(cells).rstrip() + "\n")
    sys.stdout.write("".join(text))  # at once, whatever is buffered
    sys.stdout.flush()


def _on_a_line(cell: str) -> str:
    return printable(cell).replace("\n", " ").replace("\t", " ")
