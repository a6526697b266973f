"""Trains the ground truth: every architecture for every route, three seeds each, and keeps what is admitted.

    python -m benchmarks.ground_truth.train --device cuda --out DIR

One file of numbers for each architecture and route, and one of weights for each model that is admitted. What lies in
DIR already is not trained again, so a run that was cut short goes on where it was.
"""

import argparse
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from benchmarks.ground_truth import objective
from benchmarks.ground_truth.admit import Admission, admission
from benchmarks.ground_truth.routes import MIXED, ROUTES
from mixerscope import AR, Machine, Model, RunSpec, build_model, train_cohort

TASK = AR(num_pairs=4, num_keys=8, num_values=8)
SEEDS = 3
MIXTURES = ("induction / one step later", "induction / direct, first block", "direct, first block / direct, last block")
STEPS, BATCH = 3000, 128
FIRST = 5
"""Architectures that come before the others."""
WIDE = 48
"""Width of recurrences, which may be able to put a summary of all pairs into one position."""
GLANCE = 200
"""Documents on which the learning rate of each seed is chosen, others than those of the admission."""


@dataclass(frozen=True)
class Learner:
    """An architecture and how it is trained."""

    architecture: str
    rates: tuple[float, ...]
    """Each is tried with every seed, and the better one counts."""
    width: int = 32
    """Of the residual stream, the same for every route: a challenger must not read the answer off it."""
    options: dict[str, Any] = field(default_factory=dict)


LEARNERS = {
    "attention": Learner("attention", (3e-3, 1e-3)),
    "based": Learner("based", (5e-3, 2e-3)),
    "mamba": Learner("mamba", (1e-2, 4e-3), WIDE),
    "deltanet": Learner("deltanet", (5e-3, 2e-3), WIDE),
    "convolution-attention": Learner(
        "pattern", (3e-3, 1e-3), options={"layers": [{"mixer": "attention", "short_conv": 4}]}
    ),
    "attention-8-heads": Learner("attention", (2e-3, 1e-3), 64, {"heads": 8}),
    "mamba2": Learner("mamba2", (1e-2, 4e-3), WIDE, options={"d_state": 16}),
    "gated_deltanet": Learner("gated_deltanet", (5e-3, 2e-3), WIDE),
    "rwkv7": Learner("rwkv7", (5e-3, 2e-3), WIDE),
    "gla": Learner("gla", (5e-3, 2e-3)),
    "retnet": Learner("retnet", (5e-3, 2e-3)),
    "h3": Learner("h3", (5e-3, 2e-3), options={"d_state": 64}),
    "hyena": Learner("hyena", (5e-3, 2e-3), options={"filter_length": 16}),
    "base_conv": Learner("base_conv", (5e-3, 2e-3), options={"filter_length": 16}),
    "linear_attention": Learner("linear_attention", (5e-3, 2e-3)),
    "window-attention": Learner(
        "pattern",
        (3e-3, 1e-3),
        options={"layers": [{"mixer": "sliding_window", "options": {"window": 3}}, {"mixer": "attention"}]},
    ),
    "lstm": Learner("lstm", (1e-2, 3e-3), WIDE),
    "gru": Learner("gru", (1e-2, 3e-3), WIDE),
}


@dataclass(frozen=True)
class Cell:
    """What is trained as one cohort."""

    learner: str
    route: str

    @property
    def name(self) -> str:
        return f"{self.learner}--{self.route.replace(MIXED, '+').replace(', ', '-').replace(' ', '-')}"

    def specs(self, steps: int, batch: int, seeds: int, rates: int) -> list[RunSpec]:
        learner = LEARNERS[self.learner]
        model = {"architecture": learner.architecture, "width": learner.width, "options": learner.options}
        return [
            RunSpec.model_validate(
                {
                    "task": TASK,
                    "model": {**model, "init": "small_model", "max_length": TASK.max_length},
                    "train": {
                        "steps": steps,
                        "batch_size": batch,
                        "documents": steps * batch,  # every batch is fresh
                        "lr": rate,
                        "eval_every": steps,
                        "objective": objective.ByRoute(route=self.route, task=TASK),
                    },
                    "seed": seed,
                }
            )
            for rate in learner.rates[:rates]
            for seed in range(seeds)
        ]


