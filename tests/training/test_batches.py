"""Batches: which documents in which order, how many positions of them, and that cutting the rest changes nothing."""

import itertools
from collections.abc import Iterable

import pytest
import torch

from mixerscope.machine import Machine
from mixerscope.randomness import stream
from mixerscope.spec import RunSpec, TrainSpec
from mixerscope.tasks import UNSCORED, Batch
from mixerscope.training import batches as module
from mixerscope.training import train_cohort, trainer
from mixerscope.training.batches import Batches, Documents
from mixerscope.training.objective import Answer
from mixerscope.training.trainer import LENGTHS, _stack
from tests.conftest import tiny_spec

CPU = torch.device("cpu")


def documents(needed: list[int], width: int = 90) -> Batch:
    """Documents whose last scored position leaves just so many positions to compute; token 7 i + t, for a name."""
    tokens = (7 * torch.arange(len(needed))[:, None] + torch.arange(width)) % 23
    targets = torch.full((len(needed), width), UNSCORED)
    for document, count in enumerate(needed):
        targets[document, count - 1] = 1
    return Batch(tokens, targets)


def whole(batches: Batches) -> tuple[int, ...]:
    """The lengths of batches that are one part each."""
    assert len(batches.sizes) == 1
    return tuple(length for (length,) in batches.lengths)


def batches_of(data: Batch, *, size: int, steps: int) -> Batches:
    return Batches.of(data, TrainSpec(steps=steps, batch_size=size), CPU)


@pytest.mark.parametrize(
    ("count", "size", "steps", "distinct"),
    [
        (12, 4, 30, 3),  # one round and again
        (10, 4, 30, 5),  # two rounds until a batch begins at a batch's first document again
        (7, 4, 30, 7),
        (3, 8, 30, 3),  # a batch holds some documents more than once
        (12, 4, 2, 2),  # not even one round
        (7, 4, 5, 5),
    ],
)
def test_step_i_reads_the_documents_in_their_order(count: int, size: int, steps: int, distinct: int):
    data = documents([20 + i for i in range(count)])
    read, targets = data.scored()
    batches = batches_of(data, size=size, steps=steps)
    assert batches.count == distinct == len(batches.tokens)
    for step in range(steps):
        rows = [(step * size + i) % count for i in range(size)]
        at = step % batches.count
        assert torch.equal(batches.tokens[at], data.tokens[rows])
        assert torch.equal(batches.read[at], read[rows])
        assert torch.equal(batches.targets[at], targets[rows])


@pytest.mark.parametrize(
    ("needed", "lengths"),
    [
        ([80, 41, 40, 21, 20, 5, 3, 79], (80, 80, 40, 40, 20, 20, 20, 80)),  # an eighth, 10, is too short to pay
        ([67, 34, 33, 17, 16, 1], (67, 34, 34, 17, 17, 17)),  # halves are rounded up
        ([31, 16, 15], (31, 16, 16)),
        ([30, 2], (30, 30)),
        ([9, 2], (9, 9)),
    ],
)
def test_lengths_are_the_longest_needed_and_its_halves(needed: list[int], lengths: tuple[int, ...]):
    assert whole(batches_of(documents(needed), size=1, steps=100)) == lengths


def test_lengths_are_multiples_where_documents_are_that_long():
    def lengths(data: Batch, multiple: int) -> tuple[int, ...]:
        return whole(Batches.of(data, TrainSpec(steps=100, batch_size=1), CPU, multiple))

    data = documents([67, 34, 33, 17, 16, 1])
    assert lengths(data, 4) == (68, 36, 36, 20, 20, 20)
    short = Batch(data.tokens[:, :67], data.targets[:, :67])
    assert lengths(short, 4) == (67, 36, 36, 20, 20, 20), "no model has to read more than the task's documents have"
    assert lengths(documents([4, 2]), 32) == (32, 32)


def test_which_multiple_depends_on_the_device(monkeypatch):
    spec = tiny_spec("attention")
    data = documents([9, 5])

    def lengths() -> set[int]:
        return set(whole(_stack([spec], data, Machine(), None).batches))

    assert lengths() == {9}
    monkeypatch.setitem(LENGTHS, "cpu", 4)
    assert lengths() == {12}


def test_a_batch_is_as_long_as_its_longest_document_needs():
    assert whole(batches_of(documents([64, 3, 3, 33, 20, 32, 2, 9]), size=2, steps=100)) == (64, 64, 32, 16)


