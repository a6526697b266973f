"""Models that track a state by construction, to see stages with: their answers are known before they run."""

import torch
from torch import Tensor

from mixerscope.machine import CPU
from mixerscope.model import Model, build_model
from mixerscope.spec import RunSpec
from mixerscope.stages import Stage, Trained
from mixerscope.tasks import Parity


def spec_of(stages: dict, task: object = None, architecture: str = "attention", **model: object) -> RunSpec:
    settings = {"architecture": architecture, "width": 16, "layers": 1, **model}
    return RunSpec.model_validate({"task": task or Parity(length=8), "model": settings, "stages": stages})


def fresh(spec: RunSpec, seed: int = 0) -> Model:
    return build_model(spec.model, spec.task.vocab_size, seed)


def run_stage(name: str, spec: RunSpec, models: list[Model], stored: dict | None = None) -> list:
    """What a stage gives for models that nobody trained."""
    stage: Stage = spec.stages[name]
    stage.check(spec)
    found = stored or {}
    trained = Trained(
        size=len(models),
        machine=CPU,
        parse=lambda: [spec] * len(models),
        build=lambda: models,
        read=lambda index, needed, artifact: found[index, artifact],
        find=lambda index, needed, artifact: found.get((index, artifact)),
    )
    return stage.run(trained)


def answers(model: Model, tokens: Tensor) -> Tensor:
    with torch.no_grad():
        return model(tokens).argmax(-1)
