"""Kernels against the plain bodies of their operators, on a GPU: microseconds in a CUDA graph, and errors to float64.

    python -m benchmarks.kernels selective_scan --channels 16 32
    python -m benchmarks.kernels decay_attention --warps 1 2 4 --heads 1 2 4 8

Timed in a graph because a launch from Python takes longer than a kernel. `--channels` tries other sizes of a program of
the scan, `--warps` and `--heads` of attention with decays, which is timed beside its plain body as a compiler takes it.
"""

import argparse
import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mixerscope import kernels
from mixerscope.kernels import decay_attention as decays
from mixerscope.kernels import selective_scan as kernel
from mixerscope.machine import matmuls
from mixerscope.mixers.ops import decay_attention as plain_decays
from mixerscope.mixers.ops.selective_scan import STRIDE_ON_GPU, plain_scan, plain_scan_backward
from mixerscope.randomness import stream

MODELS, DOCUMENTS, LENGTH, STATES = 7, 32, 35, 16
WIDTHS = (16, 64, 256)
REPEATS = 20

DECAYS = {
    "mamba2 parity 15 d128 8 heads": (15, 128, 12, 8, 64, 32, 1),
    "mamba2 parity 15 d128 2 heads": (15, 128, 12, 2, 128, 128, 1),
    "mamba2 recall 7 d64": (7, 32, 36, 2, 128, 64, 1),
    "mamba2 recall 15 d128 8 heads": (15, 128, 36, 8, 64, 32, 1),
    "mamba2 treecall 15 d128": (15, 32, 20, 2, 128, 128, 1),
    "retnet recall 7 d64": (7, 32, 36, 4, 16, 32, 4),
}
"""Models, documents, positions, heads, channels of keys and of values, and heads of keys."""

Five = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""u, dt, a, b, c"""
Four = tuple[Tensor, Tensor, Tensor, Tensor]
"""q, k, v, log_decay"""


def microseconds(call: Callable[[], object]) -> float:
    """Of one call: the median of ten replays of a graph with `REPEATS` of them."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(REPEATS):
            call()
    times: list[float] = []
    for _ in range(10):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / REPEATS)
    return sorted(times)[5]


def scan_inputs(width: int) -> tuple[Tensor, Five]:
    """What a Mamba cohort of this width hands to the scan, and a gradient of what it returns."""
    rng = stream(0, "benchmark")
    of_channels = (MODELS, DOCUMENTS, LENGTH, 2 * width)
    grad, u, dt = (torch.randn(of_channels, generator=rng) for _ in range(3))
    b, c = (torch.randn(MODELS, DOCUMENTS, LENGTH, STATES, generator=rng) for _ in range(2))
    a = -torch.arange(1.0, STATES + 1).expand(MODELS, 2 * width, STATES)
    dt = 0.1 * torch.nn.functional.softplus(dt)
    return grad.cuda(), (u.cuda(), dt.cuda(), a.contiguous().cuda(), b.cuda(), c.cuda())


def doubled(tensors: Five) -> Five:
    u, dt, a, b, c = (x.double() for x in tensors)
    return u, dt, a, b, c


def error(found: Tensor, exact: Tensor) -> float:
    return ((found.double() - exact).norm() / exact.norm()).item()


def decay_inputs(sizes: tuple[int, ...]) -> tuple[Tensor, Four]:
    """What a cohort hands to attention with decays, and a gradient of what it returns."""
    models, documents, length, heads, keys, values, of_keys = sizes
    rng, first = stream(0, "benchmark"), (models, documents, length)
    q, k = (torch.randn(*first, of_keys, keys, generator=rng) for _ in range(2))
    v, grad = (torch.randn(*first, heads, values, generator=rng) for _ in range(2))
    log_decay = -0.1 * torch.randn(*first, heads, generator=rng).exp()
    return grad.cuda(), (q.cuda(), k.cuda(), v.cuda(), log_decay.cuda())


