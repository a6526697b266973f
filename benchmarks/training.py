"""Training many models at once against training them one by one.

On a CPU: a cohort of small models against the same models one after another, as a ratio.
On a GPU (`--device cuda`): steps a second of a cohort of seven learning rates per architecture and width, beside a
plain eager loop over one model and a loop as the published code runs it (logits of every position copied to the
host, the loss read and the cache emptied at each step; `--no-loops` leaves both out), all in one run; and, with
`--checks`, how far GPU and CPU are apart, and whether runs end with the same bits again, alone and beside others.
Each row is written as soon as it is measured, so that a call that is cut short loses one row.
"""

import argparse
import itertools
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.ceilings import ceilings, demand, profile
from benchmarks.training_checks import same_bits, specs_of_checks, with_the_cpu
from benchmarks.training_specs import RATES, TASKS, published_spec, small_spec, with_rates
from mixerscope import kernels
from mixerscope.machine import Machine, matmuls
from mixerscope.model import build_model
from mixerscope.randomness import stream
from mixerscope.spec import RunSpec
from mixerscope.sweep.ahead import Ahead
from mixerscope.sweep.cohorts import Cohort
from mixerscope.sweep.cost import shares_to_compile
from mixerscope.training import train_cohort
from mixerscope.training.stack import UNROLLED, Stack
from mixerscope.training.trainer import _documents, _stack

RESULTS = Path(__file__).parent / "results"
ARCHITECTURES = ("attention", "based", "base_conv", "mamba", "hyena", "deltanet", "h3")
WIDTHS = (16, 32, 64, 128, 256)


def on_cpu(rounds: int = 3) -> dict[str, float]:
    specs = with_rates(small_spec())
    train_cohort(specs[:1])  # warm up
    together: list[float] = []
    alone: list[float] = []
    for _ in range(rounds):
        started = time.perf_counter()
        train_cohort(specs)
        together.append(time.perf_counter() - started)
        started = time.perf_counter()
        for member in specs:
            train_cohort([member])
        alone.append(time.perf_counter() - started)
    return {
        "models": len(specs),
        "together_s": min(together),
        "alone_s": min(alone),
        "ratio": min(alone) / min(together),
    }


def rates_of(count: int) -> tuple[float, ...]:
    return tuple(RATES[i % len(RATES)] for i in range(count))


def make_stack(spec: RunSpec, count: int, machine: Machine) -> Stack:
    return _stack(with_rates(spec, rates_of(count)), _documents(spec, "train"), machine, None)


