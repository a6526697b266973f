"""Trains the ground truth: every architecture for every route, three seeds each, and keeps what is admitted.

    python -m benchmarks.ground_truth.train --device cuda --at-once 6 --out DIR

One file of numbers for each architecture and route, and one of weights for each model that is admitted. What lies in
DIR already is not trained again, so a run that was cut short goes on where it was; with `--again`, the seeds that were
not admitted are tried once more, with other settings.
"""

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from benchmarks.ground_truth.admit import Admission, admission
from benchmarks.ground_truth.plan import LEARNERS, MIXTURES, SEEDS, TASK, Cell, Size, cells
from benchmarks.ground_truth.routes import MIXED, ROUTES
from mixerscope import Machine, Model, build_model, train_cohort
from mixerscope.errors import UserError

GLANCE = 200
"""Documents on which the learning rate of each seed is chosen, others than those of the admission."""


@dataclass
class Trial:
    """One trained model, with its weights as they are stored."""

    seed: int
    lr: float
    model: Model
    weights: dict[str, Tensor]
    glance: float


def train(cell: Cell, seeds: list[int], size: Size, machine: Machine, measure_on: str) -> dict[int, Trial]:
    """For each seed the better of its models; none where all diverged."""
    best: dict[int, Trial] = {}
    for member in train_cohort(cell.specs(size, seeds), machine=machine):
        if member.outcome == "diverged":
            continue
        weights = {name: w.to(torch.float16) if w.is_floating_point() else w for name, w in member.weights.items()}
        model = build_model(member.spec.model, TASK.vocab_size, 0)
        model.load_state_dict(weights)
        glance = _goodness(admission(model.eval().to(measure_on), TASK, cell.route, GLANCE, seed=0))
        seed = member.spec.seed
        if seed not in best or glance > best[seed].glance:
            best[seed] = Trial(seed, member.spec.train.lr, model, weights, glance)
    return best


def _goodness(found: Admission) -> float:
    return min(found.accuracy, found.interchange, found.broken) - max(found.off_route, found.single)


def admitted_before(cell: Cell, out: Path) -> dict[int, dict[str, Any]] | None:
    """What is known of each seed, or None if the cell was never trained."""
    path = out / f"{cell.name}.json"
    return {row["seed"]: row for row in json.loads(path.read_text())["models"]} if path.exists() else None


def learn(cell: Cell, out: Path, machine: Machine, size: Size, seeds: list[int], measure_on: str = "cpu") -> str:
    """Trains and measures one cohort and writes what became of it; returns a line about it."""
    began = time.perf_counter()
    rows = admitted_before(cell, out) or {}
    seeds = [seed for seed in seeds if not rows.get(seed, {}).get("admitted")]
    for seed, trial in train(cell, seeds, size, machine, measure_on).items():
        found = admission(trial.model, TASK, cell.route)
        row = {"seed": seed, "lr": trial.lr, "steps": size.steps, "batch_size": size.batch, "weight": size.weight}
        row |= {"admitted": found.admitted, **found.numbers()}
        if found.admitted:
            save_file(trial.weights, out / f"{cell.name}--{seed}.safetensors")
        if found.admitted or seed not in rows or row["interchange"] > rows[seed]["interchange"]:
            rows[seed] = row
    spec = cell.specs(size)[0].model_dump(mode="json", include={"task", "model"})
    record = {"architecture": cell.learner, "route": cell.route, "spec": spec, "models": list(rows.values())}
    (out / f"{cell.name}.json").write_text(json.dumps(record, indent=1) + "\n")
    numbers = [f"{row['accuracy']:.3f} {row['interchange']:.3f} {row['off_route']:.3f}" for row in rows.values()]
    admitted = sum(row["admitted"] for row in rows.values())
    took = time.perf_counter() - began
    return f"{cell.name}: {admitted} of {len(rows)} admitted ({'; '.join(numbers)}), {took:.0f} s"


def _unlearnt_part(cell: Cell, out: Path) -> str | None:
    """A route of a mixture that this architecture did not learn by itself."""
    for part in cell.route.split(MIXED) if cell.is_mixture else ():
        if not any(out.glob(f"{Cell(cell.learner, part).name}--*.safetensors")):
            return part
    return None


def main() -> None:
    usual = Size()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--measure-on", choices=("cpu", "cuda"), help="where admission is measured; else --device")
    parser.add_argument("--learners", nargs="+", choices=LEARNERS, default=list(LEARNERS))
    parser.add_argument("--routes", nargs="+", choices=[*ROUTES, *MIXTURES], default=[*ROUTES, *MIXTURES])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--steps", type=int, default=usual.steps)
    parser.add_argument("--batch", type=int, default=usual.batch)
    parser.add_argument("--rates", type=int, default=usual.rates, help="learning rates tried with every seed")
    parser.add_argument("--weight", nargs=2, type=float, default=usual.weight, help="of mixed runs, first and last")
    parser.add_argument("--at-once", type=int, default=1, help="cohorts in flight, a thread each")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no cohort is begun")
    parser.add_argument("--again", action="store_true", help="try seeds that were not admitted once more")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    machine, began = Machine(device=options.device), time.monotonic()
    size = Size(options.steps, options.batch, options.rates, tuple(options.weight))

    def wanted(cell: Cell) -> bool:
        rows = admitted_before(cell, options.out)
        return rows is None or (options.again and not all(rows.get(s, {}).get("admitted") for s in options.seeds))

    def work(cell: Cell) -> str:
        if time.monotonic() - began > options.seconds:
            return f"{cell.name}: left for the next run"
        if part := _unlearnt_part(cell, options.out):
            return f"{cell.name}: not trained, no model was admitted for {part!r}"
        try:
            return learn(cell, options.out, machine, size, options.seeds, options.measure_on or options.device)
        except (RuntimeError, UserError) as error:  # the others go on; this one is left for the next run
            return f"{cell.name}: failed, {type(error).__name__}: {error}"

    todo = [cell for cell in cells(options.learners, options.routes) if wanted(cell)]
    for mixture in (False, True):
        with ThreadPoolExecutor(options.at_once) as pool:
            for done in as_completed([pool.submit(work, cell) for cell in todo if cell.is_mixture == mixture]):
                print(f"{time.monotonic() - began:5.0f} s  {done.result()}", flush=True)


if __name__ == "__main__":
    main()
