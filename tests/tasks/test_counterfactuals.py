"""Counterfactual documents: each kind changes what it says and nothing else, and predicts what the solver finds."""

import pytest
import torch

from mixerscope.errors import UnknownName
from mixerscope.tasks import AR, ATR, MQAR, NGram, SelectiveCopy
from mixerscope.tasks.split import held_out_pairs
from tests.tasks.every import PRESETS, generator, task_of

HARD = [
    AR(num_pairs=6, num_keys=8, num_values=8, repeated_keys=4),
    AR(num_pairs=6, num_keys=8, num_values=8, repeated_keys=4, query="value"),
    AR(num_pairs=6, min_pairs=2, num_keys=8, num_values=8, noise=5, distractors=2, num_fillers=3),
    AR(num_pairs=3, num_keys=3, num_values=4),
    AR(num_pairs=5, num_keys=6, num_values=6, held_out=0.4),
    AR(num_pairs=5, num_keys=6, num_values=6, held_out=0.4, query="value"),
    MQAR(num_pairs=5, num_queries=1, num_keys=6, num_values=6, num_fillers=3, length=32, repeated_keys=2),
    NGram(length=12, num_symbols=2),
    NGram(length=12, num_symbols=3, n=4),
    SelectiveCopy(num_copied=5, length=8, num_symbols=3, num_queries=1),
    ATR(relations=("sibling", "grandparent"), held_out=0.3),
]


def kinds(task):
    single = task.single_query()
    return [(single, kind) for kind in single.counterfactuals]


EVERY = [(f"{name}:{preset}", *each) for name, preset in PRESETS for each in kinds(task_of(name, preset))]
EVERY += [(f"hard {index}", *each) for index, task in enumerate(HARD) for each in kinds(task)]


@pytest.mark.parametrize(("task", "kind"), [each[1:] for each in EVERY], ids=[f"{e[0]}-{e[2]}" for e in EVERY])
@pytest.mark.parametrize("split", ["train", "test"])
def test_the_prediction_is_what_the_solver_finds(task, kind, split):
    batch = task.sample(1000, generator(0), split)
    other = task.counterfactual(kind, batch, generator(1))
    changed = other.labels["changed"].bool()
    assert changed.any()
    assert torch.equal(task.solve(other), other.scored()[1])
    assert torch.equal((other.scored()[1] != batch.scored()[1])[:, 0], changed)
    assert torch.equal(other.tokens[~changed], batch.tokens[~changed])
    assert all(torch.equal(at, batch.roles[role]) for role, at in other.roles.items())


@pytest.mark.parametrize("by", ["key", "value"])
@pytest.mark.parametrize("cls", [AR, MQAR])
def test_recall_changes_exactly_what_each_kind_says(cls, by):
    task = cls(num_pairs=4, num_queries=1, num_keys=8, num_values=8, query=by)
    batch = task.sample(500, generator(0))
    at = {role: place[:, None] for role, place in batch.roles.items()}
    shown = at["query"] + 1 if cls is AR else at["query"]  # only associative recall shows its answers

    def places(kind):
        """[n, t] what changed, apart from the answer that is shown."""
        other = task.counterfactual(kind, batch, generator(1))
        assert (other.labels["changed"] == 1).all()
        moved = other.tokens != batch.tokens
        return other, moved if cls is MQAR else moved.scatter(1, shown, False)

    other, moved = places("query")
    assert torch.equal(moved, torch.zeros_like(moved).scatter(1, at["query"], True))
    asked = other.tokens.gather(1, at["query"])
    inside = torch.arange(batch.tokens.shape[1]) < at["divider"]
    assert ((batch.tokens == asked) & inside).any(1).all()

    other, moved = places("value")
    assert torch.equal(moved, torch.zeros_like(moved).scatter(1, at["value"], True))
    assert not (batch.tokens == other.answers()[1][:, None]).any()

    other, moved = places("swap-keys")
    key = at["key" if by == "key" else "value"]
    assert (moved.sum(1) == 2).all()
    assert moved.gather(1, key).all()
    before, after = (torch.where(moved, tokens, -1).sort(1).values[:, -2:] for tokens in (batch.tokens, other.tokens))
    assert torch.equal(before, after), "the same two keys"
    if cls is AR:
        assert torch.equal(other.tokens.gather(1, shown)[:, 0], other.answers()[1])