def test_positions_that_only_fill_up_a_row_of_queries_do_not_count():
    """A document with fewer queries than others repeats position 0 unscored; nothing behind its last is needed."""
    data = documents([20, 64])
    data.targets[0, 5] = 1
    batches = batches_of(data, size=1, steps=2)
    assert batches.read.shape == (2, 1, 2)
    assert whole(batches) == (32, 64)


def test_order_sorts_the_tokens_that_a_step_reads():
    batches = batches_of(documents([64, 3, 3, 33, 20, 32, 2, 9]), size=2, steps=100)
    for number, length in enumerate(whole(batches)):
        tokens = batches.tokens[number, :, :length].flatten()
        order = batches.order[number, : len(tokens)].long()
        assert torch.equal(order.sort().values, torch.arange(len(tokens)))
        assert torch.equal(tokens[order], tokens.sort().values)
        for token in range(23):  # within a token in the order of the text, so that sums are always taken alike
            places = order[tokens[order] == token]
            assert torch.equal(places, places.sort().values)


def test_documents_hold_what_scoring_needs():
    data = documents([20, 64])
    scored = Documents.of(data, CPU)
    assert torch.equal(scored.tokens, data.tokens)
    assert scored.read.tolist() == [[19], [63]]
    assert scored.targets.tolist() == [[1], [1]]


@pytest.mark.parametrize("architecture", ["attention", "mamba"])
def test_cut_batches_train_the_weights_that_whole_ones_do(architecture: str, monkeypatch):
    train = {"steps": 6, "batch_size": 2, "documents": 12, "eval_every": 6, "eval_documents": 4, "warmup": 0.0}
    model = {"architecture": architecture, "width": 8, "layers": 1}
    spec = RunSpec.model_validate({"task": "atr:paper-l10", "model": model, "train": train})
    specs = [spec, spec.changed(seed=1)]
    data = spec.task.sample(spec.train.documents, stream(spec.data_seed, "train"), "train")
    lengths = whole(Batches.of(data, spec.train, CPU))
    assert len(set(lengths)) > 1, "nothing but the longest is cut, so little is compared"
    assert max(lengths) < data.tokens.shape[1]
    cut = train_cohort(specs, dtype=torch.float64)
    monkeypatch.setattr(module, "_offered", lambda needed, multiple, most: [most])
    for member, want in zip(cut, train_cohort(specs, dtype=torch.float64), strict=True):
        for name, weight in want.weights.items():
            torch.testing.assert_close(member.weights[name], weight, rtol=0, atol=1e-9)


MOSTLY_SHORT = [60, 9, 12, 7, 3, 31, 5, 11, 8, 2, 58, 4]
"""Of three batches of four, the last has its longest document second to last."""


def in_parts(needed: list[int], **scored: int) -> Batches:
    data = documents(needed)
    for document, position in scored.items():
        data.targets[int(document[1:]), position] = 1
    return Batches.of(data, TrainSpec(steps=100, batch_size=4), CPU, in_parts=True)


def test_the_longest_documents_of_a_batch_are_a_part_of_their_own():
    batches = in_parts(MOSTLY_SHORT)
    assert batches.sizes == (2, 2)
    assert batches.shares == (0.5, 0.5)
    assert batches.lengths == ((60, 16), (31, 16), (58, 16)), "and each part's lengths are its own"
    needed = (batches.read.amax(-1) + 1).tolist()
    assert needed == [[60, 12, 9, 7], [31, 11, 5, 3], [58, 8, 4, 2]], "the same documents, the longest first"
    for number, lengths in enumerate(batches.lengths):
        start = 0
        for part, length in zip(batches.tokens[number].split(batches.sizes), lengths, strict=True):
            tokens = part[:, :length].flatten()
            order = batches.order[number, start : start + len(tokens)].long()
            assert torch.equal(tokens[order], tokens.sort().values)
            start += len(tokens)


@pytest.mark.parametrize(
    "needed",
    [
        [60] * 12,  # as recall has them
        [60, 59, 58, 9] * 3,  # too little to be saved
    ],
)
def test_batches_stay_whole_where_parting_them_saves_little(needed: list[int]):
    batches = in_parts(needed)
    assert batches.sizes == (4,)
    assert (batches.read.amax(-1) + 1).flatten().tolist() == needed, "and in their order"