def cohort_row(
    spec: RunSpec, count: int, machine: Machine, least: tuple[float, int], limits: dict[str, float]
) -> dict[str, Any]:
    """Steps a second of so many models, the seconds before the first one, and where the time of a step goes."""
    seconds, steps = least
    torch.cuda.reset_peak_memory_stats()
    stack = make_stack(spec, count, machine)
    started = time.perf_counter()
    stack.build()
    torch.cuda.synchronize()
    ready = time.perf_counter() - started
    rate = _rate(lambda: stack.advance(UNROLLED), seconds, steps // UNROLLED) * UNROLLED
    finite = bool(stack.loss_sum.isfinite().any())
    row: dict[str, Any] = {"steps_per_s": rate, "ready_s": ready, "finite": finite, **profile(stack), **demand(stack)}
    row["memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
    row["of_flop_ceiling"] = row["flop"] * rate / limits["flop_per_s"]
    row["of_byte_ceiling"] = row["update_bytes"] * rate / limits["byte_per_s"]
    return row


def single_rate(spec: RunSpec, seconds: float, *, as_published: bool) -> float:
    """Steps a second of one model in an ordinary loop, or in one that wastes what the published one wastes."""
    model = build_model(spec.model, spec.task.vocab_size, 0).cuda()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    batch = spec.task.sample(32, stream(0, "train"))
    read, targets = (tensor.cuda() for tensor in batch.scored())
    tokens = batch.tokens.cuda()

    def step() -> None:
        logits = model(batch.tokens.cuda()) if as_published else model(tokens, read)
        chosen = logits.gather(1, read.unsqueeze(-1).expand(-1, -1, logits.shape[-1])) if as_published else logits
        loss = F.cross_entropy(chosen.flatten(0, 1), targets.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if as_published:
            logits.detach().cpu()
            loss.item()
            torch.cuda.empty_cache()

    step()
    return _rate(step, seconds)


def _rate(step: Callable[[], object], seconds: float, least: int = 0) -> float:
    """Steps a second on the host's clock, the device idle before and after; over so many seconds and steps at least."""
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    started, steps = time.perf_counter(), 0
    while time.perf_counter() - started < seconds or steps < least:
        for _ in range(10):
            step()
        torch.cuda.synchronize()
        steps += 10
    return steps / (time.perf_counter() - started)


def compile_ahead(todo: Sequence[tuple[str, int]], options: argparse.Namespace, machine: Machine) -> None:
    """Compiles all that is to be measured, several at a time: `ready_s` is then what a warm cache takes."""
    specs = [published_spec(name, width, options.precision, options.task) for name, width in todo]
    cohorts = [Cohort(tuple(with_rates(spec, rates_of(options.models)))) for spec in specs]
    if options.checks:
        checked = [specs_of_checks(name, options.precision) for name in options.architectures]
        cohorts += [Cohort(tuple(specs)) for several in checked for specs in several]
    started = time.perf_counter()
    ahead = Ahead(cohorts, machine, os.cpu_count() or 1, shares=shares_to_compile)
    while not all(ahead.is_ready(cohort, wait=60) for cohort in cohorts):
        pass
    ahead.close()
    print(f"{len(cohorts)} cohorts compiled in {time.perf_counter() - started:.0f} s {ahead.failures}", flush=True)


def on_gpu(options: argparse.Namespace, out: Path) -> dict[str, Any]:
    machine = Machine("cuda", kernels=options.kernels, compile=options.compile)
    limits = ceilings(options.precision)
    print(json.dumps(limits), flush=True)
    rows: list[dict[str, Any]] = json.loads(out.read_text())["rows"] if options.missing and out.exists() else []
    there = {(row["architecture"], row["width"]) for row in rows}
    wanted = itertools.product(options.architectures, options.widths)
    todo = [cell for cell in wanted if cell not in there]
    if options.ahead:
        compile_ahead(todo, options, machine)
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "task": options.task,
        "compiled": options.compile,
        **limits,
        "rows": rows,
    }
    for architecture, width in todo:
        rows.append(gpu_row(architecture, width, options, machine, limits))
        print(json.dumps(rows[-1]), flush=True)
        _write(out, result | {"kernels": kernels.used()})
    if options.checks:
        result["checks"] = same_bits(options.architectures, machine, options.precision)
        print(json.dumps(result["checks"]), flush=True)
        for name, found in result["checks"].items():
            _write(out, result | {"kernels": kernels.used()})
            found |= with_the_cpu(name, machine)
            print(json.dumps({name: found}), flush=True)
    return result | {"kernels": kernels.used()}


def gpu_row(
    architecture: str, width: int, options: argparse.Namespace, machine: Machine, limits: dict[str, float]
) -> dict[str, Any]:
    spec = published_spec(architecture, width, options.precision, options.task)
    row: dict[str, Any] = {"architecture": architecture, "width": width, "models": options.models}
    row["precision"] = options.precision
    with matmuls(options.precision), kernels.switched(machine.kernels):
        row |= cohort_row(spec, options.models, machine, (options.seconds, options.steps), limits)
        if options.loops:
            row["eager_steps_per_s"] = single_rate(spec, options.seconds / 2, as_published=False)
            row["as_published_steps_per_s"] = single_rate(spec, options.seconds / 2, as_published=True)
            row["ratio"] = options.models * row["steps_per_s"] / row["as_published_steps_per_s"]
    return row


def _write(out: Path, result: dict[str, Any]) -> None:
    out.write_text(json.dumps(result, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("float32", "tf32"), default="float32")
    parser.add_argument("--kernels", choices=("auto", "plain"), default="auto")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--ahead", action="store_true", help="compile everything first, in many processes")
    parser.add_argument("--architectures", nargs="+", default=ARCHITECTURES)
    parser.add_argument("--widths", nargs="+", type=int, default=WIDTHS)
    parser.add_argument("--models", type=int, default=len(RATES), help="in a cohort")
    parser.add_argument("--checks", action="store_true", help="also compare with the CPU, and two runs with each other")
    parser.add_argument("--task", choices=tuple(TASKS), default="recall")
    parser.add_argument("--seconds", type=float, default=1.0, help="that each rate is measured for, at least")
    parser.add_argument("--steps", type=int, default=0, help="of a cohort that are timed, at least")
    parser.add_argument("--no-loops", dest="loops", action="store_false", help="leave out the loops over one model")
    parser.add_argument("--missing", action="store_true", help="keep the rows that were measured before")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.device == "cpu":
        result = {"threads": torch.get_num_threads(), **on_cpu()}
        print(f"{result['models']} models together {result['together_s']:.2f} s, one by one {result['alone_s']:.2f} s")
        print(f"ratio: {result['ratio']:.2f}")
        _write(options.out / "training_cpu.json", result)
        return
    name = f"training_cuda_{options.precision}{'_compiled' if options.compile else ''}"
    name += "" if options.models == len(RATES) else f"_stacks_of_{options.models}"
    name += "" if options.task == "recall" else f"_{options.task}"
    result = on_gpu(options, options.out / f"{name}.json")
    _write(options.out / f"{name}.json", result)
    if options.loops:
        print(f"ratio: {sum(row['ratio'] for row in result['rows']) / len(result['rows']):.2f}")


if __name__ == "__main__":
    main()
