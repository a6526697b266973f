"""Whether a run can be made: what could only fail after training is refused before."""

import os

import torch

from mixerscope.errors import UserError
from mixerscope.interventions import PairSettings
from mixerscope.model import build_model, parameters_of, state_size
from mixerscope.randomness import stream
from mixerscope.registry import MIXERS
from mixerscope.spec import RunSpec, training_identity

TOKEN_BYTES, WEIGHT_BYTES = 8, 4


LARGE = 2**28
"""Bytes of weights: a model with more is not made only to see that it can be, unless a mixer is from outside."""


def _first_look(spec: RunSpec) -> None:
    """Builds the model; one with a mixer from outside is tried on two documents as well."""
    outside = [layer.mixer for layer in spec.model.layer_specs() if MIXERS.code(layer.mixer) is not None]
    if not outside:
        size = parameters_of(spec.model, spec.task.vocab_size) * WEIGHT_BYTES
        _refuse_size("the model", size)
        if size > LARGE:
            return
    model = build_model(spec.model, spec.task.vocab_size, spec.seed)
    if not outside:
        return
    batch = spec.task.single_query().sample(2, stream(spec.data_seed, "check"), "dev")
    more = f"; `mixerscope check` on {outside[0]} says more"
    try:
        with torch.no_grad():
            logits = model(batch.tokens)
            changed = batch.tokens.clone()
            changed[:, -1] = batch.tokens[:, 0]
            leaks = not torch.equal(model(changed)[:, :-1], logits[:, :-1])
        state = state_size(model, batch.tokens.shape[1])
    except Exception as error:  # whatever a person's mixer raises is theirs to mend
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{outside[0]} fails on two documents: {reason}{more}") from error
    if logits.shape[:2] != batch.tokens.shape:
        raise UserError(f"{outside[0]} gives outputs of another shape than its inputs{more}")
    if not isinstance(state, int):
        raise UserError(f"{outside[0]} has no `state_size(length)` that gives a whole number{more}")
    if leaks:
        raise UserError(f"{outside[0]} is not causal: changing the last token moves outputs before it{more}")


def check_sizes(spec: RunSpec) -> None:
    """Refuses documents and models that cannot be kept in memory here, before anything of that size is made."""
    task, model, train = spec.task, spec.model, spec.train
    sizes = {
        "train.documents": train.documents * task.max_length * TOKEN_BYTES,
        "train.eval_documents": train.eval_documents * task.max_length * TOKEN_BYTES,
        "stages.patch.documents": max(map(_pairs, spec.stages.values()), default=0) * task.max_length * TOKEN_BYTES,
        "train.batch_size": train.batch_size * task.max_length * model.width * WEIGHT_BYTES,
        "model.width": (task.vocab_size + model.layers * model.width) * model.width * WEIGHT_BYTES,
    }
    for name, size in sizes.items():
        _refuse_size(name, size)


def _pairs(stage: object) -> int:
    """Documents of a stage, which are made to see whether they can be."""
    return stage.documents if isinstance(stage, PairSettings) else 0


def _refuse_size(name: str, size: int) -> None:
    here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > here:
        raise UserError(
            f"{name} is too large for this machine: it takes more than {size / 2**30:,.0f} GiB, of {here / 2**30:,.0f}"
        )


def check_runnable(spec: RunSpec) -> None:
    """Refuses what could only fail after training."""
    check_sizes(spec)
    if training_identity(spec) != spec.identity:
        raise UserError("the code of a component was edited after this spec was made; make the spec again")
    if spec.model.positions == "learned" and spec.task.max_length > spec.model.max_length:
        raise UserError(
            f"documents of {spec.task.max_length} tokens do not fit model.max_length = {spec.model.max_length}"
        )
    _first_look(spec)
    for task, split in ((spec.task, "train"), (spec.task.single_query(), "dev")):
        task.sample(1, stream(spec.data_seed, "check"), split)
    for stage in spec.stages.values():
        stage.check(spec)
        stage.draw(spec)
