"""Accuracy by length and position: what the stage says is what the models do."""

import json
from dataclasses import replace

import pytest
import torch

from mixerscope.artifacts import Lengths
from mixerscope.errors import UserError
from mixerscope.stages import Done
from mixerscope.tasks import UNSCORED, Dyck, Parity
from mixerscope.tasks.baselines import best_guess_of_all
from tests.conftest import tiny_spec, with_stage
from tests.stages.states import answers, fresh, run_stage, spec_of

SETTINGS = {"lengths": {"documents": 64, "times": [1, 2]}}


@pytest.mark.parametrize("task", [Parity(length=8), Dyck(length=8, after_close=True)])
def test_it_counts_what_each_model_of_a_cohort_says(task):
    spec = spec_of(SETTINGS, task)
    models = [fresh(spec, seed) for seed in (0, 1)]
    for model, result in zip(models, run_stage("lengths", spec, models), strict=True):
        assert isinstance(result, Done)
        [found] = result.artifacts
        assert isinstance(found, Lengths)
        assert Lengths.from_bytes(found.to_bytes()) == found
        assert [one.length for one in found.lengths] == [8, 16]
        for one in found.lengths:
            batch = spec.stages["lengths"].batch(spec, one.times)
            asked = batch.targets != UNSCORED
            right = (answers(model, batch.tokens) == batch.targets) & asked
            assert one.accuracy.value == pytest.approx((right.sum(1) / asked.sum(1)).mean().item(), abs=1e-6)
            assert one.last.value == pytest.approx(right.gather(1, batch.role("query")[:, None]).double().mean().item())
            assert one.whole.value == pytest.approx((right == asked).all(1).double().mean().item())
            for position, value in enumerate(one.by_position, 1):
                often = int(asked[:, position].sum())
                expected = right[:, position].sum().item() / often if often else None
                assert value == pytest.approx(expected)
            longer = task.at_length(one.length)
            assert (one.guessing, one.guessing_all) == (longer.guessing(), best_guess_of_all(longer))
        assert len(list(found.rows())) == 2 * 3 + 8 + 16
        assert {row["guessing_all"] for row in found.rows()} == {one.guessing_all for one in found.lengths}


def test_what_was_kept_before_guessing_was_asked_of_all_questions_is_read():
    spec = spec_of(SETTINGS)
    [result] = run_stage("lengths", spec, [fresh(spec)])
    [found] = result.artifacts
    kept = json.loads(found.to_bytes())
    for one in kept["lengths"]:
        del one["guessing_all"]
    read = Lengths.from_bytes(json.dumps(kept).encode())
    assert read == Lengths(tuple(replace(one, guessing_all=None) for one in found.lengths))


def test_a_model_that_knows_everything_gets_everything_right():
    spec = spec_of(SETTINGS)
    model = fresh(spec)
    task = spec.task

    def solved(tokens: torch.Tensor, read: object = None) -> torch.Tensor:
        states = task.automaton.run(task.inputs_of(tokens))
        return torch.nn.functional.one_hot(task.answer_tokens(states), task.vocab_size).float()

    model.forward = solved  # type: ignore[method-assign]
    [result] = run_stage("lengths", spec, [model])
    [found] = result.artifacts
    assert [one.whole.value for one in found.lengths] == [1.0, 1.0]
    assert set(found.at(2).by_position) == {1.0}
    assert found.at(4) is None


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (with_stage(tiny_spec(), "lengths"), "AR tracks no state"),
        (
            spec_of({"lengths": {"times": [1, 200]}}),
            "200 times as long have 1601 tokens, and the model learns positions for 1024",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused_before_training(spec, reason):
    with pytest.raises(UserError, match=reason):
        spec.stages["lengths"].check(spec)


def test_lengths_are_given_once():
    with pytest.raises(ValueError, match="none twice"):
        spec_of({"lengths": {"times": [1, 1]}})
