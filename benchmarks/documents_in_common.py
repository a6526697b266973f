"""How much of what documents do to a likelihood is the same for all seeds: of Figure 3, from the packs that are kept.

All seeds of a cell are measured on the same documents. What these do to all seeds alike does not show in the spread
over seeds, and prediction intervals over seeds would miss it; what they do to each seed in its own way does show.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mixerscope.artifacts.effects import EffectTable
from mixerscope.packs import unpack
from mixerscope.results import load_runs

RESULTS = Path(__file__).parent / "results"
PACKS = Path(__file__).parents[1] / "reproduction" / "fig3"
LEAST_SEEDS = 5
UNEDITED = {"as they are": "original", "key corrupted": "corrupted key"}


def in_common(likelihoods: Tensor) -> float:
    """Of likelihoods [seeds, documents]: the share of the variance over documents that all seeds have in common, by the
    mean squares of a two-way table without repetition."""
    seeds, documents = likelihoods.shape
    mean = likelihoods.mean()
    by_seed, by_document = likelihoods.mean(1, keepdim=True) - mean, likelihoods.mean(0) - mean
    own = (likelihoods - mean - by_seed - by_document).square().sum() / ((seeds - 1) * (documents - 1))
    shared = max(0.0, float(seeds * by_document.square().sum() / (documents - 1) - own) / seeds)
    return shared / (shared + float(own)) if shared + float(own) > 0 else 0.0


def tables(folder: Path) -> Iterator[tuple[str, int, int, EffectTable]]:
    """Architecture, width, seed and what was measured, of every run in the packs of a folder."""
    for pack in sorted(folder.glob("*.pack")):
        with tempfile.TemporaryDirectory() as place:
            unpack(pack, Path(place) / "runs")
            for run in load_runs(Path(place) / "runs"):
                found = run.find(EffectTable)
                if found is not None:
                    spec = run.record.spec
                    yield spec["model"]["architecture"], spec["model"]["width"], spec["seed"], found


def rows(folder: Path = PACKS) -> list[dict[str, Any]]:
    """One a cell with enough seeds, for documents as they are and with the key corrupted."""
    cells: dict[tuple[str, int, str], dict[int, Tensor]] = {}
    for architecture, width, seed, table in tables(folder):
        for name, cell in UNEDITED.items():
            cells.setdefault((architecture, width, name), {})[seed] = table.likelihood(cell)
    return [
        {
            "architecture": architecture,
            "width": width,
            "documents": name,
            "seeds": len(by_seed),
            "in_common": round(in_common(torch.stack([by_seed[seed] for seed in sorted(by_seed)])), 4),
        }
        for (architecture, width, name), by_seed in sorted(cells.items())
        if len(by_seed) >= LEAST_SEEDS
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS)
    found = rows()
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(row) for row in found)
    (options.out / "documents_in_common.json").write_text(f"[\n{lines}\n]\n")
    shares = [row["in_common"] for row in found]
    few = sum(share <= 0.05 for share in shares)
    print(f"{few} of {len(shares)} at most 0.05, median {statistics.median(shares):.3f}, highest {max(shares):.2f}")


if __name__ == "__main__":
    main()