def test_every_other_key_and_every_absent_value_comes_up():
    task = AR(num_pairs=4, num_keys=8, num_values=8)
    batch = task.sample(1, generator(0))
    many = batch[torch.zeros(600, dtype=torch.int64)]
    answers = {kind: task.counterfactual(kind, many, generator(1)).answers()[1] for kind in task.counterfactuals}
    assert {kind: len(found.unique()) for kind, found in answers.items()} == {"query": 3, "swap-keys": 3, "value": 4}
    assert all(found.unique(return_counts=True)[1].min() > 100 for found in answers.values())


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("kind", ["query", "swap-keys", "value"])
def test_what_is_held_out_is_not_asked_by_a_counterfactual_either(kind, split):
    task = AR(num_pairs=5, num_keys=10, num_values=10, held_out=0.4)
    other = task.counterfactual(kind, task.sample(500, generator(0), split), generator(1))
    asked = other.tokens.gather(1, other.role("query")[:, None])[:, 0]
    held = held_out_pairs(asked.numpy(), other.answers()[1].numpy(), 0.4, 0)
    assert (held == (split == "test")).all()


@pytest.mark.parametrize("kind", ["query", "swap-keys", "value"])
def test_a_value_that_its_key_no_longer_has_is_not_asked(kind):
    task = AR(num_pairs=6, num_keys=8, num_values=8, repeated_keys=4, query="value")
    other = task.counterfactual(kind, task.sample(1000, generator(0)), generator(1))
    assert int(other.labels["changed"].sum()) > 100
    position = torch.arange(other.tokens.shape[1])
    inside = position < other.role("divider")[:, None]
    asked, key = other.tokens.gather(1, other.role("query")[:, None]), other.answers()[1][:, None]
    asked_at = (inside & (other.tokens == asked)).int().argmax(1)
    last_with_its_key = torch.where(inside & (other.tokens == key), position, -1).amax(1)
    assert torch.equal(last_with_its_key + 1, asked_at)


def test_documents_without_a_counterfactual_are_marked():
    task = NGram(length=12, num_symbols=2)
    batch = task.sample(500, generator(0))
    other = task.counterfactual("value", batch, generator(1))
    # With two symbols the one new answer is the other symbol, which must not be the one that is asked about.
    expected = batch.tokens.gather(1, batch.role("query")[:, None])[:, 0] == batch.answers()[1]
    assert torch.equal(other.labels["changed"].bool(), expected)
    assert 0 < int(expected.sum()) < 500


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (AR(), ("query", "swap-keys", "value")),
        (AR(num_pairs=1, num_keys=2, num_values=2), ("value",)),
        (AR(num_pairs=4, num_keys=4, num_values=4), ("query", "swap-keys")),
        (SelectiveCopy(), ("value",)),
        (NGram(), ("query", "value")),
        (ATR(), ("query",)),
    ],
)
def test_tasks_declare_the_kinds_they_can_make(task, expected):
    assert task.counterfactuals == expected


def test_unknown_kinds_and_documents_with_several_queries_are_refused():
    task = AR(num_pairs=4, num_queries=2)
    batch = task.sample(3, generator(0))
    with pytest.raises(UnknownName, match="no counterfactual named 'swap'; did you mean 'swap-keys'"):
        task.counterfactual("swap", batch, generator(0))
    with pytest.raises(ValueError, match="exactly one scored position"):
        task.counterfactual("query", batch, generator(0))