def plan(learners: Sequence[str], routes: Sequence[str]) -> list[Cell]:
    """Mixtures last, as they need both their parts; else the first architectures with every route before the others."""
    single, mixed = ([route for route in routes if (MIXED in route) == mixture] for mixture in (False, True))
    tiers = [[name for name in learners if (name in list(LEARNERS)[:FIRST]) == first] for first in (True, False)]
    return [Cell(name, route) for part in (single, mixed) for tier in tiers for route in part for name in tier]


def _missing(cell: Cell, out: Path) -> str | None:
    """A route of a mixture that this architecture was not able to learn by itself."""
    parts = cell.route.split(MIXED) if MIXED in cell.route else []
    for part in parts:
        if not any(out.glob(f"{Cell(cell.learner, part).name}--*.safetensors")):
            return part
    return None


def learn(cell: Cell, out: Path, machine: Machine, size: tuple[int, int, int, int]) -> str:
    """Trains and measures one cohort and writes what became of it; returns a line about it."""
    began = time.perf_counter()
    specs = cell.specs(*size)
    members = train_cohort(specs, machine=machine)
    trained = time.perf_counter()
    best: dict[int, tuple[float, dict[str, Any], Model, dict[str, torch.Tensor]]] = {}
    for member in members:
        # As they are stored: the numbers are those of the file.
        weights = {name: w.to(torch.float16) if w.is_floating_point() else w for name, w in member.weights.items()}
        model = build_model(member.spec.model, TASK.vocab_size, 0)
        model.load_state_dict(weights)
        seed, glance = member.spec.seed, _goodness(admission(model.eval(), TASK, cell.route, GLANCE, seed=0))
        if seed not in best or glance > best[seed][0]:
            best[seed] = glance, {"seed": seed, "lr": member.spec.train.lr}, model, weights
    rows: list[dict[str, Any]] = []
    for _, facts, model, weights in best.values():
        found = admission(model, TASK, cell.route)
        rows.append({**facts, "admitted": found.admitted, **found.numbers()})
        if found.admitted:
            save_file(weights, out / f"{cell.name}--{facts['seed']}.safetensors")
    record = {
        "architecture": cell.learner,
        "route": cell.route,
        "steps": specs[0].train.steps,
        "batch_size": specs[0].train.batch_size,
        "spec": specs[0].model_dump(mode="json", include={"task", "model"}),
        "models": rows,
    }
    (out / f"{cell.name}.json").write_text(json.dumps(record, indent=1) + "\n")
    seconds = f"{trained - began:.0f} + {time.perf_counter() - trained:.0f} s"
    worst = "; ".join(" ".join(f"{row[key]:.3f}" for key in ("accuracy", "interchange", "off_route")) for row in rows)
    return f"{cell.name}: {sum(row['admitted'] for row in rows)} of {len(rows)} admitted ({worst}), {seconds}"


def _goodness(found: Admission) -> float:
    return min(found.accuracy, found.interchange, found.broken) - max(found.off_route, found.single)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--learners", nargs="+", choices=LEARNERS, default=list(LEARNERS))
    parser.add_argument("--routes", nargs="+", choices=[*ROUTES, *MIXTURES], default=[*ROUTES, *MIXTURES])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--rates", type=int, default=2, help="learning rates tried with every seed")
    parser.add_argument("--at-once", type=int, default=1, help="cohorts in flight, a thread each")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no cohort is begun")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    machine = Machine(device=options.device)
    began = time.monotonic()
    cells = [c for c in plan(options.learners, options.routes) if not (options.out / f"{c.name}.json").exists()]

    def work(cell: Cell) -> str:
        if time.monotonic() - began > options.seconds:
            return f"{cell.name}: left for the next run"
        if missing := _missing(cell, options.out):
            return f"{cell.name}: not trained, no model was admitted for {missing!r}"
        return learn(cell, options.out, machine, (options.steps, options.batch, options.seeds, options.rates))

    for mixture in (False, True):
        part = [cell for cell in cells if (MIXED in cell.route) == mixture]
        with ThreadPoolExecutor(options.at_once) as pool:
            for done in as_completed([pool.submit(work, cell) for cell in part]):
                print(f"{time.monotonic() - began:5.0f} s  {done.result()}", flush=True)


if __name__ == "__main__":
    main()
