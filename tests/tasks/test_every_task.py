"""What holds for every preset of every built-in task, beyond what `mixerscope check` asks of anyone's."""

import pytest
import torch

from mixerscope.errors import UnknownName, UserError
from mixerscope.registry import TASKS
from mixerscope.tasks import ATR, UNSCORED
from mixerscope.tasks.base import BOS, PAD
from tests.tasks.every import BUILT_IN, PRESETS, STATES, generator, task_of

every_preset = pytest.mark.parametrize(("name", "preset"), PRESETS)


def test_every_task_is_among_them():
    without = set(BUILT_IN) - {name for name, _ in PRESETS}
    assert not without, f"{without} would be tried by no test here: give it presets, such as `small`"


@every_preset
def test_solver_finds_the_label_in_10000_documents(name, preset):
    task = task_of(name, preset)
    batch = task.sample(10_000, generator(1))
    assert len(batch) == 10_000
    assert torch.equal(task.solve(batch), batch.scored()[1])


@every_preset
def test_documents_are_what_they_say(name, preset):
    task = task_of(name, preset)
    batch = task.sample(300, generator(3))
    assert batch.tokens.dtype == batch.targets.dtype == torch.int64
    assert int(batch.tokens.min()) >= 0
    assert int(batch.tokens.max()) < task.vocab_size
    assert batch.tokens.shape[1] <= task.max_length
    assert (batch.tokens[:, 0] == BOS).all()
    positions, targets = batch.scored()
    for role, at in batch.roles.items():
        assert (batch.tokens.gather(1, at[:, None]) != PAD).all(), role
    single = task.single_query()
    one = single.sample(200, generator(4))
    at, answer = one.answers()
    if "relation" not in one.roles:
        assert torch.equal(at, one.role("query"))
    if name not in STATES:
        # The answer stands at the value, and nothing behind the scored position was needed to know it.
        assert torch.equal(one.tokens.gather(1, one.role("value")[:, None])[:, 0], answer)
        assert (one.role("value") < at).all()
    assert (targets[:, 0] != UNSCORED).all()
    if name not in STATES:  # which ask all along; the role is the last of the questions
        assert (positions[:, 0] >= batch.role("query")).all()
    assert {task.symbol(token) for token in range(task.vocab_size)} >= {"PAD", "BOS", "EOS"}
    assert len({task.symbol(token) for token in range(task.vocab_size)}) == task.vocab_size


def rows(batch):
    """Documents as hashable values, without padding."""
    return [tuple(row[: max(i for i, token in enumerate(row) if token) + 1]) for row in batch.tokens.tolist()]


@every_preset
def test_splits_are_disjoint_and_samples_distinct(name, preset):
    task = task_of(name, preset)
    train, dev, test = (rows(task.sample(2000, generator(0), split)) for split in ("train", "dev", "test"))
    assert train != dev
    assert train != test
    assert dev != test
    if isinstance(task, ATR):
        # Short strings are frequent ones. They do repeat, and across splits unless the task is told to be disjoint.
        assert len(set(train)) > 0.7 * len(train)
        assert not set(train) & set(test) or not (task.disjoint or task.held_out)
        assert not set(train) & set(dev) or not task.disjoint
        return
    if name in STATES:  # 256 different documents are all there are of eight bits
        assert not set(train) & set(test)
        assert not set(train) & set(dev)
        assert not set(dev) & set(test)
        return
    assert len(set(train)) == len(train)
    # There are 80 million different documents of the smallest task: twice 2000 of them may meet in one by chance.
    chance = 1 if preset == "small" else 0
    assert len(set(train) & set(dev)) + len(set(train) & set(test)) + len(set(dev) & set(test)) <= chance


@every_preset
def test_unknown_splits_and_symbol_classes_are_refused(name, preset):
    task = task_of(name, preset).single_query()
    with pytest.raises(UnknownName, match="no split named 'val'"):
        task.sample(1, generator(0), "val")
    with pytest.raises(UnknownName, match="no class of symbols named 'foo'"):
        task.corrupt(task.sample(1, generator(0)), task.slots[0], generator(0), symbols="foo")


