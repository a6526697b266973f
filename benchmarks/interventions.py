"""The published interchange grid by our engine with its self-test on, by our engine of 0.1, by pyvene and by nnsight.

Per slot (2), component (6; 4 where there is no MLP), layer (2) and role (5) one cell; 64 documents of 37 tokens,
vocabulary 8196. Each tool lives in a process of its own with one thread, on the same weights and documents, and they
take turns (`rounds`). CPU time of the process is counted, so that waiting for a busy machine is not. Tools that take
as long for every cell get a share of the sites in each round, all of them over the rounds, and their seconds are those
of a whole grid. Every cell of every tool must agree with ours per document; a control at the wrong position shows that
the comparison could have failed.

    make bench-interventions
"""

import argparse
import json
import os
import platform
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from benchmarks.grid_worker import INIT, LAYERS, tensors_of
from benchmarks.interventions_tables import AS_PUBLISHED, BEFORE, FACTS, NNSIGHT, OURS, PAGE, USED_WELL, tables
from benchmarks.paste import paste
from benchmarks.rounds import Spread, in_turns, ratios, share
from benchmarks.versions import Worker, checked_out
from mixerscope.interventions import PairSettings, make_pairs
from mixerscope.model import build_model
from mixerscope.sites import named_sites
from mixerscope.spec import ModelSpec
from mixerscope.tasks import AR

COMPONENTS = ("resid_pre", "resid_post", "mixer_in", "mixer_out", "mlp_in", "mlp_out")
ROLES = ("key", "value", "query", "query+1", "divider")
"""`query+1` is where the answer stands."""
SLOTS = ("key", "value")
AGREEMENT = 1e-4
SLOWER, GROWTH = 1.05, 0.02
"""More than this, against 0.1 and between 5 and 50 grids, is a failure."""
EARLIER = "84740a3"
"""The commit of 0.1."""
RESULT = Path(__file__).parent / "results" / "interventions.json"

FUNCTIONS = {AS_PUBLISHED: "pyvene_as_the_reference", USED_WELL: "pyvene_used_well", NNSIGHT: "nnsight_used_well"}
IN_SHARES = (AS_PUBLISHED, NNSIGHT)
QUICK = (OURS, BEFORE) * 3 + (FACTS,)
"""Repeated within a round, or one disturbance would decide their time."""
ALL_TOOLS = (*QUICK, USED_WELL, NNSIGHT, AS_PUBLISHED)
WITHOUT_SLOW_ONES = (*QUICK, USED_WELL)
SETTINGS = {
    ("attention", 64): ALL_TOOLS,
    ("attention", 16): ALL_TOOLS,
    ("attention", 32): ALL_TOOLS,
    ("attention", 128): ALL_TOOLS,
    ("attention", 256): ALL_TOOLS,
    ("mamba", 64): ALL_TOOLS,
    ("based", 64): WITHOUT_SLOW_ONES,
    ("deltanet", 64): WITHOUT_SLOW_ONES,
    ("hyena", 64): WITHOUT_SLOW_ONES,
}
"""The first is the published grid, whose ratio is the last line."""
PLANS = {
    "every cell": (OURS, SLOTS, "everything"),
    "every cell, 0.1": (BEFORE, SLOTS, "everything"),
    "what a run records": (OURS, (*SLOTS, "query"), "with judging"),
}
"""Grids of both directions, all sites and all roles: worker, slots that are corrupted, cells."""
PLANS_OF = (("attention", 64),)


