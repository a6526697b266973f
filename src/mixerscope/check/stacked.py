"""Properties of a cohort: many models at once compute what each computes alone."""

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state

from mixerscope.check.outcome import demand
from mixerscope.check.subject import TOLERANCE, Subject, gap
from mixerscope.registry import TASKS
from mixerscope.spec import LayerSpec, ModelSpec, RunSpec, TrainSpec
from mixerscope.training import train_cohort

MEMBERS = 3
TRAINING_TOLERANCE = 1e-7
"""AdamW divides by the size of the gradient, so rounding in a gradient near zero grows."""


def cohort(subject: Subject) -> str:
    """Under vmap over stacked parameters, outputs and gradients are those of each model alone."""
    mixers = [subject.build(seed) for seed in range(MEMBERS)]
    x = subject.documents(2, 7)
    expected = [mixer(x) for mixer in mixers]
    weight = subject.documents(2, 7, seed=1)
    grads = [torch.autograd.grad((y * weight).sum(), list(m.parameters())) for y, m in zip(expected, mixers)]

    stacked, buffers = stack_module_state(list(mixers))
    template = mixers[0].to("meta")

    def run(params: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
        return functional_call(template, (params, buffers), (x,))

    params = {name: p.detach().requires_grad_() for name, p in stacked.items()}
    y = torch.vmap(run)(params, {name: b.detach() for name, b in buffers.items()})
    apart = gap(y, torch.stack(expected))
    demand(apart <= TOLERANCE, f"outputs differ by {apart:.1e}")
    together = torch.autograd.grad((y * weight).sum(), list(params.values()))
    for index, name in enumerate(params):
        apart = gap(together[index], torch.stack([grad[index] for grad in grads]))
        demand(apart <= TOLERANCE, f"gradients of {name} differ by {apart:.1e}")
    return f"{MEMBERS} models, outputs and gradients"


def cohort_training(subject: Subject) -> str:
    """Trained together or one by one, models end with the same weights and the same scores."""
    assert subject.name is not None, "training finds the mixer by name"
    task = TASKS.load("ar")(num_pairs=2, num_keys=4, num_queries=2)
    layer = LayerSpec(mixer=subject.name, options=dict(subject.options))
    model = ModelSpec(architecture="pattern", width=subject.width, layers=2, options={"layers": [layer.model_dump()]})
    train = TrainSpec(
        steps=4, batch_size=4, documents=16, schedule="constant", warmup=0.0, eval_every=2, eval_documents=4
    )
    specs = [
        RunSpec(task=task, model=model, train=train.changed(lr=lr), seed=seed) for seed, lr in ((0, 1e-3), (1, 3e-3))
    ]
    together = train_cohort(specs, dtype=torch.float64)
    for spec, member in zip(specs, together, strict=True):
        alone = train_cohort([spec], dtype=torch.float64)[0]
        demand(member.outcome == alone.outcome, f"{member.outcome} in the cohort, {alone.outcome} alone")
        for name, weights in alone.weights.items():
            apart = gap(member.weights[name], weights)
            demand(apart <= TRAINING_TOLERANCE, f"after {train.steps} steps {name} differs by {apart:.1e}")
        for here, there in zip(member.history, alone.history, strict=True):
            apart = abs(here.likelihood - there.likelihood)
            demand(apart <= TRAINING_TOLERANCE, f"at step {here.step} the likelihoods differ by {apart:.1e}")
    return f"{len(specs)} models, {train.steps} steps"
