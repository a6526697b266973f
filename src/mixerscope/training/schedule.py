"""Learning-rate schedules, as a factor on the peak rate."""

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
