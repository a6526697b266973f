"""How often 95% intervals cover the truth, simulated: over documents, and over seeds.

Writes benchmarks/results/intervals.json and the tables of docs/statistics.md. Ends with
`worst over documents: <lowest> <highest>`, over the kinds of documents named in `DOCUMENTS`; the highest is that in the
middle of the range.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.paste import paste, table
from mixerscope.analysis.quantiles import t_quantile
from mixerscope.analysis.stats import proportion_estimate, ratio_estimate, seeds_estimate
from mixerscope.randomness import stream

RESULTS = Path(__file__).parent / "results" / "intervals.json"
SIZES = (64, 320)
SHARES = (0.02, 0.5, 0.98)
SEEDS = (3, 5, 10)
RESAMPLES = 500
"""Of the bootstraps that are compared; each is run on a tenth of the simulated samples."""

Interval = tuple[float, float] | None
Draw = Callable[[float, int, torch.Generator], tuple[Tensor, Tensor]]


def beta(mean: float, weight: float, n: int, rng: torch.Generator) -> Tensor:
    """[n] draws from Beta(mean weight, (1 - mean) weight), through two gamma variables."""
    shape = torch.tensor([mean * weight, (1 - mean) * weight], dtype=torch.float64)
    # Gamma draws of a tiny shape underflow to 0; both at once would be 0 / 0.
    gamma = torch._standard_gamma(shape[:, None].expand(2, n), generator=rng)  # pyright: ignore[reportPrivateImportUsage]
    a, b = gamma.clamp(min=1e-300)
    return a / (a + b)


def gaps(n: int, rng: torch.Generator) -> Tensor:
    """[n] likelihoods of the original minus those of the corrupted document: most of them near one, some small."""
    return 0.95 * beta(0.8, 10, n, rng)


def graded(weight: float) -> Draw:
    def draw(share: float, n: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        gap = gaps(n, rng)
        return beta(share, weight, n, rng) * gap, gap

    return draw


def alike(share: float, n: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    gap = gaps(n, rng)
    return (share + 0.05 * torch.randn(n, generator=rng, dtype=torch.float64)) * gap, gap


def all_or_nothing(share: float, n: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    gap = gaps(n, rng)
    whole = (torch.rand(n, generator=rng) < share).double()
    return (whole + 1e-3 * torch.randn(n, generator=rng, dtype=torch.float64)) * gap, gap


def rare_and_noisy(share: float, n: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    gap = gaps(n, rng)
    whole = (torch.rand(n, generator=rng) < share).double()
    return (whole + 0.1 * torch.randn(n, generator=rng, dtype=torch.float64)) * gap, gap


def uneven_gaps(share: float, n: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    gap = beta(1 / 3, 1.5, n, rng)
    return beta(share, 10, n, rng) * gap, gap


DOCUMENTS: dict[str, Draw] = {
    "graded": graded(10),
    "strongly graded": graded(3),
    "alike": alike,
    "all or nothing": all_or_nothing,
}
HARD: dict[str, Draw] = {"rare and noisy": rare_and_noisy, "uneven gaps": uneven_gaps}
"""Where the interval is known to fall short at 64 documents; shown, not hidden."""


def ours(top: Tensor, bottom: Tensor, counts: Tensor) -> Interval:
    found = ratio_estimate(top, bottom)
    return None if found is None else (found.low, found.high)


def percentile_bootstrap(top: Tensor, bottom: Tensor, counts: Tensor) -> Interval:
    low, high = ((counts @ top) / (counts @ bottom)).quantile(torch.tensor([0.025, 0.975]).double()).tolist()
    return low, high


def resampling_counts(n: int, rng: torch.Generator) -> Tensor:
    """[RESAMPLES, n]: how often each is drawn."""
    draws = torch.randint(n, (RESAMPLES, n), generator=rng)
    return torch.zeros(RESAMPLES, n, dtype=torch.float64).scatter_add_(1, draws, torch.ones_like(draws).double())


def document_coverage(
    draw: Draw, share: float, n: int, samples: int, method: Callable[[Tensor, Tensor, Tensor], Interval] = ours
) -> float:
    """Share of simulated samples whose interval holds the truth."""
    rng = stream(0, "documents", str(share), n)
    counts = resampling_counts(n, rng)
    covered = 0
    for _ in range(samples):
        interval = method(*draw(share, n, rng), counts)
        covered += interval is not None and interval[0] <= share <= interval[1]
    return covered / samples


def accuracy_coverage(share: float, n: int, samples: int) -> float:
    rng = stream(0, "accuracy", str(share), n)
    covered = 0
    for _ in range(samples):
        found = proportion_estimate((torch.rand(n, generator=rng) < share).double())
        covered += found.low <= share <= found.high
    return covered / samples


def t_over_seeds(shares: Tensor) -> tuple[float, float]:
    """Student's t, which may leave the range of a share; for comparison."""
    half = t_quantile(len(shares) - 1) * shares.std().item() / len(shares) ** 0.5
    return shares.mean().item() - half, shares.mean().item() + half


def normal_seeds(n: int, rng: torch.Generator) -> Tensor:
    return (0.7 + 0.08 * torch.randn(n, generator=rng, dtype=torch.float64)).clamp(0, 1)


