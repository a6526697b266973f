"""Training K models at once must be training them one by one."""

import math
from itertools import pairwise

import pytest
import torch

from mixerscope.errors import UserError
from mixerscope.model import build_model
from mixerscope.randomness import stream
from mixerscope.registry import MIXERS
from mixerscope.spec import TrainSpec
from mixerscope.training import Observer, log_spaced, train_cohort
from mixerscope.training.objective import answer_correct, answer_likelihood, cross_entropy
from mixerscope.training.schedule import rate_factor
from tests.conftest import tiny_spec

BUILT_IN = [entry.name for entry in MIXERS.entries() if entry.origin == "mixerscope"]


def with_lr(spec, lr: float, seed: int = 0):
    return spec.changed(seed=seed, train=spec.train.changed(lr=lr))


@pytest.mark.parametrize("mixer", [*BUILT_IN, "based"])
def test_cohort_equals_one_by_one(mixer: str):
    spec = tiny_spec(mixer, warmup=0.0)
    specs = [with_lr(spec, 1e-3, 0), with_lr(spec, 1e-2, 1), with_lr(spec, 3e-3, 2)]
    together = train_cohort(specs, dtype=torch.float64)
    for member, alone_spec in zip(together, specs, strict=True):
        [alone] = train_cohort([alone_spec], dtype=torch.float64)
        assert member.outcome == alone.outcome == "finished"
        start = build_model(alone_spec.model, alone_spec.task.vocab_size, alone_spec.seed).double().state_dict()
        moved = 0.0
        for name, weight in alone.weights.items():
            torch.testing.assert_close(member.weights[name], weight, rtol=1e-8, atol=1e-10)
            moved = max(moved, (weight - start[name]).abs().max().item())
        assert moved > 1e-3, "nothing was trained, so nothing was compared"
        assert member.history[-1].loss == pytest.approx(alone.history[-1].loss, rel=1e-9)


def test_one_step_loop_written_out_gives_the_same_weights():
    """Against torch's own AdamW, LambdaLR and module, one model, the loss written out."""
    spec = tiny_spec("attention", lr=1e-2, weight_decay=0.1, schedule="cosine", warmup=0.34)
    [member] = train_cohort([spec], dtype=torch.float64)
    model = build_model(spec.model, spec.task.vocab_size, spec.seed).double()
    data = spec.task.sample(spec.train.documents, stream(spec.data_seed, "train"))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1, betas=(0.9, 0.999), eps=1e-8)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: rate_factor(spec.train, step))
    query = data.roles["query"][0].item()
    for step in range(spec.train.steps):
        rows = [(step * spec.train.batch_size + i) % len(data) for i in range(spec.train.batch_size)]
        logits = model(data.tokens[rows])[:, query]
        loss = -torch.log_softmax(logits, -1)[torch.arange(len(rows)), data.tokens[rows, query + 1]].mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(member.weights[name], weight, rtol=1e-7, atol=1e-10)


def test_a_diverged_member_is_reported_and_harms_no_other():
    spec = tiny_spec("attention", schedule="constant", warmup=0.0)
    wild, calm = train_cohort([with_lr(spec, 1e300), with_lr(spec, 1e-3)], dtype=torch.float64)
    assert wild.outcome == "diverged"
    assert wild.steps < wild.stack_steps == calm.steps == 6
    assert all(math.isfinite(point.likelihood) for point in wild.history)
    [alone] = train_cohort([with_lr(spec, 1e-3)], dtype=torch.float64)
    assert calm.outcome == "finished"
    for name, weight in alone.weights.items():
        torch.testing.assert_close(calm.weights[name], weight, rtol=1e-8, atol=1e-10)


