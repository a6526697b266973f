"""Figure 3 over seeds: the likelihood of the answer of the best learning rate, ours beside the published one.

Reads a pack of finished runs (`reproduction/fig3`), builds no model, and prints the table of that folder's README: per
architecture and width the median and the range over seeds of the likelihood on test documents, the rate being chosen
for each seed by accuracy on dev documents, and the routes that the verdicts name. `--draw docs/figure3.png` draws it.
"""

import argparse
import statistics
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import altair as alt

from mixerscope.artifacts import Verdicts
from mixerscope.packs import unpack
from mixerscope.report.charts import GREY, SERIES
from mixerscope.results import RunResult, load_runs
from mixerscope.sweep.best import best_runs

PACK = Path(__file__).parents[1] / "reproduction" / "fig3" / "five-seeds-tf32-best.pack"
WIDTHS = (16, 32, 64, 128, 256)
# Likelihood of the original documents times 100, as printed in Figure 3 of the paper.
PUBLISHED = {
    "attention": (1.9, 100.0, 99.9, 100.0, 100.0),
    "based": (21.8, 92.0, 98.7, 98.9, 98.5),
    "base_conv": (0.0, 0.7, 3.5, 5.8, 8.5),
    "deltanet": (1.1, 66.7, 85.3, 55.5, 84.8),
    "h3": (0.1, 0.2, 1.3, 1.8, 1.0),
    "hyena": (0.1, 0.1, 2.6, 12.7, 29.9),
    "mamba": (6.5, 74.4, 79.4, 88.7, 90.3),
}


def table(results: list[RunResult]) -> list[str]:
    """The lines of the table, in Markdown."""
    cells: dict[tuple[str, int], list[RunResult]] = defaultdict(list)
    for result in best_runs(results):
        model = result.training["model"]
        cells[model["architecture"], model["width"]].append(result)
    lines = [
        "| architecture | d | seeds | likelihood, median [range] | published | routes |",
        "|---|---|---|---|---|---|",
    ]
    for (name, width), found in sorted(cells.items()):
        likelihoods = [100 * result.scores.likelihood.value for result in found]
        spread = f"{statistics.median(likelihoods):.1f} [{min(likelihoods):.1f}, {max(likelihoods):.1f}]"
        published = PUBLISHED[name][WIDTHS.index(width)]
        routes = ", ".join(f"{route} {count}" for route, count in Counter(map(_mechanism, found)).most_common())
        lines.append(f"| {name} | {width} | {len(found)} | {spread} | {published} | {routes} |")
    return lines


def figure(results: list[RunResult]) -> alt.FacetChart:
    """A panel per architecture: each seed at its best rate, the median of them, and the published run."""
    rows: list[dict[str, Any]] = []
    for result in best_runs(results):
        model = result.training["model"]
        found = {"architecture": model["architecture"], "width": model["width"], "mechanism": _mechanism(result)}
        rows.append({**found, "likelihood": 100 * result.scores.likelihood.value})
    drawn = {row["architecture"] for row in rows}
    rows += [
        {"architecture": name, "width": width, "published": value}
        for name in PUBLISHED
        if name in drawn
        for width, value in zip(WIDTHS, PUBLISHED[name], strict=True)
    ]
    base = alt.Chart().encode(
        x=alt.X(
            "width:Q", scale=alt.Scale(type="log", base=2, domain=[13, 310]), axis=alt.Axis(values=WIDTHS, grid=False)
        )
    )
    theirs, ours = (base.transform_filter(f"isValid(datum.{name})") for name in ("published", "likelihood"))
    published = theirs.mark_line(color=GREY, strokeDash=[4, 3], point={"color": GREY, "filled": False})
    medians = ours.mark_line(color="black", strokeWidth=1).encode(y="median(likelihood):Q")
    colour = alt.Color("mechanism:N", scale=alt.Scale(range=SERIES), legend=alt.Legend(orient="bottom", title=None))
    seeds = ours.mark_point(filled=True, size=36, opacity=0.8).encode(
        y=alt.Y("likelihood:Q", title="likelihood of the answer x 100", scale=alt.Scale(domain=[0, 100])), color=colour
    )
    panels = alt.layer(published.encode(y="published:Q"), medians, seeds).properties(width=130, height=180)
    title = "Five seeds (points, line: their median) beside the published run (dashed)"
    return panels.facet(
        data=alt.Data(values=rows), column=alt.Column("architecture:N", title=None, sort=list(PUBLISHED)), title=title
    )


def _mechanism(result: RunResult) -> str:
    verdicts = result.find(Verdicts)
    return result.reason if verdicts is None else verdicts["key"].mechanism


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pack", nargs="?", type=Path, default=PACK)
    parser.add_argument("--draw", metavar="PNG", type=Path, help="draw the figure into this file too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        unpack(options.pack, Path(place) / "runs")
        results = load_runs(Path(place) / "runs")
        for line in table(results):
            print(line)
        if options.draw:
            figure(results).save(options.draw, scale_factor=1.4)


if __name__ == "__main__":
    main()