@every_preset
def test_corrupt_can_be_made_to_change_the_answer(name, preset):
    task = task_of(name, preset).single_query()
    batch = task.sample(500, generator(9))
    for slot in task.slots:
        # Where an earlier occurrence of the query has the same answer, no symbol at the key changes it.
        possible = torch.stack(
            [task.answer_changes(task.corrupt(batch, slot, generator(seed))) for seed in range(20)]
        ).any(0)
        # Brackets that are closed, and what is written over, leave nothing behind.
        assert possible.float().mean() > (0.05 if name in STATES else 0.6)
        some = batch[possible]
        other = task.corrupt(some, slot, generator(10), change_answer=True)
        assert ((other.tokens != some.tokens).sum(1) == 1).all()
        assert (task.read_answers(other) != some.scored()[1]).all()
        if not possible.all():
            with pytest.raises(UserError, match="keep their answer"):
                task.corrupt(batch, slot, generator(10), change_answer=True)


def test_change_answer_draws_again_where_the_plain_draw_does_not_suffice():
    task = TASKS.load("ngram")(length=12, num_symbols=3, n=2)
    batch = task.sample(500, generator(0))
    unlucky = ~task.answer_changes(task.corrupt(batch, "key", generator(1)))
    lucky = task.answer_changes(task.corrupt(batch, "key", generator(2)))
    both = batch[unlucky & lucky]
    assert len(both) > 5
    assert task.answer_changes(task.corrupt(both, "key", generator(1), change_answer=True)).all()


WITH_SYMBOLS_TO_SPARE = {
    "ar": {"num_pairs": 4, "num_keys": 8, "num_values": 8},
    "mqar": {"num_pairs": 4, "num_queries": 2, "num_keys": 8, "num_values": 8},
    "atr": {"max_symbols": 12},
    "ngram": {"length": 8, "num_symbols": 10},
    "selective_copy": {"num_copied": 4, "num_symbols": 6},
}
"""Settings with which no document holds all symbols, but many hold the one that is drawn; others have such defaults."""


@pytest.mark.parametrize("name", sorted(set(BUILT_IN) - STATES))
def test_corrupt_can_avoid_symbols_of_the_document(name):
    task = TASKS.load(name)(**WITH_SYMBOLS_TO_SPARE.get(name, {}))
    batch = task.sample(500, generator(11))
    plain_hits = 0
    for slot in task.slots:
        at = batch.role(slot)[:, None]
        plain = task.corrupt(batch, slot, generator(12)).tokens.gather(1, at)
        plain_hits += int((plain == batch.tokens).any(1).sum())
        avoided = task.corrupt(batch, slot, generator(12), avoid_present=True).tokens.gather(1, at)
        assert not (avoided == batch.tokens).any()
    assert plain_hits > 0  # without the option such symbols do come


def test_corrupt_draws_the_other_symbols_uniformly():
    task = ATR()
    batch = task.sample(1, generator(0))
    batch = batch[torch.zeros(20_000, dtype=torch.int64)]
    at = batch.role("key")[:, None]
    drawn = task.corrupt(batch, "key", generator(1)).tokens.gather(1, at)[:, 0]
    counts = torch.bincount(drawn, minlength=task.vocab_size)
    assert counts[batch.tokens[0, at[0, 0]]] == 0
    used = counts[counts > 0]
    assert len(used) == task.rules.num_terminals - 1
    assert (used - 20_000 / 19).abs().max() < 5 * (20_000 / 19) ** 0.5


def test_impossible_corruptions_are_refused():
    task = TASKS.load("ngram")(length=40, num_symbols=2)
    batch = task.sample(50, generator(0))
    with pytest.raises(UserError, match="already hold all 2 symbols"):
        task.corrupt(batch, "key", generator(0), avoid_present=True)
    with pytest.raises(UnknownName, match="no slot named 'divider'"):
        task.corrupt(batch, "divider", generator(0))


def test_unknown_preset_names_the_known_ones():
    with pytest.raises(UnknownName, match="did you mean 'paper'"):
        ATR.preset("papr")


def test_batches_are_fresh_and_counted():
    task = TASKS.load("ar")(num_pairs=2)
    batches = list(task.batches(8, generator(0), count=3))
    assert [len(batch) for batch in batches] == [8, 8, 8]
    assert len({batch.sha256() for batch in batches}) == 3
    endless = task.batches(8, generator(0))
    assert [next(endless).sha256() for _ in range(3)] == [batch.sha256() for batch in batches]