def failing_seeds(n: int, rng: torch.Generator) -> Tensor:
    fails = torch.rand(n, generator=rng) < 0.1
    return beta(0.2, 20, n, rng).where(fails, beta(0.97, 60, n, rng))


SEED_KINDS: dict[str, tuple[float, Callable[[int, torch.Generator], Tensor]]] = {
    "normal": (0.7, normal_seeds),
    "skewed": (0.8, lambda n, rng: beta(0.8, 15, n, rng)),
    "near one": (0.97, lambda n, rng: beta(0.97, 60, n, rng)),
    "all or nothing": (0.9, lambda n, rng: (torch.rand(n, generator=rng) < 0.9).double()),
    "hard: one in ten fails": (0.1 * 0.2 + 0.9 * 0.97, failing_seeds),
}
"""Mean share over all seeds, and how those of n seeds are drawn. No few seeds can show the last: most draws of them
have no seed that fails, and look like seeds near one."""


def seed_coverage(kind: str, seeds: int, samples: int, documents: int = 320) -> dict[str, float]:
    """Of the mean over seeds: ours, Student's t, and the bootstrap that draws whole seeds."""
    rng = stream(0, "seeds", kind, seeds)
    mean, draw = SEED_KINDS[kind]
    tried = {"ours": 0, "Student's t": 0, "cluster bootstrap": 0}
    counts = resampling_counts(seeds, rng)
    for _ in range(samples):
        takes = torch.rand(seeds, documents, generator=rng, dtype=torch.float64) < draw(seeds, rng)[:, None]
        shares = takes.double().mean(1)
        found = seeds_estimate(shares.tolist())
        tried["ours"] += found.low <= mean <= found.high
        low, high = t_over_seeds(shares)
        tried["Student's t"] += low <= mean <= high
        low, high = (counts @ shares / seeds).quantile(torch.tensor([0.025, 0.975]).double()).tolist()
        tried["cluster bootstrap"] += low <= mean <= high
    return {method: count / samples for method, count in tried.items()}


def measure(samples: int) -> dict[str, Any]:
    documents = []
    for kind, draw in (DOCUMENTS | HARD).items():
        for n in SIZES:
            for share in SHARES:
                covered = document_coverage(draw, share, n, samples)
                compared = document_coverage(draw, share, n, samples // 10, percentile_bootstrap)
                documents.append({"kind": kind, "n": n, "share": share, "ours": covered, "bootstrap": compared})
                print(f"{kind}, n = {n}, share {share}: {covered:.3f} (bootstrap {compared:.3f})", flush=True)
    accuracy = [
        {"n": n, "share": share, "ours": accuracy_coverage(share, n, samples)} for n in SIZES for share in SHARES
    ]
    seeds = [
        {"kind": kind, "seeds": count, **seed_coverage(kind, count, samples)} for kind in SEED_KINDS for count in SEEDS
    ]
    for row in [*accuracy, *seeds]:
        print(row, flush=True)
    return {"samples": samples, "documents": documents, "accuracy": accuracy, "seeds": seeds}


def tables(result: dict[str, Any]) -> dict[str, str]:
    """By their name on the page."""
    columns = [(n, share) for n in SIZES for share in SHARES]
    header = [f"n = {n}, share {share}" for n, share in columns]

    def row(name: str, rows: list[dict[str, Any]], method: str) -> list[str]:
        by_column = {(r["n"], r["share"]): r[method] for r in rows}
        return [name, *(f"{by_column[column]:.1%}" for column in columns)]

    def of(kind: str) -> list[dict[str, Any]]:
        return [r for r in result["documents"] if r["kind"] == kind]

    over_documents = [row(kind, of(kind), "ours") for kind in DOCUMENTS]
    over_documents += [row("accuracy", result["accuracy"], "ours")]
    over_documents += [row(f"hard: {kind}", of(kind), "ours") for kind in HARD]
    over_documents += [row(f"bootstrap, {kind}", of(kind), "bootstrap") for kind in DOCUMENTS]
    over_seeds = [
        [f"{kind}, {method}"]
        + [f"{r[method]:.1%}" for n in SEEDS for r in result["seeds"] if (r["kind"], r["seeds"]) == (kind, n)]
        for kind in SEED_KINDS
        for method in ("ours", "Student's t", "cluster bootstrap")
    ]
    return {
        "coverage over documents": table(["documents", *header], over_documents),
        "coverage over seeds": table(["seeds, interval", *(f"{n} seeds" for n in SEEDS)], over_seeds),
    }


def worst(result: dict[str, Any]) -> tuple[float, float]:
    """The lowest of all, and the highest in the middle: near the ends room is left for documents that were missed."""
    found = {(row["kind"], row["n"], row["share"]): row["ours"] for row in result["documents"]}
    of_kinds = {key: covered for key, covered in found.items() if key[0] in DOCUMENTS}
    return min(of_kinds.values()), max(covered for key, covered in of_kinds.items() if key[2] == 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=5_000)
    result = measure(parser.parse_args().samples)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    for name, text in tables(result).items():
        paste("statistics.md", name, text)
    low, high = worst(result)
    print(f"worst over documents: {low:.3f} {high:.3f}")


if __name__ == "__main__":
    main()
