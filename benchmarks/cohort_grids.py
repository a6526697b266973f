"""Seconds of the patching grid of seven stacked models on a GPU: this version and an earlier one, in turns.

    git archive 84740a3 src | tar -x -C /tmp/earlier
    python -m benchmarks.cohort_grids --earlier /tmp/earlier

Each version runs in processes of its own, in turns, twice each; the same cells, documents and random weights.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "cohort_grids.json"
ARCHITECTURES = ("attention", "based", "mamba", "deltanet", "hyena")
MODELS, WIDTH, DOCUMENTS, TURNS, REPEATS = 7, 64, 320, 2, 4


def measure() -> dict[str, Any]:
    """By architecture: seconds of each repeat, cells, and the sum of likelihoods, which both versions must agree on."""
    import torch

    from mixerscope.interventions import Grid, interchange_cohort, make_pairs, plan_grid
    from mixerscope.model import build_model
    from mixerscope.spec import RunSpec

    torch.set_float32_matmul_precision("high")
    found: dict[str, Any] = {}
    for architecture in ARCHITECTURES:
        spec = RunSpec.model_validate({"task": "ar", "model": {"architecture": architecture, "width": WIDTH}})
        settings = getattr(spec, "interventions", None) or spec.stages["patch"]  # the earlier version's name, and ours
        pairs = make_pairs(spec.task, settings.model_copy(update={"documents": DOCUMENTS}), 0)
        models = [build_model(spec.model, spec.task.vocab_size, seed).cuda().eval() for seed in range(MODELS)]
        plan = plan_grid(models[0], pairs)
        seconds: list[float] = []
        grids: list[Grid] = []
        for _ in range(1 + REPEATS):  # the first compiles and compares kernels
            torch.cuda.synchronize()
            start = time.perf_counter()
            grids = interchange_cohort(models, pairs, plan)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
        likelihoods = [cell.effects.likelihood.double().sum().item() for grid in grids for cell in grid.cells.values()]
        found[architecture] = {"seconds": seconds[1:], "cells": len(plan), "likelihoods": sum(likelihoods)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--earlier", type=Path, help="a folder with the earlier version's src")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure()))
        return
    here = Path(__file__).resolve().parent.parent
    trees = {"now": here} | ({"earlier": options.earlier} if options.earlier else {})
    turns: dict[str, list[dict[str, Any]]] = {name: [] for name in trees}
    for _ in range(TURNS):
        for name, tree in trees.items():
            path = os.pathsep.join([str(tree / "src"), os.environ.get("PYTHONPATH", "")])
            command = [sys.executable, "-P", str(Path(__file__).resolve()), "--measure"]
            ran = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
            if ran.returncode:
                raise SystemExit(f"{name} failed:\n{ran.stderr[-2000:]}")
            turns[name].append(json.loads(ran.stdout.splitlines()[-1]))
    rows: list[dict[str, Any]] = []
    for architecture in ARCHITECTURES:
        row: dict[str, Any] = {"architecture": architecture, "models": MODELS, "width": WIDTH, "documents": DOCUMENTS}
        for name, found in turns.items():
            seconds = [s for turn in found for s in turn[architecture]["seconds"]]
            row[name] = {
                "median_s": round(statistics.median(seconds), 4),
                "range_s": [round(min(seconds), 4), round(max(seconds), 4)],
            }
            row["cells"] = found[0][architecture]["cells"]
            row[name]["likelihoods"] = found[0][architecture]["likelihoods"]
        if "earlier" in row:
            row["ratio"] = round(row["now"]["median_s"] / row["earlier"]["median_s"], 3)
        rows.append(row)
        print(json.dumps(row), flush=True)
    options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