def test_stops_at_the_wished_accuracy_with_the_weights_of_that_step():
    spec = tiny_spec("attention", stop_at_accuracy=1e-9, steps=9, eval_documents=500, schedule="constant")
    [member] = train_cohort([spec])
    first = next(point.step for point in member.history if point.accuracy > 0)
    assert (member.outcome, member.steps) == ("reached", first)
    assert 0 < first < 9
    # With a constant rate and no warm-up, a run of just so many steps ends with the same weights.
    [short] = train_cohort([spec.changed(train=spec.train.changed(steps=first, stop_at_accuracy=None))])
    assert (short.outcome, short.steps) == ("finished", first)
    assert all(torch.equal(member.weights[name], weight) for name, weight in short.weights.items())


def test_same_seed_same_bytes_whatever_the_global_state():
    spec = tiny_spec("mamba")
    [first] = train_cohort([spec])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(12345)
        [second] = train_cohort([spec])
    assert all(torch.equal(first.weights[name], second.weights[name]) for name in first.weights)
    [other] = train_cohort([spec.changed(seed=1)])
    assert any(not torch.equal(first.weights[name], other.weights[name]) for name in first.weights)
    [other_data] = train_cohort([spec.changed(data_seed=1)])
    assert first.data_sha256 != other_data.data_sha256


def test_members_may_differ_in_seed_rate_and_decay_only():
    spec = tiny_spec("attention")
    with pytest.raises(UserError, match=r"seed, train\.lr and train\.weight_decay only"):
        train_cohort([spec, spec.changed(data_seed=1)])


@pytest.mark.parametrize(("schedule", "middle"), [("cosine", 0.5), ("linear", 0.5), ("constant", 1.0)])
def test_schedule(schedule: str, middle: float):
    spec = TrainSpec(steps=100, warmup=0.1, schedule=schedule)  # type: ignore[arg-type]
    assert rate_factor(spec, 0) == 0.0
    assert rate_factor(spec, 5) == 0.5
    assert rate_factor(spec, 10) == 1.0
    assert rate_factor(spec, 55) == pytest.approx(middle)
    assert rate_factor(TrainSpec(steps=50_016), 5001) == 1.0


def test_objective_on_numbers_worked_by_hand():
    logits = torch.tensor([[[0.0, math.log(3.0)]], [[math.log(4.0), 0.0]]])
    targets = torch.tensor([[1], [-100]])
    assert cross_entropy(logits, targets).item() == pytest.approx(-math.log(0.75))
    assert answer_likelihood(logits[:, 0], torch.tensor([1, 0])).tolist() == pytest.approx([0.75, 0.8])
    assert answer_correct(logits[:, 0], torch.tensor([1, 1])).tolist() == [True, False]


def test_steps_at_which_a_model_is_looked_into():
    assert log_spaced(0, 100) == ()
    assert log_spaced(1, 100) == (100,)
    assert log_spaced(3, 100) == (0, 1, 100)
    assert log_spaced(4, 100) == (0, 1, 10, 100)
    assert log_spaced(20, 6) == (0, 1, 2, 3, 4, 5, 6)
    ratios = [b / a for a, b in pairwise(log_spaced(9, 10_000)[1:])]
    assert max(ratios) / min(ratios) < 1.2


def test_an_observer_sees_the_weights_of_every_step_and_changes_nothing():
    spec = tiny_spec("attention", warmup=0.0, steps=4)
    specs = [with_lr(spec, 1e-2, 0), with_lr(spec, 1e-3, 1)]
    seen = {}

    def look(step, members):
        seen[step] = members
        for weights in members.values():  # an observer that writes into what it is given must not reach the training
            weights["token_embedding.weight"].add_(1.0)

    watched = train_cohort(specs, observer=Observer((0, 3, 4), look))
    plain = train_cohort(specs)
    assert list(seen) == [0, 3, 4]
    for index, (member, want) in enumerate(zip(watched, plain, strict=True)):
        for name, weight in want.weights.items():
            assert torch.equal(member.weights[name], weight)
            shown = seen[4][index][name] - (1.0 if name == "token_embedding.weight" else 0.0)
            torch.testing.assert_close(shown, weight, rtol=0, atol=1e-6)
        start = build_model(member.spec.model, member.spec.task.vocab_size, member.spec.seed).state_dict()
        assert torch.equal(seen[0][index]["final_norm.weight"], start["final_norm.weight"])
