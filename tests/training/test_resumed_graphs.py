"""Trainings that go on from a checkpoint as on a GPU, where steps are captured and several are one graph.

A stand-in for graphs does on the CPU what matters here: it is captured after warm-ups that train, knows the memory of
its stack by address, and runs as many steps at once as a graph would. Whether real ones keep the promise is measured by
`python -m benchmarks.checkpoints --device cuda`.
"""

from typing import Any

import pytest
import torch

from mixerscope.progress import Cancelled, Stop
from mixerscope.spec import RunSpec
from mixerscope.tasks import ATR
from mixerscope.training import Kept, Member, train_cohort
from mixerscope.training.stack import UNROLLED, Lengths, Stack
from tests.conftest import tiny_spec


def memory(stack: Stack) -> list[int]:
    """Where all lies that a captured step reads or writes."""
    held = [*stack.state().values(), *stack.params.values(), *stack.buffers.values(), stack.counter]
    return [tensor.data_ptr() for tensor in (*held, stack.rates, stack.decays, stack.factors, stack.batches.tokens)]


class Graph:
    """What stands in for a captured one."""

    def __init__(self, stack: Stack, lengths: Lengths, steps: int) -> None:
        stack._warm_up(lengths, steps)
        self.stack, self.lengths, self.steps, self.memory = stack, lengths, steps, memory(stack)

    def replay(self) -> None:
        assert memory(self.stack) == self.memory, "a graph would train what nobody looks at"
        self.stack._steps(self.lengths, self.steps)


def advance(stack: Stack, steps: int) -> None:
    end = stack.done + steps
    while stack.done < end:
        together = stack._together(end)
        stack._graph(stack._lengths(stack.done), together).replay()
        stack.done += together


def build(stack: Stack) -> None:
    for lengths, steps in stack.spans():
        stack._graph(lengths, steps)


@pytest.fixture(autouse=True)
def _graphs(monkeypatch):
    monkeypatch.setattr(Stack, "_captured", lambda stack, lengths, steps: Graph(stack, lengths, steps))
    monkeypatch.setattr(Stack, "advance", advance)
    monkeypatch.setattr(Stack, "build", build)
    monkeypatch.setattr(Stack, "steps_at_once", 2 * UNROLLED)


def cohort(**changes: Any) -> list[RunSpec]:
    spec = tiny_spec(steps=100, eval_every=37, warmup=0.0, documents=44, **changes)
    return [spec.changed(seed=seed, train=spec.train.changed(lr=lr)) for seed, lr in ((0, 1e-3), (1, 1e-2), (2, 3e-2))]


def in_trees() -> list[RunSpec]:
    """Batches of several lengths."""
    task = ATR(max_symbols=60)
    return [spec.changed(task=task, model=spec.model.changed(max_length=256)) for spec in cohort()[:2]]


class Kill:
    """Keeps all that is due, and ends the training after so many steps; how it then stands is what was written."""

    def __init__(self, at: int) -> None:
        self.at, self.kept = at, None

    def due(self) -> bool:
        return False

    def keep(self, kept: Kept) -> None:
        self.kept = kept.written()

    def progress(self, done: int, members: list[Member]) -> None:
        if done >= self.at:
            self.at = 10**9
            raise Cancelled(Stop("enough"))


def resumed(specs: list[RunSpec], at: list[int]) -> list[Member]:
    start = None
    for step in at:
        kill = Kill(step)
        with pytest.raises(Cancelled):
            train_cohort(specs, kill.progress, keeper=kill, start=start)
        assert kill.kept is not None
        start = Kept.read(specs, *kill.kept)
        assert start.point is not None
        assert start.point.done >= step
    return train_cohort(specs, start=start)


COHORTS = {"plain": cohort(), "members leave": cohort(stop_at_accuracy=0.3), "several lengths": in_trees()}


@pytest.mark.parametrize("name", COHORTS)
def test_graphs_go_on_from_a_checkpoint_with_the_same_bits(name: str):
    specs = COHORTS[name]
    calm, others = train_cohort(specs), resumed(specs, [16, 40, 80])
    assert [member.history for member in calm] == [member.history for member in others]
    assert [(member.outcome, member.steps) for member in calm] == [(member.outcome, member.steps) for member in others]
    for one, other in zip(calm, others, strict=True):
        assert all(torch.equal(weight, other.weights[key]) for key, weight in one.weights.items())


def test_memory_that_moves_under_a_graph_is_seen(monkeypatch):
    def moved(trainer: Any, seconds: float) -> None:
        trainer.stack.flat = trainer.stack.flat.clone()

    monkeypatch.setattr("mixerscope.training.trainer._Trainer.built", moved)  # after all was captured
    with pytest.raises(AssertionError, match="nobody looks at"):
        train_cohort(COHORTS["plain"])
