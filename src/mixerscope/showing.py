"""How results show themselves: one line as `repr`, and in a notebook that line above a small table.

Names come from files and from other people, so everything is escaped.
"""

import html
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

MOST_ROWS = 20
"""Of a table in a notebook; frames have all."""
LONGEST = 200
"""Letters of one cell there."""
SENTENCE = 40
"""Letters from which a cell holds a sentence, which needs room: a page would make a column of single words of it."""
CELL = "text-align:left;padding:2px 8px;vertical-align:top"


class Shown:
    """Base of what people get back from a call."""

    def sentence(self) -> str:
        """One line for people."""
        raise NotImplementedError(f"{type(self).__name__} has no `sentence`")

    def shown(self) -> Iterable[Mapping[str, Any]]:
        """The rows that a notebook shows."""
        return ()

    def shaded(self) -> Iterable[str]:
        """Columns of these rows whose numbers between 0 and 1 have a background by their size."""
        return ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.sentence()}>"

    def _repr_html_(self) -> str:
        return as_html(repr(self).removeprefix("<").removesuffix(">"), self.shown(), self.shaded())


def as_html(line: str, rows: Iterable[Mapping[str, Any]] = (), shaded: Iterable[str] = ()) -> str:
    """A line and a table of the first rows, for a notebook."""
    rows, shaded = iter(rows), set(shaded)
    first = list(islice(rows, MOST_ROWS))
    left = sum(1 for _ in rows)
    columns = list(dict.fromkeys(name for row in first for name in row))
    name, colon, rest = line.partition(": ")
    said = f"<div><p><b>{html.escape(name)}</b>{html.escape(colon + rest)}</p>"
    if first:
        head = "".join(f'<th style="{CELL}">{html.escape(str(name))}</th>' for name in columns)
        body = "".join(f"<tr>{''.join(_cells(row, columns, shaded))}</tr>" for row in first)
        said += f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    if left:
        said += f"<p>and {left:,} more rows: <code>to_polars()</code> has all of them</p>"
    return said + "</div>"


def _cells(row: Mapping[str, Any], columns: Iterable[str], shaded: set[str]) -> Iterator[str]:
    for name in columns:
        value = row.get(name)
        style = CELL
        if name in shaded and isinstance(value, float) and value > 0:
            style += f";background:rgba(47,127,193,{min(value, 1.0) * 0.6:.2f})"
        text = said(value)
        if len(text) > SENTENCE:
            style += ";min-width:20em"
        yield f'<td style="{style}">{html.escape(text)}</td>'


def said(value: Any) -> str:
    """A value as a table in a notebook has it: three digits, no more letters than can be read."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}" if 1e-3 <= abs(value) < 1e4 or value == 0 else f"{value:.3g}"
    if isinstance(value, list | tuple):
        value = ", ".join(map(said, value))
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def counted(count: int, what: str) -> str:
    """`1 row`, `3 rows`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
