"""Figure 3 over seeds: the likelihood of the answer of the best learning rate, ours beside the published one.

Reads a pack of finished runs (`reproduction/fig3`), builds no model, and prints the table of that folder's README: per
architecture and width the median and the range over seeds of the likelihood on test documents, the rate being chosen
for each seed by accuracy on dev documents, and the routes that the verdicts name.
"""

import argparse
import statistics
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from mixerscope.artifacts import Verdicts
from mixerscope.packs import unpack
from mixerscope.results import RunResult, load_runs
from mixerscope.sweep.best import best_runs

PACK = Path(__file__).parents[1] / "reproduction" / "fig3" / "five-seeds-tf32.pack"
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


def _mechanism(result: RunResult) -> str:
    verdicts = result.find(Verdicts)
    return result.reason if verdicts is None else verdicts["key"].mechanism


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pack", nargs="?", type=Path, default=PACK)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        unpack(options.pack, Path(place) / "runs")
        for line in table(list(load_runs(Path(place) / "runs"))):
            print(line)


if __name__ == "__main__":
    main()
