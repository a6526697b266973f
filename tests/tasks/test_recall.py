"""Recall tasks: the difficulty knobs do what they say."""

import torch

from mixerscope.tasks import AR, MQAR, UNSCORED
from mixerscope.tasks.base import BOS, EOS, PAD
from tests.tasks.every import generator


def context(task, batch, index):
    """Symbols between BOS and the divider."""
    tokens = batch.tokens[index].tolist()
    assert tokens[0] == BOS
    return [task.symbol(token) for token in tokens[1 : tokens.index(EOS)]]


def test_sixteen_pairs_are_the_paper_and_thirty_two_what_it_says():
    assert AR.preset("paper") == AR(num_pairs=16)
    assert AR.preset("paper").max_length == 37
    assert AR.preset("paper").vocab_size == 8196
    assert AR.preset("paper-as-written") == AR(num_pairs=32)


def test_pair_counts_vary_over_the_whole_range():
    task = AR(num_pairs=6, min_pairs=3, num_keys=20, num_values=20, num_queries=2)
    batch = task.sample(4000, generator(0))
    counts = torch.bincount((batch.role("divider") - 1) // 2)
    assert counts[:3].sum() == 0
    assert (counts[3:] - 1000).abs().max() < 150
    ends = (batch.tokens == EOS).sum(1)
    assert (ends == 2).all()
    after_the_end = batch.tokens.cumsum(1) == batch.tokens.sum(1, keepdim=True)
    assert (batch.tokens[:, 1:][after_the_end[:, :-1]] == PAD).all()


def test_overwritten_keys_the_last_one_wins():
    task = AR(num_pairs=6, repeated_keys=3, num_keys=9, num_values=30)
    batch = task.sample(2000, generator(0))
    seen_repeats = 0
    for i in range(len(batch)):
        symbols = context(task, batch, i)
        table = {}
        for key, value in zip(symbols[::2], symbols[1::2], strict=True):
            table[key] = value
        assert len(table) == 3
        at = int(batch.role("query")[i])
        key = task.symbol(int(batch.tokens[i, at]))
        assert table[key] == task.symbol(int(batch.targets[i, at]))
        assert int(batch.labels["repeated"][i]) == (symbols[::2].count(key) > 1)
        seen_repeats += symbols[::2].count(key) > 1
    assert seen_repeats > 500


def test_fillers_stand_where_they_should_and_never_contradict():
    task = AR(num_pairs=4, distractors=3, min_distractors=1, noise=5, num_fillers=3, num_keys=8, num_values=8)
    batch = task.sample(1000, generator(0))
    gaps = []
    for i in range(len(batch)):
        symbols = context(task, batch, i)
        kinds = "".join(symbol[0] for symbol in symbols)
        assert kinds.replace("f", "") == "kv" * 4
        between = [len(part.split("v")[0]) for part in kinds.split("k")[1:]]
        gaps += between
        assert kinds.count("f") == 5 + sum(between)
        assert int(batch.labels["distance"][i]) in {gap + 1 for gap in between}
    assert set(gaps) == {1, 2, 3}


def test_noise_falls_in_front_of_between_and_behind_the_pairs_alike():
    task = AR(num_pairs=2, noise=1, num_fillers=1, num_keys=4, num_values=4)
    batch = task.sample(3000, generator(0))
    at = (batch.tokens == 3 + 4 + 4).int().argmax(1)
    counts = torch.bincount(at)
    assert counts.nonzero()[:, 0].tolist() == [1, 3, 5]
    assert (counts[[1, 3, 5]] - 1000).abs().max() < 150


def test_the_split_really_holds_pairs_out():
    task = AR(num_pairs=6, num_keys=12, num_values=12, held_out=0.3, num_queries=2)
    asked = {}
    for split in ("train", "dev", "test"):
        batch = task.sample(5000, generator(0), split)
        positions, targets = batch.scored()
        query = batch.tokens.gather(1, positions)
        asked[split] = set(zip(query.flatten().tolist(), targets.flatten().tolist(), strict=True))
    assert not asked["train"] & asked["test"]
    assert not asked["dev"] & asked["test"]
    assert asked["train"] | asked["test"] == {(3 + k, 15 + v) for k in range(12) for v in range(12)}
    assert 0.2 < len(asked["test"]) / 144 < 0.4
    assert (
        task.changed(split_seed=1).sample(10, generator(0), "test").sha256()
        != task.sample(10, generator(0), "test").sha256()
    )


def test_a_held_out_pair_is_the_same_pair_whichever_side_is_shown():
    by_key = AR(num_pairs=4, num_keys=8, num_values=8, held_out=0.3)
    pairs = {}
    for task in (by_key, by_key.changed(query="value")):
        batch = task.sample(3000, generator(0), "test")
        at, answer = batch.answers()
        query = batch.tokens.gather(1, at[:, None])[:, 0]
        pairs[task.query] = {tuple(sorted(pair)) for pair in zip(query.tolist(), answer.tolist(), strict=True)}
    assert pairs["key"] == pairs["value"]


def test_mqar_queries_follow_the_power_law():
    def mean_place(power):
        task = MQAR(num_pairs=4, num_queries=1, length=60, power=power, num_keys=8, num_values=8)
        batch = task.sample(4000, generator(0))
        place = (batch.role("query") - batch.role("divider")).double()
        assert place.min() >= 1
        weight = torch.arange(1, 51).double() ** (power - 1)
        return place.mean(), (weight * torch.arange(1, 51)).sum() / weight.sum()

    for power in (0.1, 1.0, 2.0):
        mean, expected = mean_place(power)
        assert abs(mean - expected) < 1


def test_mqar_asks_distinct_keys_and_shows_no_answer():
    task = MQAR(num_fillers=5)
    batch = task.sample(500, generator(0))
    positions, targets = batch.scored()
    assert (targets != UNSCORED).all()
    assert (positions[:, 1:] > positions[:, :-1]).all()
    query = batch.tokens.gather(1, positions).sort(1).values
    assert (query[:, 1:] != query[:, :-1]).all()
    behind = torch.arange(task.length) > batch.role("divider")[:, None]
    is_value = (batch.tokens >= 3 + task.num_keys) & (batch.tokens < 3 + task.num_keys + task.num_values)
    assert not (behind & is_value).any()
    fillers = behind & (batch.targets == UNSCORED)
    assert (batch.tokens[fillers] >= 3 + task.num_keys + task.num_values).all()
