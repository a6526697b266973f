"""A cohort that does not fit is trained in parts, and ends as it would have in one."""

import gc
import weakref

import pytest
import torch

from mixerscope.errors import UserError
from mixerscope.spec import RunSpec
from mixerscope.sweep.plan import Imagined
from mixerscope.training import Observer, memory, train_cohort
from mixerscope.training.memory import SHARE, fitting, member_bytes
from mixerscope.training.stack import Stack
from tests.conftest import tiny_spec

GIB = 2**30


@pytest.fixture
def room(monkeypatch):
    """Makes a member need 1 GiB, on a GPU with so many of them free."""

    def of(gib: float) -> None:
        monkeypatch.setattr(memory, "member_bytes", lambda spec: GIB)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (int(gib * GIB), 999 * GIB))

    return of


@pytest.fixture
def fits(monkeypatch):
    """Lets no stack of more members than this be built, and returns the sizes of those that were tried."""

    def most(members: int) -> list[int]:
        tried: list[int] = []

        def build(stack: Stack) -> None:
            tried.append(len(stack.flat))
            if len(stack.flat) > members:
                raise torch.OutOfMemoryError("no room")

        monkeypatch.setattr(Stack, "build", build)
        return tried

    return most


def members(count: int) -> list[RunSpec]:
    spec = tiny_spec("attention", warmup=0.0)
    return [spec.changed(seed=seed, train=spec.train.changed(lr=1e-3 * (seed + 1))) for seed in range(count)]


@pytest.mark.parametrize(
    ("free", "sizes"),
    [
        (21.1 / SHARE, [21]),
        (20.9 / SHARE, [11, 10]),  # as even as they can be, not 20 and 1
        (8 / SHARE, [7, 7, 7]),
        (2.9 / SHARE, [2] * 10 + [1]),
        (0.1, [1] * 21),  # the estimate has margins, so one alone is always tried
    ],
)
def test_parts_are_as_few_as_fit(room, free: float, sizes: list[int]):
    room(free)
    parts = fitting(list(range(21)), tiny_spec(), Imagined("cuda"))
    assert [len(part) for part in parts] == sizes
    assert [index for part in parts for index in part] == list(range(21))


def test_a_machine_may_say_how_much_a_cohort_may_use(room):
    room(100)
    parts = fitting(list(range(10)), tiny_spec(), Imagined("cuda", memory_gib=5))
    assert [len(part) for part in parts] == [5, 5]


def test_a_cpu_takes_all_at_once(room):
    room(1)
    assert fitting([0, 1, 2], tiny_spec(), Imagined("cpu", memory_gib=1)) == [[0, 1, 2]]


def test_a_member_needs_what_its_optimiser_and_its_batch_need():
    spec = tiny_spec("attention")
    from_width = [member_bytes(spec.changed(model=spec.model.changed(width=width))) for width in (16, 32, 64)]
    assert from_width == sorted(set(from_width))
    from_batch = [member_bytes(spec.changed(train=spec.train.changed(batch_size=size))) for size in (4, 8, 16)]
    assert from_batch[1] - from_batch[0] > 0
    # All that is not the parameters' grows as the batch does; they themselves, which are kept too, do not.
    assert from_batch[2] - from_batch[1] == pytest.approx(2 * (from_batch[1] - from_batch[0]), rel=0.1)
    [trained] = train_cohort([spec])
    weights_and_moments = 3 * sum(weight.nbytes for weight in trained.weights.values())
    assert member_bytes(spec) > weights_and_moments + from_batch[1] - from_batch[0]


@pytest.mark.parametrize("architecture", ["attention", "h3"])
def test_the_widest_of_the_paper_three_times_over_fits_in_24_gib(architecture: str):
    spec = RunSpec.model_validate({"task": "ar", "model": {"architecture": architecture, "width": 256}})
    assert len(fitting(list(range(21)), spec, Imagined("cuda", memory_gib=SHARE * 24))) == 1


def test_what_does_not_fit_is_halved_until_it_does_and_trained_all_the_same(fits):
    specs = members(5)
    whole = train_cohort(specs, dtype=torch.float64)
    tried = fits(2)
    parts = train_cohort(specs, dtype=torch.float64)
    assert tried == [5, 2, 3, 1, 2]
    for member, want, spec in zip(parts, whole, specs, strict=True):
        assert member.spec == spec
        assert (member.outcome, member.steps) == (want.outcome, want.steps) == ("finished", 6)
        assert [point.step for point in member.history] == [point.step for point in want.history]
        assert member.data_sha256 == want.data_sha256
        assert member.train_seconds > 0
        for name, weight in want.weights.items():
            torch.testing.assert_close(member.weights[name], weight, rtol=0, atol=1e-9)


def test_parts_that_were_planned_train_all_members_too(monkeypatch):
    specs = members(3)
    whole = train_cohort(specs, dtype=torch.float64)
    monkeypatch.setattr("mixerscope.training.trainer.fitting", lambda *_: [[0, 1], [2]])
    for member, want in zip(train_cohort(specs, dtype=torch.float64), whole, strict=True):
        for name, weight in want.weights.items():
            torch.testing.assert_close(member.weights[name], weight, rtol=0, atol=1e-9)


def test_progress_and_observers_see_parts_as_one_training(fits):
    specs, steps = members(5), 6
    fits(2)
    done, seen = [], {}
    observer = Observer((0, steps), lambda step, weights: seen.setdefault(step, []).extend(weights))
    train_cohort(specs, lambda count, shown: done.append((count, len(shown))), observer)
    counts = [count for count, _ in done]
    assert counts == sorted(counts)
    assert counts[0] == 2 * 1 // 5
    assert counts[5:7] == [2 * 6 // 5, (2 * 6 + 1) // 5]  # from the end of the first two to the start of the third
    assert counts[-1] == steps
    assert {shown for _, shown in done} == {5}
    assert seen == {0: [0, 1, 2, 3, 4], steps: [0, 1, 2, 3, 4]}


def test_a_model_that_does_not_fit_alone_is_an_error_that_says_so(fits):
    fits(0)
    with pytest.raises(UserError, match=r"one model alone does not fit on the GPU; make train\.batch_size smaller"):
        train_cohort(members(3))


def test_no_stack_outlives_its_part(monkeypatch):
    """What is freed only when Python next collects garbage would be missing for the next part."""
    built: list[weakref.ref[Stack]] = []

    def build(stack: Stack) -> None:
        assert [earlier for earlier in built if earlier() is not None] == []
        built.append(weakref.ref(stack))
        if len(stack.flat) > 1:
            raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(Stack, "build", build)
    gc.disable()
    try:
        train_cohort(members(2))
    finally:
        gc.enable()
    assert len(built) == 3


def test_what_torch_keeps_for_later_counts_as_free(room, monkeypatch):
    room(1)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: room(100))
    assert fitting([0, 1, 2], tiny_spec(), Imagined("cuda")) == [[0, 1, 2]]
