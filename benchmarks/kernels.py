"""Kernels against the plain bodies of their operators, on a GPU: microseconds in a CUDA graph, and errors to float64.

Timed in a graph because a launch from Python takes longer than a kernel. `--channels` tries other sizes of a program.
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor

from mixerscope.kernels import selective_scan as kernel
from mixerscope.mixers.ops.selective_scan import STRIDE_ON_GPU, plain_scan, plain_scan_backward
from mixerscope.randomness import stream

MODELS, DOCUMENTS, LENGTH, STATES = 7, 32, 35, 16
WIDTHS = (16, 64, 256)
REPEATS = 20

Five = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""u, dt, a, b, c"""


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--channels", type=int, nargs="+", default=[kernel.CHANNELS])
    parser.add_argument("--strides", type=int, nargs="+", default=[STRIDE_ON_GPU])
    asked = parser.parse_args()
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
