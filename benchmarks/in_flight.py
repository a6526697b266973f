"""Several cohorts at once on one GPU: steps a second of all together, and the price of other work beside them.

One process, a thread and a stream per cohort, as in a sweep. Beside some cohorts in training another thread builds a
stack and patches a cohort of untrained models. `--launched-ahead 1000` lets the device's queue run full.
"""

import argparse
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.training import RESULTS, make_stack
from benchmarks.training_specs import RATES, published_spec
from mixerscope import kernels
from mixerscope.interventions import interchange_cohort, make_pairs
from mixerscope.machine import Machine, matmuls
from mixerscope.model import build_model
from mixerscope.spec import RunSpec
from mixerscope.training import stack as stack_module
from mixerscope.training.stack import UNROLLED, Stack


class Training(threading.Thread):
    """A cohort that trains until it is told to stop."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(daemon=True)
        self.stack, self.steps, self.stopping = stack, 0, threading.Event()

    def run(self) -> None:
        with torch.cuda.stream(torch.cuda.Stream(priority=-1)):
            while not self.stopping.is_set():
                self.stack.advance(UNROLLED)
                self.steps += UNROLLED
            torch.cuda.current_stream().synchronize()


def together(stacks: list[Stack], seconds: float, work: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Steps a second of all stacks, then the seconds that each piece of work takes beside them."""
    threads = [Training(stack) for stack in stacks]
    for thread in threads:
        thread.start()
    time.sleep(1.0)
    before, started = sum(thread.steps for thread in threads), time.perf_counter()
    time.sleep(seconds)
    found = {"steps_per_s": (sum(thread.steps for thread in threads) - before) / (time.perf_counter() - started)}
    for name, piece in work.items():
        with torch.cuda.stream(torch.cuda.Stream(priority=-1)):
            started = time.perf_counter()
            piece()
            torch.cuda.current_stream().synchronize()
            found[f"{name}_s"] = time.perf_counter() - started
    for thread in threads:
        thread.stopping.set()
    for thread in threads:
        thread.join()
    return found


def grid(spec: RunSpec) -> None:
    models = [build_model(spec.model, spec.task.vocab_size, seed).cuda().eval() for seed in range(len(RATES))]
    interchange_cohort(models, make_pairs(spec.task, spec.stages["patch"], 0).to(torch.device("cuda")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--architecture", default="attention")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--counts", nargs="+", type=int, default=(0, 1, 2, 4, 6))
    parser.add_argument("--launched-ahead", type=int, default=stack_module.LAUNCHED_AHEAD)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--precision", choices=("float32", "tf32"), default="tf32")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    stack_module.LAUNCHED_AHEAD = options.launched_ahead
    spec = published_spec(options.architecture, options.width, options.precision)
    spec = spec.changed(train=spec.train.changed(steps=500_000))  # more than anybody waits for
    machine = Machine("cuda", compile=options.compile)
    rows: list[dict[str, float]] = []
    with matmuls(options.precision), kernels.switched(machine.kernels):
        stacks = [make_stack(spec, len(RATES), machine) for _ in range(max(options.counts))]
        for stack in stacks:
            stack.build()
        work = {"build": lambda: make_stack(spec, len(RATES), machine).build(), "grid": lambda: grid(spec)}
        grid(spec)  # once, so that kernels are compiled and compared
        for count in options.counts:
            rows.append({"cohorts": count, **together(stacks[:count], options.seconds, work)})
            print(json.dumps(rows[-1]), flush=True)
    result = {
        "device": torch.cuda.get_device_name(),
        "architecture": options.architecture,
        "width": options.width,
        "precision": options.precision,
        "compiled": options.compile,
        "launched_ahead": options.launched_ahead,
        "rows": rows,
    }
    (options.out / "in_flight.json").write_text(json.dumps(result, indent=2) + "\n")
    alone = next((row["steps_per_s"] for row in rows if row["cohorts"] == 1), None)
    if alone:
        print(f"ratio: {max(row['steps_per_s'] for row in rows) / alone:.2f}")


if __name__ == "__main__":
    main()
