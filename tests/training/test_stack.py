"""What a stack needs on a GPU beyond its numbers, as far as it can be seen without one."""

from contextlib import nullcontext

import pytest
import torch

from mixerscope.machine import CPU
from mixerscope.spec import RunSpec
from mixerscope.training import batches, stack
from mixerscope.training.trainer import _documents, _stack
from tests.conftest import tiny_spec


def stack_of(spec: RunSpec, members: int = 2) -> stack.Stack:
    return _stack([spec.changed(seed=seed) for seed in range(members)], _documents(spec, "train"), CPU, None)


def several_lengths_spec() -> RunSpec:
    return RunSpec.model_validate(
        {
            "task": {"name": "atr", "max_symbols": 60},
            "model": {"architecture": "attention", "width": 16},
            "train": {"steps": 40, "batch_size": 1, "documents": 30, "eval_every": 20, "eval_documents": 8},
        }
    )


@pytest.fixture
def of_several_lengths(monkeypatch):
    """A stack whose batches differ in length."""
    monkeypatch.setattr(batches, "SHORTEST", 2)
    made = stack_of(several_lengths_spec())
    assert len(set(made.batches.lengths)) > 2
    return made


def test_warming_up_works_for_every_length_at_any_step_and_leaves_no_trace(of_several_lengths):
    made = of_several_lengths
    made.advance(len(made.factors) - 1)
    held = (made.flat, made.first, made.second, made.counter, made.loss_sum)
    before = [tensor.clone() for tensor in held]
    for length, steps in made.spans():
        made._warm_up(length, steps)
    assert all(torch.equal(a, b) for a, b in zip(held, before, strict=True))
    made.advance(1)
    assert made.counter.item() == made.done == len(made.factors)


@pytest.mark.parametrize("documents", [8, 100])
def test_warming_up_updates_at_a_rate_above_zero(monkeypatch, documents):
    """The kernel of the update is compared with its definition then; at a rate of zero it could do anything."""
    seen = []
    monkeypatch.setattr(stack, "adamw", lambda *inputs: seen.append(inputs[-1].tolist()))
    made = stack_of(tiny_spec(warmup=0.5, steps=20, documents=documents))
    for length, steps in made.spans():
        made._warm_up(length, steps)
    assert seen
    assert all(min(factors) > 0 for factors in seen)


@pytest.mark.parametrize("unrolled", [2, 3])
def test_all_graphs_are_known_before_the_first_step(of_several_lengths, monkeypatch, unrolled):
    made = of_several_lengths
    monkeypatch.setattr(stack, "UNROLLED", unrolled)
    needed = set()
    for step in range(len(made.factors)):
        made.done = step
        needed |= {(made._lengths(step), made._together(end)) for end in range(step + 1, step + 9)}
    assert {steps for _, steps in needed} == {1, unrolled}
    assert needed <= made.spans()


class Graph:
    """Notes which steps it is shown, undoes them, and takes them again when it is played."""

    def __init__(self, made, take, warmed):
        self.made, self.take, self.warmed = made, take, warmed

    def state(self):
        return [self.made.flat, self.made.first, self.made.second, self.made.counter, self.made.loss_sum]

    def capture_begin(self, pool, capture_error_mode):
        self.in_pool, self.before = pool, [tensor.clone() for tensor in self.state()]
        self.made._steps = self.note

    def note(self, length, steps):
        assert any(known == length and warm >= steps for known, warm in self.warmed), "first met while capturing"
        self.steps = (length, steps)

    def capture_end(self):
        del self.made._steps
        for tensor, value in zip(self.state(), self.before, strict=True):
            tensor.copy_(value)

    def pool(self):
        return self.in_pool

    def replay(self):
        self.take(*self.steps)


class Stream:
    def wait_stream(self, other):
        assert other is not self


class Event:
    running = 0

    def __init__(self, blocking):
        assert blocking

    def record(self):
        Event.running += 1
        assert Event.running <= stack.LAUNCHED_AHEAD + 1

    def synchronize(self):
        Event.running -= 1


def test_steps_in_graphs_are_the_steps_one_by_one(of_several_lengths, monkeypatch):
    """With stand-ins for all of CUDA: which graph holds which steps, what warming up leaves, what waits for what."""
    made, plain = of_several_lengths, stack_of(several_lengths_spec())
    graphs, warmed = [], []

    def graph():
        graphs.append(Graph(made, type(made)._steps.__get__(made), warmed))
        return graphs[-1]

    def warm_up(length, steps):
        warmed.append((length, steps))
        type(made)._warm_up(made, length, steps)

    made._warm_up = warm_up

    pools = iter("abc")
    for name, stand_in in {
        "CUDAGraph": graph,
        "Event": Event,
        "Stream": lambda device: Stream(),
        "current_stream": lambda device: Stream(),
        "stream": lambda stream: nullcontext(),
        "graph_pool_handle": lambda: next(pools),
        "mem_get_info": lambda device: (3, 4),
        "empty_cache": lambda: pytest.fail("there was room"),
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(stack, "UNROLLED", 2)
    made.device = torch.device("cuda")
    made.build()
    known = len(graphs)
    for steps in (1, 7, 12):
        made.advance(steps)
        plain.advance(steps)
        assert torch.equal(made.flat, plain.flat)
        torch.testing.assert_close(made.loss_sum, plain.loss_sum, rtol=1e-12, atol=0)  # added up in another order
    assert len(graphs) == known == len(made.spans())
    assert {graph.in_pool for graph in graphs} == {"a"}
    assert {graph.steps for graph in graphs} == made.spans()
    assert {steps for _, steps in made.spans()} == {1, 2}
    assert Event.running > 0, "the host runs ahead"
    with stack.BUILDING:
        made.advance(2)
    assert Event.running == 0, "but not while another cohort gets ready"
    plain.advance(2)
    warmed.clear()
    made.keep([1])
    plain.keep([1])
    made.advance(6)
    plain.advance(6)
    assert torch.equal(made.flat, plain.flat)
    assert {graph.in_pool for graph in graphs[known:]} == {"b"}, "a pool that nobody uses any more cannot be used again"