@dataclass
class Setting:
    """One model and its documents, given to all workers."""

    architecture: str
    width: int
    folder: Path
    workers: dict[str, Worker]
    cells: list[tuple[str, str, str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        task = AR()
        spec = ModelSpec(architecture=self.architecture, width=self.width, layers=LAYERS, init=INIT)
        model = build_model(spec, task.vocab_size, seed=0)
        pairs = make_pairs(task, PairSettings(documents=64, slots=SLOTS), data_seed=0)
        known = named_sites(model)
        wanted = [f"blocks.{layer}.{name}" for layer in range(LAYERS) for name in COMPONENTS]
        self.sites = [site for site in wanted if site in known]
        self.cells = [(slot, "restore", site, role) for slot in SLOTS for site in self.sites for role in ROLES]
        self.found: dict[str, dict[tuple[str, str, str, str], Tensor]] = {name: {} for name in self.workers}
        tensors = self.folder / "setting.safetensors"
        save_file(tensors_of(model, pairs), tensors)
        at = {"tensors": str(tensors), "architecture": self.architecture, "width": self.width}
        for name, worker in self.workers.items():
            tool = FUNCTIONS.get(name, "mixerscope")
            worker.ask(do="load", **at, tool=tool, slots=SLOTS, cells=self.cells)

    def run(self, name: str, number: int, rounds: int) -> float:
        """Seconds that a tool takes for the grid, in round `number`; what it finds is kept."""
        worker, slots = (OURS, (*SLOTS, "query")) if name == FACTS else (name, SLOTS)
        sites = share(self.sites, number, min(rounds, len(self.sites))) if name in IN_SHARES else self.sites
        cells = [cell for cell in self.cells if cell[2] in sites]
        keep = self.folder / "found.safetensors"
        answer = self.workers[worker].ask(do="run", slots=slots, cells=cells, keep=str(keep))
        if name != FACTS:
            self.found[name] |= dict(zip(cells, load_file(keep)["likelihoods"], strict=True))
        return answer["seconds"] * len(self.cells) / len(cells)

    def control(self) -> float:
        """How far our numbers one position beside the key are from those at the key by another tool."""
        at_key = [cell for cell in self.cells if cell[3] == "key"]
        keep = self.folder / "found.safetensors"
        moved = [(*cell[:3], "key+1") for cell in at_key]
        self.workers[OURS].ask(do="run", slots=SLOTS, cells=moved, keep=str(keep))
        misplaced = dict(zip(at_key, load_file(keep)["likelihoods"], strict=True))
        return largest_difference(misplaced, {cell: self.found[USED_WELL][cell] for cell in at_key})


def largest_difference(found: dict[Any, Tensor], expected: dict[Any, Tensor]) -> float:
    """Relative, over all cells and documents; infinite where a number is not finite."""
    worst = torch.stack([(found[cell] / expected[cell] - 1).abs().max() for cell in expected]).max()
    return worst.item() if bool(worst.isfinite()) else float("inf")


def measure(setting: Setting, turns: tuple[str, ...], rounds: int) -> list[dict[str, Any]]:
    seconds = in_turns(turns, rounds, lambda name, number: setting.run(name, number, rounds))
    control = setting.control()
    rows: list[dict[str, Any]] = []
    for name, taken in seconds.items():
        row: dict[str, Any] = {"architecture": setting.architecture, "width": setting.width, "tool": name}
        row |= {"cells": len(setting.cells), "seconds": Spread.of(taken).rounded(4)}
        row["ratio"] = ratios(taken, seconds[OURS]).rounded(3)
        if name != FACTS:
            difference = largest_difference(setting.found[name], setting.found[OURS])
            if difference > AGREEMENT or control < 10 * AGREEMENT:
                raise SystemExit(f"{row}: {name} differs by {difference:.2g}, control {control:.2g}")
            row["largest_relative_difference"] = float(f"{difference:.2g}")
        if name == OURS:
            row["wrong_position_control"] = float(f"{control:.2g}")
            row["statuses"] = setting.workers[OURS].ask(do="statuses", slots=SLOTS, cells=setting.cells)
        rows.append(row)
    return rows


def measure_plans(setting: Setting, rounds: int) -> list[dict[str, Any]]:
    cells: dict[str, int] = {}

    def run(name: str, number: int) -> float:
        worker, slots, plan = PLANS[name]
        answer = setting.workers[worker].ask(do="run", slots=slots, cells=plan)
        cells[name] = answer["cells"]
        return answer["seconds"]

    seconds = in_turns(tuple(PLANS), rounds, run)
    at = {"architecture": setting.architecture, "width": setting.width}
    return [
        {
            **at,
            "plan": name,
            "cells": cells[name],
            "seconds": Spread.of(taken).rounded(4),
            "ratio": ratios(taken, seconds["every cell"]).rounded(3),
        }
        for name, taken in seconds.items()
    ]


def show(row: dict[str, Any]) -> None:
    ratio, differs = row["ratio"]["median"], row.get("largest_relative_difference")
    print(
        f"{row['architecture']:10} d={row['width']:<4} {row.get('tool', row.get('plan')):32} "
        f"{row['seconds']['median']:8.3f} s {ratio:8.2f} x  {row['ratio']['range']}",
        "" if differs is None else f" differs by {differs:.1e}",
        flush=True,
    )


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), platform.machine())


def complaints(content: dict[str, Any]) -> list[str]:
    """What was measured and must not be."""
    slower = [row for row in content["rows"] if row["tool"] == BEFORE and 1 / row["ratio"]["median"] > SLOWER]
    found = [f"{row['architecture']} d={row['width']}: slower than 0.1" for row in slower]
    growth = content["memory"]["growth"]
    return [*found, *([f"memory grew by {growth:.1%} between 5 and 50 grids"] if growth > GROWTH else [])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="measure settings whose name contains this, and write no file")
    parser.add_argument("--tools", default="", help="measure only tools whose name contains this, and pyvene used well")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    content: dict[str, Any] = {
        "what": "CPU seconds per interchange grid, self-test included; ratio to mixerscope in the same round; "
        "medians and ranges over rounds in which the tools take turns",
        "rounds": options.rounds,
        "device": f"{processor()}, one thread",
        "load_before": round(os.getloadavg()[0], 2),
        "versions": {name: version(name) for name in ("torch", "pyvene", "nnsight")} | {BEFORE: EARLIER},
    }
    rows: list[dict[str, Any]] = []
    plans: list[dict[str, Any]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        before = stack.enter_context(checked_out(EARLIER))
        module = "benchmarks.grid_worker"
        workers = {OURS: Worker(module), BEFORE: Worker(module, before)} | {name: Worker(module) for name in FUNCTIONS}
        for worker in workers.values():
            stack.callback(worker.close)
        small = Setting("attention", 16, folder, {OURS: workers[OURS]})
        content["memory"] = workers[OURS].ask(do="memory", slots=SLOTS, cells=small.cells)
        print(f"memory after 5 grids and after 50: {content['memory']}")
        for (architecture, width), turns in SETTINGS.items():
            if options.only in f"{architecture}-{width}-":
                wanted = tuple(name for name in turns if options.tools in name or name in (OURS, USED_WELL))
                setting = Setting(architecture, width, folder, {n: w for n, w in workers.items() if n in wanted})
                rows += measure(setting, wanted, options.rounds)
                if (architecture, width) in PLANS_OF and BEFORE in wanted:
                    plans += measure_plans(setting, options.rounds)
                for row in [*rows, *plans]:
                    if (row["architecture"], row["width"]) == (architecture, width):
                        show(row)
    content |= {"rows": rows, "plans": plans}
    if not (options.only or options.tools):
        RESULT.write_text(json.dumps(content, indent=2) + "\n")
        for name, text in tables(content).items():
            paste(PAGE, name, text)
    if complaints(content):
        raise SystemExit("; ".join(complaints(content)))
    print(f"ratio: {next((row['ratio']['median'] for row in rows if row['tool'] == AS_PUBLISHED), 'not measured')}")


if __name__ == "__main__":
    main()
