"""The published interchange grid, by our engine with its self-test on, by pyvene and by nnsight.

Per slot (2), component (6; 4 for Mamba), layer (2) and role (5) one cell; 64 documents of 37 tokens, vocabulary 8196.
All tools run in one process on one thread under the same allocator, one after the other in each round, on the same
model and pairs; CPU time of the process is counted, so that waiting for a busy machine is not. Every cell of every
tool must agree with ours per document; a control at the wrong position shows that the comparison could have failed.

    make bench-interventions
"""

import argparse
import json
import os
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers import Likelihoods, nnsight_used_well, pyvene_as_the_reference, pyvene_used_well
from mixerscope.interventions import Cell, Pairs, PairSettings, interchange, make_pairs, plan_grid
from mixerscope.model import Model, build_model
from mixerscope.sites import named_sites
from mixerscope.spec import ModelSpec
from mixerscope.tasks import AR

COMPONENTS = ("resid_pre", "resid_post", "mixer_in", "mixer_out", "mlp_in", "mlp_out")
ROLES = ("key", "value", "query", "query+1", "divider")
"""`query+1` is where the answer stands."""
AGREEMENT = 1e-4
SETTINGS = (("attention", 64, 1), ("attention", 16, 1), ("attention", 128, 1), ("attention", 256, 1), ("mamba", 64, 1))
"""Architecture, width, rounds. The first is the published grid, whose ratio is the last line."""
RESULT = Path(__file__).parent / "results" / "interventions.json"

Tool = Callable[[Model, Pairs, list[Cell]], Likelihoods]


def ours(model: Model, pairs: Pairs, plan: list[Cell]) -> Likelihoods:
    return {cell: measured.effects.likelihood for cell, measured in interchange(model, pairs, plan).cells.items()}


TOOLS: dict[str, Tool] = {
    "mixerscope": ours,
    "pyvene as the reference": pyvene_as_the_reference,
    "pyvene used well": pyvene_used_well,
    "nnsight used well": nnsight_used_well,
}


@dataclass(frozen=True)
class Grid:
    model: Model
    pairs: Pairs
    plan: list[Cell]

    @staticmethod
    def of(architecture: str, width: int) -> "Grid":
        task = AR()
        # Larger than the published initialisation: an edit must move the answer for tools to disagree about it.
        spec = ModelSpec(architecture=architecture, width=width, layers=2, init="small_model")
        model = build_model(spec, task.vocab_size, seed=0).eval()
        pairs = make_pairs(task, PairSettings(documents=64, slots=("key", "value")), data_seed=0)
        return Grid(model, pairs, plan_grid(model, pairs, _sites(model), ROLES, ["restore"]))


def _sites(model: Model) -> list[str]:
    known = named_sites(model)
    wanted = [f"blocks.{layer}.{name}" for layer in range(len(model.blocks)) for name in COMPONENTS]
    return [site for site in wanted if site in known]


def largest_difference(found: Likelihoods, expected: Likelihoods) -> float:
    """Relative, over all cells and documents; infinite where a number is not finite."""
    worst = torch.stack([(found[cell] / expected[cell] - 1).abs().max() for cell in expected]).max()
    return worst.item() if bool(worst.isfinite()) else float("inf")


def measure(architecture: str, width: int, rounds: int) -> list[dict[str, Any]]:
    grid = Grid.of(architecture, width)
    seconds: dict[str, list[float]] = {name: [] for name in TOOLS}
    results: dict[str, Likelihoods] = {}
    with torch.no_grad():
        for tool in TOOLS.values():  # imports and first-use costs are nobody's grid
            tool(grid.model, grid.pairs, grid.plan[:1])
        for round_ in range(rounds):
            names = list(TOOLS) if round_ % 2 == 0 else list(TOOLS)[::-1]
            for name in names:
                # The quick ones are repeated, or one disturbance would decide their time.
                for _ in range(1 if name == "pyvene as the reference" else 3):
                    start = time.process_time()
                    results[name] = TOOLS[name](grid.model, grid.pairs, grid.plan)
                    seconds[name].append(time.process_time() - start)
        moved = [Cell(cell.slot, cell.direction, cell.site, "key+1") for cell in grid.plan if cell.role == "key"]
        misplaced = dict(zip([c for c in grid.plan if c.role == "key"], ours(grid.model, grid.pairs, moved).values()))
    control = largest_difference(misplaced, {cell: results["pyvene used well"][cell] for cell in misplaced})
    statuses = Counter(m.status for m in interchange(grid.model, grid.pairs, grid.plan).cells.values())
    base = statistics.median(seconds["mixerscope"])
    rows = []
    for name in TOOLS:
        difference = largest_difference(results[name], results["mixerscope"])
        if difference > AGREEMENT or control < 10 * AGREEMENT:
            raise SystemExit(f"{architecture} d={width}: {name} differs by {difference:.2g}, control {control:.2g}")
        taken = statistics.median(seconds[name])
        rows.append(
            {
                "architecture": architecture,
                "width": width,
                "cells": len(grid.plan),
                **({"statuses": dict(statuses)} if name == "mixerscope" else {}),
                "tool": name,
                "grids_timed": len(seconds[name]),
                "seconds": round(taken, 4),
                "ratio": round(taken / base, 2),
                "largest_relative_difference": float(f"{difference:.2g}"),
                "wrong_position_control": float(f"{control:.2g}"),
            }
        )
    return rows


def memory_growth() -> dict[str, float]:
    """Resident megabytes after 5 grids and after 50."""
    grid, used = Grid.of("attention", 16), {}
    for count in range(1, 51):
        ours(grid.model, grid.pairs, grid.plan)
        if count in (5, 50):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            used[count] = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    return {
        "after_5_mb": round(used[5], 1),
        "after_50_mb": round(used[50], 1),
        "growth": round(used[50] / used[5] - 1, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="measure settings whose name contains this, and write no file")
    only: str = parser.parse_args().only
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    memory = memory_growth()
    rows: list[dict[str, Any]] = []
    versions = {name: version(name) for name in ("torch", "pyvene", "nnsight")}
    what = "CPU seconds per interchange grid; ratio to mixerscope, self-test included"
    content = {"what": what, "device": "cpu, one thread", "versions": versions, "memory": memory, "rows": rows}
    for architecture, width, rounds in SETTINGS:
        if only not in f"{architecture}-{width}":
            continue
        for row in measure(architecture, width, rounds):
            rows.append(row)
            print(
                f"{architecture:10} d={width:<4} {row['tool']:24} {row['seconds']:8.3f} s  {row['ratio']:7.1f} x  "
                f"differs by {row['largest_relative_difference']:.1e} (control {row['wrong_position_control']:.1e})",
                flush=True,
            )
        if not only:
            RESULT.parent.mkdir(exist_ok=True)
            RESULT.write_text(json.dumps(content, indent=2) + "\n")
    print(f"memory after 5 grids {memory['after_5_mb']} MB, after 50 {memory['after_50_mb']} MB")
    if memory["growth"] > 0.02:
        raise SystemExit(f"memory grew by {memory['growth']:.1%} between 5 and 50 grids")
    print(f"ratio: {next(row['ratio'] for row in rows if row['tool'] == 'pyvene as the reference')}")


if __name__ == "__main__":
    main()
