"""How many models to stack on one GPU: model-steps a second by stack size, architecture, width and stacks in flight.

For each architecture and width, stacks of K models train alone and several at once (a thread and a stream each, as in
a sweep). What counts is models times steps a second over all stacks: the same chip, more seeds. Every stack is
compiled beforehand, in processes of their own.
"""

import argparse
import gc
import json
import os
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.in_flight import together
from benchmarks.training import RESULTS, make_stack, rates_of
from benchmarks.training_specs import published_spec, with_rates
from mixerscope import kernels
from mixerscope.machine import Machine, matmuls
from mixerscope.spec import RunSpec
from mixerscope.sweep.ahead import Ahead
from mixerscope.sweep.cohorts import Cohort


def endless(architecture: str, width: int, precision: str) -> RunSpec:
    spec = published_spec(architecture, width, precision)
    return spec.changed(train=spec.train.changed(steps=500_000))  # more than anybody waits for


def compile_ahead(specs: list[RunSpec], sizes: list[int], machine: Machine) -> float:
    cohorts = [Cohort(tuple(with_rates(spec, rates_of(size)))) for spec in specs for size in sizes]
    started = time.perf_counter()
    ahead = Ahead(cohorts, machine, min(12, os.cpu_count() or 1))
    for cohort in cohorts:
        ahead.is_ready(cohort, wait=600)
    ahead.close()
    return time.perf_counter() - started


def rows_of(spec: RunSpec, size: int, flights: list[int], machine: Machine, seconds: float) -> list[dict[str, Any]]:
    torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    stacks = [make_stack(spec, size, machine) for _ in range(max(flights))]
    for stack in stacks:
        stack.build()
    built = (time.perf_counter() - began) / len(stacks)
    rows: list[dict[str, Any]] = []
    for count in flights:
        steps = together(stacks[:count], seconds, {})["steps_per_s"]
        rows.append(
            {
                "architecture": spec.model.architecture,
                "width": spec.model.width,
                "models": size,
                "stacks": count,
                "steps_per_s": steps,
                "model_steps_per_s": size * steps,
                "build_s": built,
                "memory_gib": torch.cuda.max_memory_allocated() / 2**30,
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--architectures", nargs="+", default=("attention", "mamba", "deltanet"))
    parser.add_argument("--widths", nargs="+", type=int, default=(16, 64, 256))
    parser.add_argument("--models", nargs="+", type=int, default=(7, 14, 35))
    parser.add_argument("--stacks", nargs="+", type=int, default=(1, 2, 4))
    parser.add_argument("--precision", choices=("float32", "tf32"), default="tf32")
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--stop-after", type=float, default=540.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    began = time.perf_counter()
    machine = Machine("cuda", compile=True)
    specs = [endless(name, width, options.precision) for width in options.widths for name in options.architectures]
    compiled = compile_ahead(specs, options.models, machine)
    print(f"compiled in {compiled:.0f} s", flush=True)
    rows: list[dict[str, Any]] = []
    left: list[str] = []
    with matmuls(options.precision), kernels.switched(machine.kernels):
        for spec in specs:
            for size in options.models:
                name = f"{spec.model.architecture} d={spec.model.width} x{size}"
                if time.perf_counter() - began > options.stop_after:
                    left.append(name)
                    continue
                rows += rows_of(spec, size, list(options.stacks), machine, options.seconds)
                gc.collect()
                torch.cuda.empty_cache()
    result = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "precision": options.precision,
        "compile_s": compiled,
        "rows": rows,
        "not_measured": left,
    }
    (options.out / "stacks.json").write_text(json.dumps(result, indent=2) + "\n")
    best: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows:
        key = (row["architecture"], row["width"])
        if key not in best or row["model_steps_per_s"] > best[key]["model_steps_per_s"]:
            best[key] = row
    for (name, width), row in best.items():
        seven = [r for r in rows if (r["architecture"], r["width"], r["models"]) == (name, width, 7)]
        base = max((r["model_steps_per_s"] for r in seven), default=float("nan"))
        ratio = row["model_steps_per_s"] / base
        print(f"{name} d={width}: best {row['models']} x {row['stacks']}, ratio to stacks of 7: {ratio:.2f}")


if __name__ == "__main__":
    main()
