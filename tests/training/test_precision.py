"""What `train.precision` changes on a CPU, and what it does not; and weight decay, which each member has its own."""

import pytest
import torch

from mixerscope.artifacts import Provenance
from mixerscope.artifacts.effects import SHARE
from mixerscope.model import build_model
from mixerscope.runs import run
from mixerscope.training import train_cohort
from mixerscope.training.update import adamw
from tests.conftest import tiny_spec


@pytest.mark.parametrize("architecture", ["attention", "mamba", "deltanet"])
def test_bfloat16_weights_stay_bfloat16_and_learn(architecture: str):
    train = {"steps": 60, "batch_size": 16, "documents": 64, "eval_every": 30, "lr": 1e-2, "warmup": 0.0}
    spec = tiny_spec(architecture, precision="bfloat16", **train)
    members = train_cohort([spec, spec.changed(seed=1)])
    for member in members:
        assert member.outcome == "finished"
        assert {weight.dtype for weight in member.weights.values() if weight.is_floating_point()} == {torch.bfloat16}
        _, first, last = (point.loss for point in member.history)
        assert first is not None
        assert last is not None
        assert last < 0.9 * first
    a, b = (member.weights["token_embedding.weight"] for member in members)
    assert not torch.equal(a, b)


def test_an_update_of_bfloat16_numbers_is_rounded_once():
    rng = torch.Generator().manual_seed(0)
    state = [torch.rand(2, 500, generator=rng).bfloat16() for _ in range(3)]
    grads = torch.randn(2, 500, generator=rng).bfloat16()
    rest = torch.tensor([1e-2, 1e-3]), torch.tensor([0.1, 0.0]), torch.tensor([0.5, 0.7, 1.2])
    expected = [tensor.float() for tensor in state]
    adamw(*expected, [grads.float()], *rest)
    before = [tensor.clone() for tensor in state]
    adamw(*state, [grads], *rest)
    for tensor, exact, old in zip(state, expected, before, strict=True):
        assert torch.equal(tensor, exact.bfloat16())
        assert not torch.equal(tensor, old)


def test_a_bfloat16_run_is_patched(tmp_path):
    train = {"steps": 200, "batch_size": 32, "documents": 640, "eval_every": 200, "lr": 1e-2}
    spec = tiny_spec("attention", precision="bfloat16", **train)
    spec = spec.changed(
        task=spec.task.changed(num_pairs=2, num_keys=3, num_values=3),
        model=spec.model.changed(init="small_model"),
        stages={"patch": {"documents": 64}, "judge": {}},
    )
    result = run(spec, tmp_path, progress=False)
    patched = result.stages["patch"].folder.read(Provenance)
    assert (result.provenance.precision, patched.precision) == ("bfloat16", "float32")
    shares = [row["value"] for row in result.effects.rows() if row["metric"] == SHARE and row["value"] is not None]
    assert max(shares) > 0.9
    # In single precision, of weights that are those that were trained: bfloat16 numbers, every one.
    for weight in result.model().state_dict().values():
        assert weight.dtype == torch.float32
        assert torch.equal(weight, weight.bfloat16().float())


def test_tf32_is_float32_on_a_cpu():
    exact, rounded = (
        train_cohort([tiny_spec("attention", warmup=0.0, precision=precision)])[0] for precision in ("float32", "tf32")
    )
    assert exact.spec.run_id != rounded.spec.run_id
    assert exact.history == rounded.history
    assert all(torch.equal(rounded.weights[name], weight) for name, weight in exact.weights.items())


def test_every_member_has_its_own_weight_decay():
    spec = tiny_spec("attention", warmup=0.0, schedule="constant", lr=1e-2)
    specs = [spec.changed(train=spec.train.changed(weight_decay=decay)) for decay in (0.0, 0.5, 2.0)]
    together = train_cohort(specs, dtype=torch.float64)
    for member, own in zip(together, specs, strict=True):
        [alone] = train_cohort([own], dtype=torch.float64)
        for name, weight in alone.weights.items():
            torch.testing.assert_close(member.weights[name], weight, rtol=1e-8, atol=1e-10)


def test_decay_alone_shrinks_a_weight_that_no_loss_reaches():
    """A position that no document has gets no gradient: six steps leave (1 - rate * decay)^6 of it."""
    spec = tiny_spec("attention", warmup=0.0, schedule="constant", lr=1e-2)
    specs = [spec.changed(train=spec.train.changed(weight_decay=decay)) for decay in (0.0, 0.5, 2.0)]
    start = build_model(spec.model, spec.task.vocab_size, spec.seed).double().state_dict()
    [unreached] = [name for name in start if "position" in name]
    for member, decay in zip(train_cohort(specs, dtype=torch.float64), (0.0, 0.5, 2.0), strict=True):
        expected = start[unreached][-1] * (1 - 1e-2 * decay) ** 6
        torch.testing.assert_close(member.weights[unreached][-1], expected, rtol=1e-12, atol=0)