def test_batches_stay_whole_where_documents_are_not_scored_equally_often():
    """The loss is a mean over scored positions: parts would have shares that differ from batch to batch."""
    assert in_parts(MOSTLY_SHORT, d3=2).sizes == (4,)


@pytest.mark.parametrize("architecture", ["attention", "mamba"])
def test_parted_batches_train_the_weights_that_whole_ones_do(architecture: str, monkeypatch):
    train = {"steps": 8, "batch_size": 8, "documents": 48, "eval_every": 8, "eval_documents": 4, "warmup": 0.0}
    model = {"architecture": architecture, "width": 8, "layers": 1}
    spec = RunSpec.model_validate({"task": "atr:paper-l10", "model": model, "train": train})
    specs = [spec, spec.changed(seed=1)]
    whole_ones = train_cohort(specs, dtype=torch.float64)
    monkeypatch.setattr(trainer, "IN_PARTS", {"cpu"})
    data = spec.task.sample(spec.train.documents, stream(spec.data_seed, "train"), "train")
    assert len(_stack(specs, data, Machine(), None).batches.sizes) == 2, "nothing is parted, so nothing is compared"
    for member, want in zip(train_cohort(specs, dtype=torch.float64), whole_ones, strict=True):
        assert [point.loss for point in member.history] == pytest.approx([point.loss for point in want.history])
        for name, weight in want.weights.items():
            torch.testing.assert_close(member.weights[name], weight, rtol=0, atol=1e-9)


def test_an_objective_that_is_no_mean_keeps_its_batches_whole(monkeypatch):
    monkeypatch.setattr(trainer, "IN_PARTS", {"cpu"})
    monkeypatch.setattr(Answer, "is_mean", False)
    spec = tiny_spec("attention")
    assert len(_stack([spec], documents(MOSTLY_SHORT * 4), Machine(), None).batches.sizes) == 1


@pytest.mark.parametrize("seed", range(6))
def test_the_lengths_of_a_part_leave_the_fewest_positions_that_three_can(seed: int):
    needed = torch.randint(1, 90, (40,), generator=torch.Generator().manual_seed(seed))
    found = module._fitting(needed, 4, 88)
    rounded = [min(max(16, -(-number // 4) * 4), 88) for number in needed.tolist()]
    top = max(rounded)
    every = [{*two, top} for two in itertools.combinations_with_replacement(sorted(set(rounded)), 2)]

    def positions(lengths: Iterable[int]) -> int:
        return sum(min(length for length in lengths if length >= number) for number in rounded)

    assert found == sorted(set(found))
    assert len(found) <= 3
    assert positions(found) == min(map(positions, every))


def test_parts_of_long_documents_are_chosen_among_few_lengths():
    assert module._fitting(torch.tensor([5000, 4999, 3000, 10]), 4, 5000) == [156, 3120, 5000]


def test_pairs_of_documents_are_never_parted():
    data = documents([60, 3, 31, 2])
    assert Batches.of(data, TrainSpec(steps=4, batch_size=2), CPU, in_parts=True).sizes == (2,)


def test_parts_leave_less_than_half_of_the_positions_of_treecall():
    spec = RunSpec.model_validate(
        {"task": "atr:paper", "model": {"architecture": "attention"}, "train": {"documents": 1280, "steps": 40}}
    )
    data = spec.task.sample(1280, stream(0, "train"), "train")
    whole_ones, parted = (trainer.batches_of(data, spec.train, CPU, like=device) for device in ("cpu", "cuda"))
    assert len(whole_ones.sizes) == 1
    assert parted.positions < 0.48 * whole_ones.positions


def test_a_few_lengths_have_every_length_of_every_part():
    spec = RunSpec.model_validate(
        {"task": "atr:paper", "model": {"architecture": "mamba"}, "train": {"documents": 1280, "steps": 40}}
    )
    data = spec.task.sample(1280, stream(0, "train"), "train")
    batches = trainer.batches_of(data, spec.train, CPU, like="cuda")
    few = batches.covering
    assert len(set(batches.lengths)) > len(few) == len(set(few)) >= 2
    assert set(few) <= set(batches.lengths)
    every = {own for lengths in batches.lengths for own in enumerate(lengths)}
    assert {own for lengths in few for own in enumerate(lengths)} == every
    assert batches_of(documents([9] * 8), size=4, steps=4).covering == [(9,)]
