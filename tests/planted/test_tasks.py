"""The degenerate tasks have the shortcut they are made for, and an answer that can be read off the document."""

import pytest
import torch

from mixerscope.planted import SIZE
from mixerscope.planted.tasks import (
    ConsecutiveAR,
    FixedMapAR,
    FixedPlaceAR,
    LastPairAR,
    MarkedPairAR,
    MostlyFixedMapAR,
    ThirdPairAR,
    ThirdPairFixedMapAR,
)
from mixerscope.randomness import stream
from mixerscope.tasks import AR, Batch
from mixerscope.tasks.base import FIRST_SYMBOL

TASKS = (
    ConsecutiveAR,
    FixedMapAR,
    FixedPlaceAR,
    LastPairAR,
    MarkedPairAR,
    MostlyFixedMapAR,
    ThirdPairAR,
    ThirdPairFixedMapAR,
)


def drawn(kind: type[AR], documents: int = 300, **fields: int) -> Batch:
    return kind(**{**SIZE, **fields}).sample(documents, stream(0, "degenerate"))


def pairs(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """[n, 4] numbers of keys and of values."""
    numbers = batch.tokens[:, 1:9].unflatten(1, (4, 2)) - FIRST_SYMBOL
    return numbers[..., 0], numbers[..., 1] - SIZE["num_keys"]


def token_at(batch: Batch, role: str) -> torch.Tensor:
    return batch.tokens.gather(1, batch.role(role)[:, None])[:, 0]


@pytest.mark.parametrize("kind", TASKS, ids=lambda kind: kind.__name__)
def test_documents_are_valid_and_answered_by_the_solver(kind: type[AR]):
    batch = drawn(kind)
    assert kind(**SIZE).solve(batch)[:, 0].equal(batch.answers()[1])
    assert token_at(batch, "key").equal(token_at(batch, "query"))
    assert token_at(batch, "value").equal(batch.answers()[1])
    for symbols in pairs(batch):
        assert (symbols >= 0).all()
        assert (symbols < 8).all()
        assert (symbols.sort(1).values.diff(dim=1) > 0).all(), "all distinct"


def test_the_marked_key_alone_is_from_the_lower_half_and_is_asked():
    batch = drawn(MarkedPairAR)
    keys, _ = pairs(batch)
    assert ((keys < 4).sum(1) == 1).all()
    assert (token_at(batch, "query") < FIRST_SYMBOL + 4).all()
    assert set(batch.labels["pair"].tolist()) == {0, 1, 2, 3}


def test_marked_documents_may_be_longer_as_long_as_there_are_keys_without_the_mark():
    batch = drawn(MarkedPairAR, num_pairs=5)
    keys = batch.tokens[:, 1:11:2] - FIRST_SYMBOL
    assert ((keys < 4).sum(1) == 1).all()
    assert (keys.sort(1).values.diff(dim=1) > 0).all()
    with pytest.raises(ValueError, match="num_pairs = 6 needs 5 keys that are not marked, but of num_keys = 8 only 4"):
        MarkedPairAR(num_pairs=6, num_keys=8, num_values=8)


def test_every_key_has_its_place():
    keys, _ = pairs(drawn(FixedPlaceAR))
    assert (keys // 2).equal(torch.arange(4).expand_as(keys))
    assert set(keys.flatten().tolist()) == set(range(8))


def test_the_last_key_of_all_has_any_value_and_the_others_their_own():
    keys, values = pairs(drawn(MostlyFixedMapAR))
    free = keys == 7
    assert values[~free].equal(keys[~free])
    assert set(values[free].tolist()) == set(range(8))


def test_values_follow_one_another_and_the_first_is_not_asked():
    batch = drawn(ConsecutiveAR)
    _, values = pairs(batch)
    assert (values.diff(dim=1) % 8 == 1).all()
    assert set(batch.labels["pair"].tolist()) == {1, 2, 3}


@pytest.mark.parametrize(("kind", "pair"), [(ThirdPairAR, 2), (LastPairAR, 3)])
def test_always_the_same_pair_is_asked(kind: type[AR], pair: int):
    assert set(drawn(kind).labels["pair"].tolist()) == {pair}
