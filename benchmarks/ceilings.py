"""What a training step asks of a GPU, against what the GPU can give: where the time of a step goes."""

import time
from collections import Counter
from collections.abc import Callable
from math import prod

import torch
from torch.utils.flop_counter import FlopCounterMode

from mixerscope.machine import matmuls
from mixerscope.training.stack import UNROLLED, Stack, stacked_loss

UPDATE_PASSES = 7
"""Reads of weights, two moments and gradients, writes of weights and moments: what an update cannot do without."""

OF_OPERATORS: dict[str, Callable[..., int]] = {
    "head_loss": lambda x, table, *_, **__: 2 * prod(x) * table[-2],
    "head_loss_backward": lambda grad, x, table, *_, **__: 4 * prod(x) * table[-2],
    "residual_mlp": lambda x, gain, shift, up, *_, **__: 4 * prod(x) * up[-2],
    "residual_mlp_backward": lambda grad, x, gain, shift, up, *_, **__: 8 * prod(x) * up[-2],
    "residual_attention": lambda x, *_, **__: prod(x) * (8 * x[-1] + 4 * x[-2]),
    "residual_attention_backward": lambda grad, x, *_, **__: prod(x) * (16 * x[-1] + 8 * x[-2]),
}
"""Operations in products of matrices of those operators that are made of them, by the shapes of their arguments; torch
sees no further than the operator. What a backward pass computes again is not asked for, and not counted."""


def ceilings(precision: str) -> dict[str, float]:
    """Measured here and now: floating-point operations a second of a large matrix product, bytes a second of a copy."""
    size = 8192
    a = torch.randn(size, size, device="cuda")
    with matmuls(precision):
        flops = 2 * size**3 / _seconds(lambda: a @ a)
    large = torch.empty(2**30 // 4, device="cuda")
    copied = torch.empty_like(large)
    return {"flop_per_s": flops, "byte_per_s": 2 * 2**30 / _seconds(lambda: copied.copy_(large))}


def _seconds(work: Callable[[], object], times: int = 10) -> float:
    work()
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(times):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / times


def demand(stack: Stack) -> dict[str, float]:
    """Of one step of all models: operations in matrix products, and bytes that the update and the gradients move.

    Scans, recurrences, convolutions and attention with decays count as nothing.
    """
    stack._losses = stacked_loss(stack.template)  # what was compiled hides its operations
    with counted() as counter:
        stack._steps(stack._lengths(0), 1)
    gradients = stack.flat.numel()  # written once; that the update reads them is counted there
    moved = (UPDATE_PASSES * stack.flat.numel() + gradients) * stack.flat.element_size()
    return {"flop": float(counter.get_total_flops()), "update_bytes": float(moved)}


def counted() -> FlopCounterMode:
    """Counts operations in matrix products, those in our operators too."""
    ours = {getattr(torch.ops.mixerscope, name): count for name, count in OF_OPERATORS.items()}
    return FlopCounterMode(display=False, custom_mapping=ours)


def profile(stack: Stack, steps: int = 3 * UNROLLED) -> dict[str, object]:
    """Kernels a step, the time they take, and which take most of it."""
    stack.advance(steps)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        stack.advance(steps)
        torch.cuda.synchronize()
    launches: Counter[str] = Counter()
    micros: Counter[str] = Counter()
    for event in profiler.key_averages():
        launches[event.key] += event.count
        micros[event.key] += event.self_device_time_total
    worst = [[name[:90], round(us / steps, 1), launches[name] / steps] for name, us in micros.most_common(15)]
    return {
        "kernels_per_step": sum(launches.values()) / steps,
        "kernel_us_per_step": sum(micros.values()) / steps,
        "longest": worst,
    }