def time_compiled(grad: Tensor, tensors: Four) -> tuple[float, float]:
    """Microseconds of the plain body as one of a compiled step: forward, and both ways."""

    def stacked(*given: Tensor) -> Tensor:
        return torch.vmap(plain_decays.decay_attention)(*given)

    def both(*given: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(stacked(*given), given, grad)

    wanted = [tensor.detach().requires_grad_() for tensor in tensors]
    with kernels.switched("plain"):
        forward, both_ways = torch.compile(stacked, dynamic=False), torch.compile(both, dynamic=False)
        return microseconds(lambda: forward(*tensors)), microseconds(lambda: both_ways(*wanted))


def time_decays(name: str, sizes: tuple[int, ...], warps: list[int], heads: list[int], exact: bool) -> list[dict]:
    grad, tensors = decay_inputs(sizes)
    q, k, v, log_decay = (tensor.double() for tensor in tensors)
    wide = (q, k, v, log_decay)
    expected = [plain_decays.plain_decay_attention(*wide, exact)]
    expected += plain_decays.plain_decay_attention_backward(grad.double(), *wide, exact)
    rows: list[dict[str, Any]] = [{"kernel": f"decay {name} plain, compiled"}]
    try:
        rows[0]["forward_us"], rows[0]["both_us"] = time_compiled(grad, tensors)
    except Exception as failure:  # noqa: BLE001 - the kernels are timed all the same
        rows[0]["failed"] = f"{type(failure).__name__} {failure}"[:100]
    usual = [plain_decays.plain_decay_attention(*tensors, exact)]
    usual += plain_decays.plain_decay_attention_backward(grad, *tensors, exact)
    rows[0]["error"] = max(error(found, right) for found, right in zip(usual, expected, strict=True))
    size = decays.padded(sizes[2])
    chosen = decays.FORWARD_WARPS[size], decays.BACKWARD_WARPS[size], decays.FORWARD_HEADS
    for count, most in product(warps or [0], heads or [0]):
        decays.FORWARD_WARPS[size], decays.BACKWARD_WARPS[size] = count or chosen[0], count or chosen[1]
        decays.FORWARD_HEADS = most or chosen[2]
        row: dict[str, Any] = {
            "kernel": f"decay {name} warps={decays.FORWARD_WARPS[size]},{decays.BACKWARD_WARPS[size]} "
            f"heads={decays.FORWARD_HEADS} {'float32' if exact else 'tf32'}"
        }
        try:
            found = [decays.forward(*tensors, exact), *decays.backward(grad, *tensors, exact)]
            row["forward_us"] = microseconds(lambda: decays.forward(*tensors, exact))
            if most == (heads or [0])[0]:  # the backward pass has all heads that share keys
                row["backward_us"] = microseconds(lambda: decays.backward(grad, *tensors, exact))
            row["error"] = max(error(a, b) for a, b in zip(found, expected, strict=True))
        except Exception as failure:  # noqa: BLE001 - too much shared memory, say: the next one may fit
            row["failed"] = f"{type(failure).__name__} {failure}"[:100]
        rows.append(row)
    decays.FORWARD_WARPS[size], decays.BACKWARD_WARPS[size], decays.FORWARD_HEADS = chosen
    return rows


def main_decays(asked: argparse.Namespace) -> None:
    print(f"attention with decays, {asked.precision}, {torch.cuda.get_device_name()}")
    rows: list[dict[str, Any]] = []
    with matmuls(asked.precision):
        for name, sizes in DECAYS.items():
            if all(word in name for word in asked.only):
                found = time_decays(name, sizes, asked.warps, asked.heads, asked.precision == "float32")
                rows += found
                for row in found:
                    print({at: round(x, 1) if at.endswith("us") else x for at, x in row.items()}, flush=True)
    if asked.out is not None:
        asked.out.write_text(json.dumps(rows, indent=0) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel", choices=("selective_scan", "decay_attention"))
    parser.add_argument("--channels", type=int, nargs="+", default=[kernel.CHANNELS])
    parser.add_argument("--strides", type=int, nargs="+", default=[STRIDE_ON_GPU])
    parser.add_argument(
        "--warps", type=int, nargs="+", default=[], help="of both passes; those of the kernel if left out"
    )
    parser.add_argument("--heads", type=int, nargs="+", default=[], help="of a program of the forward pass, at most")
    parser.add_argument("--only", nargs="+", default=[], help="words that the name of a size has")
    parser.add_argument("--precision", choices=("tf32", "float32"), default="tf32")
    parser.add_argument("--out", type=Path, help="a file for the rows")
    asked = parser.parse_args()
    if asked.kernel == "decay_attention":
        main_decays(asked)
    else:
        main_scan(asked)


def main_scan(asked: argparse.Namespace) -> None:
    print(f"selective scan, {MODELS} models, {DOCUMENTS} documents of {LENGTH}, {torch.cuda.get_device_name()}")
    print("width channels stride | forward us (plain) | backward us (plain) | worst error")
    for width in WIDTHS:
        grad, tensors = scan_inputs(width)
        exact = doubled(tensors)
        for stride in asked.strides:
            _, exact_kept = y_and_kept = plain_scan(*exact, stride, True, False)
            wanted = (*y_and_kept, *plain_scan_backward(grad.double(), *exact, exact_kept, stride, False))
            plain_kept = plain_scan(*tensors, stride, True, False)[1]
            plain_forward = microseconds(lambda: plain_scan(*tensors, stride, True, False))  # noqa: B023
            plain_backward = microseconds(lambda: plain_scan_backward(grad, *tensors, plain_kept, stride, False))  # noqa: B023
            for channels in asked.channels:
                kernel.CHANNELS = channels
                y, kept = kernel.forward(*tensors, stride, True, False)
                found = (y, kept, *kernel.backward(grad, *tensors, kept, stride, False))
                worst = max(error(a, b) for a, b in zip(found, wanted, strict=True))
                forward = microseconds(lambda: kernel.forward(*tensors, stride, True, False))  # noqa: B023
                backward = microseconds(lambda: kernel.backward(grad, *tensors, kept, stride, False))  # noqa: B023
                print(
                    f"{width:5} {channels:8} {stride:6} | {forward:10.1f} ({plain_forward:5.0f}) "
                    f"| {backward:11.1f} ({plain_backward:5.0f}) | {worst:.1e}"
                )


if __name__ == "__main__":
    main()
