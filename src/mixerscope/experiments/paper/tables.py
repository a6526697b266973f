"""Ours beside what was published: every seed, median, range, and from five seeds on a prediction interval."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mixerscope.analysis.quantiles import t_quantile
from mixerscope.experiments.paper.data import Row

MIN_SEEDS = 5
"""Fewer do not say where another seed would lie."""
WIDEST = 30.0
"""Points; an interval wider than this agrees with almost anything, and so says nothing."""
PRINTED = 0.1
"""The paper's last digit: what it prints may lie half of this to either side."""
INSIDE, OUTSIDE, UNINFORMATIVE = "inside", "outside", "uninformative"
EQUAL, DIFFERS = "equal", "different"
TOO_FEW, NOT_RUN, NOT_PRINTED = "too few seeds", "not run", "not printed"
CellKey = tuple[str, str, int]
"""Panel, row and width."""


@dataclass(frozen=True)
class Beside:
    """One cell of a figure: ours over seeds, and what was published."""

    panel: str
    row: str
    width: int
    values: tuple[float, ...]
    """One a seed, in the order of seeds."""
    published: float | None
    interval: tuple[float, float] | None
    """Where one more seed of ours would lie on documents of its own, 95%; None under five seeds."""
    exact: bool = False
    """Whether it is a count, which no seed changes."""

    @property
    def median(self) -> float | None:
        return statistics.median(self.values) if self.values else None

    @property
    def difference(self) -> float | None:
        """Our median minus the published number."""
        return None if self.median is None or self.published is None else self.median - self.published

    @property
    def outcome(self) -> str:
        """Whether the published number lies in our interval, or why that cannot be said."""
        if not self.values:
            return NOT_RUN
        if self.published is None:
            return NOT_PRINTED
        if self.exact:
            return EQUAL if self.values[0] == self.published else DIFFERS
        if self.interval is None:
            return TOO_FEW
        low, high = self.interval
        if high - low > WIDEST:
            return UNINFORMATIVE
        return INSIDE if low - PRINTED / 2 <= self.published <= high + PRINTED / 2 else OUTSIDE


def prediction(
    values: Sequence[float],
    documents: tuple[float, float] = (0.0, 0.0),
    times: float = 1.0,
    within: tuple[float, float] = (0.0, 100.0),
) -> tuple[float, float] | None:
    """Where the next seed's value lies with 95%, inside what is possible, measured on documents of its own, of which
    ours are `times` as many; `documents` is how far those of one seed leave its value open, below and above.

    What documents do to a seed's value is hardly shared by seeds (`benchmarks/documents_in_common.py`), so
    the spread over seeds has it already, for as many documents. Fewer ones are added to it. And no spread, however
    small five seeds chance to have it, makes another value closer than documents alone would.
    """
    n = len(values)
    if n < MIN_SEEDS:
        return None
    mean, spread = statistics.fmean(values), statistics.stdev(values)
    half = t_quantile(n - 1) * spread * math.sqrt(1 + 1 / n)
    fewer, least = math.sqrt(max(0.0, times - 1)), math.sqrt(times + 1 / n)
    below, above = (max(math.hypot(half, fewer * end), least * end) for end in documents)
    return max(within[0], mean - below), min(within[1], mean + above)


def open_by_documents(rows: Sequence[Row]) -> tuple[float, float]:
    """How far below and above a seed's value its interval over documents reaches, on average."""
    known = [row for row in rows if row["value"] is not None and row.get("low") is not None]
    if not known:
        return 0.0, 0.0
    below, above = (statistics.fmean(abs(row[end] - row["value"]) for row in known) for end in ("low", "high"))
    return below, above


def beside(
    rows: Sequence[Row], published: Mapping[CellKey, float], exact: bool = False, times: float = 1.0
) -> list[Beside]:
    """Every cell that was run or published: panel by panel, in the paper's order of rows where it prints some. Ours
    were measured on `times` as many documents as the published numbers."""
    found: dict[CellKey, dict[int, Row]] = {}
    for row in rows:
        own = found.setdefault((row["panel"], row["row"], row["width"]), {})
        if row["value"] is not None:
            own[row["seed"]] = row
    panels = list(dict.fromkeys(key[0] for key in [*found, *published]))
    lines = list(dict.fromkeys(key[1] for key in [*published, *found]))
    cells: list[Beside] = []
    for key in sorted({*found, *published}, key=lambda key: (panels.index(key[0]), lines.index(key[1]), key[2])):
        own = [row for _, row in sorted(found.get(key, {}).items())]
        values = tuple(row["value"] for row in own)
        interval = None if exact else prediction(values, open_by_documents(own), times)
        cells.append(Beside(*key, values, published.get(key), interval, exact))
    return cells


COLUMNS = ("panel", "row", "d", "seeds", "ours, median [range]", "predicted", "published", "difference", "published is")


def cells_of(cell: Beside) -> tuple[str, ...]:
    """One line of the table."""
    digits = "," if cell.exact else ".1f"
    ours = "–"
    if cell.values:
        spread = "" if cell.exact else f" [{min(cell.values):.1f}, {max(cell.values):.1f}]"
        ours = f"{cell.median:{digits}}{spread}"
    predicted = "–" if cell.interval is None else f"{cell.interval[0]:.1f} to {cell.interval[1]:.1f}"
    published = "–" if cell.published is None else f"{cell.published:{digits}}"
    if cell.published is not None and not cell.exact and round(cell.published, 1) != cell.published:
        published = f"{cell.published:.2f}"
    difference = "–" if cell.difference is None else f"{cell.difference:+{digits}}"
    return (
        cell.panel,
        cell.row,
        str(cell.width),
        str(len(cell.values)),
        ours,
        predicted,
        published,
        difference,
        cell.outcome,
    )


def markdown(cells: Sequence[Beside]) -> list[str]:
    """The table as Markdown."""
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    return lines + [f"| {' | '.join(cells_of(cell))} |" for cell in cells]


def counts(cells: Sequence[Beside]) -> dict[str, int]:
    """How many cells have each outcome."""
    found: dict[str, int] = {}
    for cell in cells:
        found[cell.outcome] = found.get(cell.outcome, 0) + 1
    return found
