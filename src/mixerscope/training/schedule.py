"""Schedules: learning rates as a factor on the peak rate, and the steps at which a model is looked into."""

import math

from mixerscope.spec import TrainSpec


def rate_factor(spec: TrainSpec, step: int) -> float:
    """The share of the peak rate at a step counted from 0; the first update of a warm-up has rate 0, as published."""
    warmup = int(spec.warmup * spec.steps)
    if step < warmup:
        return step / warmup
    progress = (step - warmup) / max(1, spec.steps - warmup)
    if spec.schedule == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * progress))
    if spec.schedule == "linear":
        return 1.0 - progress
    return 1.0


def log_spaced(count: int, steps: int) -> tuple[int, ...]:
    """Up to `count` steps: the last, 0 (before training), then 1 and on, their ratios as equal as whole numbers allow.

    Early ones that would round to the same step are given once, so there may be fewer.
    """
    if count < 3:
        return (0, steps)[2 - count :]
    spaced = (round(steps ** (i / (count - 2))) for i in range(count - 1))
    return tuple(sorted({0, *spaced}))
