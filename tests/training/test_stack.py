"""What a stack needs on a GPU beyond its numbers, as far as it can be seen without one."""

import pytest
import torch

from mixerscope.machine import CPU
from mixerscope.spec import RunSpec
from mixerscope.training import batches, stack
from mixerscope.training.cohort import _documents, _stack
from tests.conftest import tiny_spec


def stack_of(spec: RunSpec, members: int = 2) -> stack.Stack:
    return _stack([spec.changed(seed=seed) for seed in range(members)], _documents(spec, "train"), CPU, None)


@pytest.fixture
def of_several_lengths(monkeypatch):
    """A stack whose batches differ in length, and end with one that is shorter than others."""
    monkeypatch.setattr(batches, "SHORTEST", 2)
    spec = RunSpec.model_validate(
        {
            "task": {"name": "atr", "max_symbols": 60},
            "model": {"architecture": "attention", "width": 16},
            "train": {"steps": 40, "batch_size": 1, "documents": 30, "eval_every": 20, "eval_documents": 8},
        }
    )
    made = stack_of(spec)
    assert len(set(made.batches.lengths)) > 2
    return made


def test_warming_up_works_for_every_length_at_any_step_and_leaves_no_trace(of_several_lengths):
    made = of_several_lengths
    made.advance(len(made.factors) - 1)
    held = (made.flat, made.first, made.second, made.counter, made.loss_sum)
    before = [tensor.clone() for tensor in held]
    for length in set(made.batches.lengths):
        made._warm_up(length)
    assert all(torch.equal(a, b) for a, b in zip(held, before, strict=True))
    made.advance(1)
    assert made.counter.item() == made.done == len(made.factors)


def test_warming_up_updates_at_a_rate_above_zero(monkeypatch):
    """The kernel of the update is compared with its definition then; at a rate of zero it could do anything."""
    seen = []
    monkeypatch.setattr(stack, "adamw", lambda *inputs: seen.append(inputs[-1].tolist()))
    made = stack_of(tiny_spec(warmup=0.5))
    made._warm_up(made.batches.lengths[0])
    assert seen
    assert all(min(factors) > 0 for factors in seen)


@pytest.mark.parametrize("unrolled", [2, 3])
def test_all_graphs_are_known_before_the_first_step(of_several_lengths, monkeypatch, unrolled):
    made = of_several_lengths
    monkeypatch.setattr(stack, "UNROLLED", unrolled)
    needed = set()
    for step in range(len(made.factors)):
        made.done = step
        needed |= {(made._length(step), made._together(end)) for end in range(step + 1, step + 9)}
    assert {steps for _, steps in needed} == {1, unrolled}
    assert needed <= made.spans()
