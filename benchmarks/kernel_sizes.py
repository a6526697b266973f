"""Kernels of a training step with other sizes, on a GPU: microseconds of each, alone in a CUDA graph.

`python -m benchmarks.kernel_sizes mlp --set BACKWARD_ROWS=16,32,64 BACKWARD_WARPS=4,8` tries all six combinations. What
can be set are the numbers at the top of a kernel's file. Sizes that need more than a processor has are reported so.
Each row is written as soon as it is measured, and with `--out FILE` also added to a file. With `PYTHONPATH` at `src` of
another commit these are the kernels of that one; `--label` says so in its rows. Without a GPU, under Triton's
interpreter, it only shows that everything runs.
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from benchmarks.kernels import microseconds
from benchmarks.training_specs import published_spec
from mixerscope.kernels import (
    delta_rule,
    diagonal_ssm,
    direct_conv,
    direct_correlation,
    head,
    residual,
    residual_attention,
    residual_mlp,
    selective_scan,
    stacked_product,
    sums,
    update,
)
from mixerscope.machine import matmuls
from mixerscope.model import build_model
from mixerscope.training.head import plain_head_loss, plain_head_loss_backward
from mixerscope.training.product import plain_product

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DOCUMENTS, LENGTH = 32, 35
EPSILON = 1e-5

Calls = dict[str, Callable[[], object]]


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE)


def mlp(models: int, width: int) -> Calls:
    """The first block's, of all positions, and the last one's, of those that are read."""
    shapes = ((width,), (width,), (4 * width, width), (4 * width,), (width, 4 * width), (width,))
    weights = [numbers(models, *shape) / shape[-1] ** 0.5 for shape in shapes]
    calls: Calls = {}
    for rows in (DOCUMENTS * LENGTH, DOCUMENTS):
        x, grad = numbers(models, rows, width), numbers(models, rows, width)
        calls[f"forward {rows}"] = lambda x=x: residual_mlp.forward(x, *weights, EPSILON, False)
        calls[f"backward {rows}"] = lambda x=x, grad=grad: residual_mlp.backward(grad, x, *weights, EPSILON, False)
    return calls


def attention(models: int, width: int) -> Calls:
    shapes = ((width,), (width,), (3 * width, width), (width, width), (width,))
    weights = [numbers(models, *shape) / shape[-1] ** 0.5 for shape in shapes]
    x, grad = (numbers(models, DOCUMENTS, LENGTH, width) for _ in "xg")
    settings = (1, False, EPSILON, False)
    kept = residual_attention.forward(x, *weights, *settings)[1]
    return {
        "forward": lambda: residual_attention.forward(x, *weights, *settings),
        "backward": lambda: residual_attention.backward(grad, x, *weights, kept, *settings),
    }


def an_update(models: int, width: int) -> Calls:
    """Of all parameters of attention and of H3, and the rows of a batch out of the table and into its gradient."""
    calls: Calls = {}
    rates, decays, factors = (torch.full((size,), 1e-3, device=DEVICE) for size in (models, models, 3))
    for name in ("attention", "h3"):
        spec = published_spec(name, width, "tf32", "recall")
        shapes = [p.shape for p in build_model(spec.model, spec.task.vocab_size, 0).parameters()]
        grads = [numbers(models, *shape) for shape in shapes]
        columns = sum(shape.numel() for shape in shapes)
        w, m, v = (torch.zeros(models, columns + -columns % 4, device=DEVICE) for _ in range(3))
        calls[name] = lambda w=w, m=m, v=v, grads=grads: update.adamw(
            w, m, v, rates, decays, factors, 0.9, 0.999, 1e-8, *grads
        )
    table = numbers(models, 8196, width)
    tokens = torch.randint(8196, (DOCUMENTS, LENGTH), device=DEVICE)
    tokens[:, 0], tokens[:, -2] = 1, 2  # every document begins and is divided by the same
    order = tokens.flatten().argsort(stable=True).to(torch.int32)
    rows = numbers(models, DOCUMENTS * LENGTH, width)
    calls["look up"] = lambda: update.look_up(table, tokens)
    calls["add rows"] = lambda: update.add_rows(table, tokens.flatten(), rows, order)
    return calls


def the_head(models: int, width: int) -> Calls:
    x, table = numbers(models, DOCUMENTS, width), numbers(models, 8196, width)
    targets = torch.randint(8196, (models, DOCUMENTS), device=DEVICE)
    grad, total = numbers(models), head.forward(x, table, targets, -100, False)[1]
    calls: Calls = {
        "forward": lambda: head.forward(x, table, targets, -100, False),
        "backward": lambda: head.backward(grad, x, table, targets, total, -100, False),
        "forward, exact": lambda: head.forward(x, table, targets, -100, True),
        "backward, exact": lambda: head.backward(grad, x, table, targets, total, -100, True),
    }

    def exactly(plain: Callable[..., object], *inputs: Tensor) -> object:
        with matmuls("float32"):
            return plain(*inputs, -100, True)

    calls["plain forward, exact"] = lambda: exactly(plain_head_loss, x, table, targets)
    calls["plain backward, exact"] = lambda: exactly(plain_head_loss_backward, grad, x, table, targets, total)
    return calls


def convolutions(models: int, width: int) -> Calls:
    """Of H3, over keys and over products of keys and values, and DeltaNet's short one."""
    calls: Calls = {}
    for channels, copies, lags in ((width, 1, LENGTH), (width // 2, 4, LENGTH), (3 * width, 1, 4)):
        x, kernel = numbers(models, DOCUMENTS, LENGTH, channels, copies), numbers(models, channels, lags)
        name = f"{channels} x {copies}, {lags} lags"
        calls[f"forward {name}"] = lambda x=x, kernel=kernel: direct_conv.forward(x, kernel)
        calls[f"backward {name}"] = lambda x=x, kernel=kernel: direct_conv.backward(x, x, kernel)
    return calls


def correlation(models: int, width: int) -> Calls:
    """Of H3, whose shift has 1024 taps."""
    b, c, grad = numbers(models, width, 1024), numbers(models, width, 1024), numbers(models, width, LENGTH)
    return {
        "forward": lambda: direct_correlation.forward(b, c, LENGTH),
        "backward": lambda: direct_correlation.backward(grad, b, c),
    }


def diagonal(models: int, width: int) -> Calls:
    """Of H3: 512 modes a head of two channels."""
    a_log, frequency = numbers(models, width // 2, 512) / 10, numbers(models, width // 2, 512)
    pairs, steps = numbers(models, width // 2, 512, 2), numbers(models, width // 2).sigmoid() / 10
    inputs = (a_log, frequency, pairs, pairs, steps)
    grad = numbers(models, width // 2, LENGTH)
    return {
        "forward": lambda: diagonal_ssm.forward(*inputs, LENGTH),
        "backward": lambda: diagonal_ssm.backward(grad, *inputs),
    }


def scan(models: int, width: int) -> Calls:
    u, dt, grad = (numbers(models, DOCUMENTS, LENGTH, 2 * width) for _ in range(3))
    b, c = (numbers(models, DOCUMENTS, LENGTH, 16) for _ in "bc")
    tensors = (u, dt.sigmoid(), -numbers(models, 2 * width, 16).exp(), b, c)
    kept = selective_scan.forward(*tensors, 4, True, False)[1]
    return {
        "forward": lambda: selective_scan.forward(*tensors, 4, True, False),
        "backward": lambda: selective_scan.backward(grad, *tensors, kept, 4, False),
    }


def delta(models: int, width: int) -> Calls:
    q, k, v, grad = (numbers(models, DOCUMENTS, LENGTH, 1, width) for _ in range(4))
    tensors = (q, torch.nn.functional.normalize(k, dim=-1), v, numbers(models, DOCUMENTS, LENGTH, 1).sigmoid())
    _, *kept = delta_rule.forward(*tensors)
    return {
        "forward": lambda: delta_rule.forward(*tensors),
        "backward": lambda: delta_rule.backward(grad, *tensors, *kept),
    }


def products(models: int, width: int) -> Calls:
    """Of tokens with weights, of positions with each other, and of the head; beside each the library's, in float32."""
    tokens, vocabulary, attending = DOCUMENTS * LENGTH, 8196, models * DOCUMENTS
    factors = {  # models, then rows and terms of the left factor, or turned, and so on for the right one
        "up": (models, (tokens, width), (4 * width, width), False, True),
        "up, of x": (models, (tokens, 4 * width), (4 * width, width), False, False),
        "up, of weight": (models, (tokens, 4 * width), (tokens, width), True, False),
        "square": (models, (tokens, width), (width, width), False, True),
        "square, of weight": (models, (tokens, width), (tokens, width), True, False),
        "scores": (attending, (LENGTH, width), (LENGTH, width), False, True),
        "values": (attending, (LENGTH, LENGTH), (LENGTH, width), False, False),
        "values, of values": (attending, (LENGTH, LENGTH), (LENGTH, width), True, False),
        "logits": (models, (DOCUMENTS, width), (vocabulary, width), False, True),
        "logits, of x": (models, (DOCUMENTS, vocabulary), (vocabulary, width), False, False),
        "logits, of table": (models, (DOCUMENTS, vocabulary), (DOCUMENTS, width), True, False),
    }

    def by_library(left: Tensor, right: Tensor, left_turned: bool, right_turned: bool, count: int) -> Tensor:
        with matmuls("float32"):
            return plain_product(left, right, left_turned, right_turned, count)

    calls: Calls = {}
    for name, (count, left, right, left_turned, right_turned) in factors.items():
        inputs = (numbers(count, *left), numbers(count, *right), left_turned, right_turned, count)
        calls[name] = lambda inputs=inputs: stacked_product.product(*inputs)
        calls[f"library, {name}"] = lambda inputs=inputs: by_library(*inputs)
    return calls


KINDS: dict[str, tuple[Callable[[int, int], Calls], tuple[ModuleType, ...]]] = {
    "mlp": (mlp, (residual_mlp, residual)),
    "attention": (attention, (residual_attention, residual)),
    "update": (an_update, (update,)),
    "head": (the_head, (head, sums)),
    "convolutions": (convolutions, (direct_conv,)),
    "correlation": (correlation, (direct_correlation,)),
    "diagonal": (diagonal, (diagonal_ssm,)),
    "scan": (scan, (selective_scan, sums)),
    "delta": (delta, (delta_rule,)),
    "product": (products, (stacked_product, sums)),
}


def combinations(settings: list[str]) -> list[dict[str, int]]:
    """All of them, for settings as NAME=1,2,3."""
    given = {name: [int(value) for value in values.split(",")] for name, values in (s.split("=") for s in settings)}
    return [dict(zip(given, values, strict=True)) for values in itertools.product(*given.values())]


def use(modules: tuple[ModuleType, ...], sizes: dict[str, int]) -> None:
    for name, value in sizes.items():
        owners = [module for module in modules if hasattr(module, name)]
        assert owners, f"{name} is no number of {' or '.join(module.__name__ for module in modules)}"
        for module in owners:
            setattr(module, name, value)


def timed(call: Callable[[], object]) -> float | str:
    try:
        return round(microseconds(call) if DEVICE == "cuda" else interpreted(call), 2)
    except Exception as error:  # noqa: BLE001 - whatever a compiler may raise, the other sizes are worth knowing
        return f"{type(error).__name__}: {error}".splitlines()[0][:80]


def interpreted(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="+", choices=(*KINDS, "all"))
    parser.add_argument("--set", dest="settings", nargs="+", default=[], metavar="NAME=1,2,3")
    parser.add_argument("--models", type=int, default=7)
    parser.add_argument("--width", type=int, nargs="+", default=[64])
    parser.add_argument("--calls", nargs="+", metavar="PART", help="only calls in whose name one of these stands")
    parser.add_argument("--label", default="", help="of the rows: which commit's kernels these are, say")
    parser.add_argument("--out", type=Path, help="a file that rows are added to, one a line")
    asked = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    kinds: list[str] = list(KINDS) if "all" in asked.kinds else asked.kinds
    widths: list[int] = asked.width
    for kind, width, sizes in (
        (kind, width, sizes) for kind in kinds for width in widths for sizes in combinations(asked.settings)
    ):
        make, modules = KINDS[kind]
        use(modules, sizes)
        for name, call in make(asked.models, width).items():
            if asked.calls and not any(part in name for part in asked.calls):
                continue
            row: dict[str, Any] = {"label": asked.label} if asked.label else {}
            row |= {"kind": kind, "models": asked.models, "width": width, **sizes, "call": name, "us": timed(call)}
            line = json.dumps(row)
            print(line, flush=True)
            if asked.out:
                with asked.out.open("a") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()
