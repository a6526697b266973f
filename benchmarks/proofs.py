"""What the proof of a verdict costs beside the grid it is about.

    python -m benchmarks.proofs                   # one model of each kind, one core
    python -m benchmarks.proofs --device cuda     # cohorts of seven, width 64, as a sweep has them

Models are those of the ground truth on a CPU, which are trained and have a route; cohorts on a GPU are untrained, and
are given one route, as most models have, and as many as a verdict ever tries, which is the work of the most undecided.
Seconds are the median of several rounds, grid and proof in turns. Writes benchmarks/results/proofs_<device>.json.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.ground_truth.collection import known
from mixerscope.analysis import judge
from mixerscope.analysis.judge import MOST_ROUTES
from mixerscope.interventions import (
    Pairs,
    PairSettings,
    Route,
    effect_table,
    interchange_cohort,
    make_pairs,
    other_sizes,
    prove_cohort,
    prove_table,
)
from mixerscope.interventions.prove import stations
from mixerscope.model import Model, build_model
from mixerscope.spec import ModelSpec
from mixerscope.tasks import AR

RESULTS = Path(__file__).parent / "results"
DOCUMENTS = 320
ARCHITECTURES = ("attention", "based", "mamba", "deltanet")
COHORT, WIDTH = 7, 64
TASK = AR()
"""As published."""


def seconds(work: Callable[[], Any], device: str) -> float:
    """Of one core those that it worked, whatever else the machine does."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    began = clock()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return clock() - began


def rounds(works: dict[str, Callable[[], Any]], count: int, device: str) -> dict[str, Any]:
    """Median and range of each, the first round being for warming up."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for number in range(count + 1):
        for name, work in works.items():
            took = seconds(work, device)
            if number:
                found[name].append(took)
    return {name: {"median": statistics.median(t), "least": min(t), "most": max(t)} for name, t in found.items()}


def trained() -> dict[str, Model]:
    """One of each architecture, by name."""
    found: dict[str, Model] = {}
    for one in known():
        if one.architecture in ARCHITECTURES:
            found.setdefault(one.architecture, one.model())
    return found


def one_model(model: Model, pairs: Pairs, count: int) -> dict[str, Any]:
    """The grid of a model, its proof and verdict, and the verdict alone, the same wherever the proof is taken."""
    [grid] = interchange_cohort([model], pairs)
    known = effect_table(grid, model)
    proof = prove_table(known, grid, model)

    def proven() -> None:
        table = effect_table(grid, model)
        judge(table, None, prove_table(table, grid, model))

    works = {
        "grid": lambda: interchange_cohort([model], pairs),
        "proof and verdict": proven,
        "verdict": lambda: judge(known, None, proof),
    }
    return rounds(works, count, "cpu")


def cohort(architecture: str, pairs: Pairs, count: int, device: str) -> dict[str, Any]:
    """The grids of a cohort, and its proofs with one route and with as many as there can be."""
    spec = ModelSpec(architecture=architecture, width=WIDTH, max_length=TASK.max_length)
    models = [build_model(spec, TASK.vocab_size, seed).to(device) for seed in range(COHORT)]
    number = len(stations(models[0], pairs))
    variants = other_sizes(pairs)

    def prove(most: int) -> None:
        places = list(pairs.original.roles)[:most]
        routes = [Route(slot, (place,) * number) for slot in pairs.corrupted for place in places]
        prove_cohort(models, pairs, [routes] * COHORT, variants)

    works = {
        "grid": lambda: interchange_cohort(models, pairs),
        "proof": lambda: prove(1),
        "proof of the most routes": lambda: prove(MOST_ROUTES),
    }
    return rounds(works, count, device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    settings = PairSettings(documents=DOCUMENTS, slots=("key",))
    rows: dict[str, Any] = {}
    if options.device == "cpu":
        for name, model in trained().items():
            rows[name] = one_model(
                model, make_pairs(AR(num_pairs=4, num_keys=8, num_values=8), settings, 0), options.rounds
            )
    else:
        pairs = make_pairs(TASK, settings, 0)
        for name in ARCHITECTURES:
            rows[name] = cohort(name, pairs, options.rounds, options.device)
    for name, row in rows.items():
        grid = row["grid"]["median"]
        ratios = {work: timed["median"] / grid for work, timed in row.items() if work != "grid"}
        row["ratios"] = ratios
        told = ", ".join(f"{work} {ratio:.2f} of it" for work, ratio in ratios.items())
        print(f"{name}: grid {grid:.2f} s, {told}", flush=True)
    path = RESULTS / f"proofs_{options.device}.json"
    path.write_text(json.dumps({"documents": DOCUMENTS, "rounds": options.rounds, "models": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
