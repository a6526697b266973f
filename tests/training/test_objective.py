"""What is minimised is handed to the trainer from above: it takes any registered objective, for one model and many."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from mixerscope.errors import UserError
from mixerscope.model import Model, build_model
from mixerscope.randomness import stream
from mixerscope.registry import OBJECTIVES, register
from mixerscope.spec import RunSpec, parse
from mixerscope.tasks import UNSCORED, Batch
from mixerscope.training import Answer, Member, Objective, train_cohort
from mixerscope.training.head import head_loss
from mixerscope.training.schedule import rate_factor
from tests.conftest import tiny_spec


def losses_of(model: Model, rows: Tensor, read: Tensor, targets: Tensor) -> Tensor:
    """[b, q] cross-entropies, zero where nothing is asked; the plain way."""
    x = model.head_input(model.through_blocks(model.embed_rows(rows), read))
    logits = x @ model.token_embedding.weight.T
    found = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=UNSCORED, reduction="none")
    return found.view(targets.shape)


@register("objective", "test/weighted")
class Weighted(Objective):
    """Each document counts by its weight: 1, or `rest` where its answer is in the lower half of the values."""

    rest: float = 1.0

    def columns(self, documents: Batch) -> Mapping[str, Tensor]:
        low = documents.scored()[1][:, 0] < int(documents.tokens.max()) - 3
        return {"weight": torch.where(low, self.rest, 1.0).to(torch.float64), "pair": torch.ones(len(documents), 2, 3)}

    def loss(self, model: Model, rows: Tensor, read: Tensor, targets: Tensor, more: Mapping[str, Tensor]) -> Tensor:
        assert more["pair"].shape == (len(rows), 2, 3)
        weight = more["weight"].to(rows.dtype)[:, None].expand_as(targets)
        return (losses_of(model, rows, read, targets) * weight).sum() / weight.sum().clamp(min=1e-9)


@register("objective", "test/answer_and")
class AnswerAnd(Objective):
    """The answer's cross-entropy times a number that each document brings along."""

    def columns(self, documents: Batch) -> Mapping[str, Tensor]:
        return {"ones": torch.ones(len(documents))}

    def loss(self, model: Model, rows: Tensor, read: Tensor, targets: Tensor, more: Mapping[str, Tensor]) -> Tensor:
        x = model.head_input(model.through_blocks(model.embed_rows(rows), read))
        return head_loss(x.flatten(0, 1), model.token_embedding.weight, targets.flatten()) * more["ones"].mean()


@register("objective", "test/one_row")
class OneRow(Answer):
    """Brings along too little."""

    def columns(self, documents: Batch) -> Mapping[str, Tensor]:
        return {"weight": torch.ones(1)}


def spec_with(objective: object, seed: int = 0, lr: float = 1e-2, **train: object) -> RunSpec:
    settings = {"warmup": 0.0, "steps": 8, "documents": 20, "batch_size": 8, "weight_decay": 0.1, **train}
    return tiny_spec("attention", lr=lr, objective=objective, **settings).changed(seed=seed)


def cohort(objective: object, models: int) -> list[RunSpec]:
    return [spec_with(objective, seed, lr) for seed, lr in zip(range(models), (1e-2, 1e-3, 3e-2), strict=False)]


def assert_same(found: Member, want: Mapping[str, Tensor], **tolerance: float) -> None:
    for name, weight in want.items():
        torch.testing.assert_close(found.weights[name], weight, **tolerance)


@pytest.mark.parametrize("models", [1, 3])
def test_an_objective_of_ones_is_the_answer_bit_for_bit(models: int):
    usual, found = train_cohort(cohort(None, models)), train_cohort(cohort("test/answer_and", models))
    for one, other in zip(usual, found, strict=True):
        assert one.history == other.history
        assert one.spec.run_id != other.spec.run_id
        assert_same(other, one.weights, rtol=0, atol=0)


def by_hand(spec: RunSpec, rest: float) -> dict[str, Tensor]:
    """Torch's own AdamW and module; the weights of the documents looked up in the documents."""
    model = build_model(spec.model, spec.task.vocab_size, spec.seed).double()
    data = spec.task.sample(spec.train.documents, stream(spec.data_seed, "train"))
    weights = Weighted(rest=rest).columns(data)["weight"]
    optimiser = torch.optim.AdamW(model.parameters(), lr=spec.train.lr, weight_decay=0.1, eps=1e-8)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: rate_factor(spec.train, step))
    for step in range(spec.train.steps):
        at = [(step * spec.train.batch_size + i) % len(data) for i in range(spec.train.batch_size)]
        read, targets = data[torch.tensor(at)].scored()
        logits = model(data.tokens[at], read)
        losses = -torch.log_softmax(logits, -1).gather(-1, targets[..., None])[..., 0]
        loss = (losses * weights[at][:, None]).sum() / weights[at].sum() / targets.shape[1]
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return model.state_dict()


@pytest.mark.parametrize("models", [1, 3])
@pytest.mark.parametrize("rest", [0.0, 0.25])
def test_every_document_brings_its_weight_along(rest: float, models: int):
    """20 documents in batches of 8: a batch does not begin where the documents begin."""
    specs = cohort({"name": "test/weighted", "rest": rest}, models)
    for member in train_cohort(specs, dtype=torch.float64):
        assert_same(member, by_hand(member.spec, rest), rtol=1e-7, atol=1e-9)
        alike = by_hand(member.spec, rest=1.0)
        assert not torch.allclose(member.weights["token_embedding.weight"], alike["token_embedding.weight"])


def test_documents_of_weight_zero_do_not_matter(monkeypatch):
    spec = spec_with({"name": "test/weighted", "rest": 0.0})
    task = type(spec.task)
    sample = task.sample

    def train() -> Member:
        return train_cohort([spec], dtype=torch.float64)[0]

    def others(self, n, rng, split="train"):
        batch = sample(self, n, rng, split)
        if split != "train":
            return batch
        ignored = Weighted(rest=0.0).columns(batch)["weight"] == 0
        assert 0 < int(ignored.sum()) < n
        tokens = batch.tokens.clone()
        tokens[ignored, 1:3] = tokens[ignored, 3:5]  # another document, the same answer
        assert not torch.equal(tokens, batch.tokens)
        return Batch(tokens, batch.targets, batch.roles, batch.labels)

    plain = train()
    monkeypatch.setattr(task, "sample", others)
    assert_same(train(), plain.weights, rtol=1e-9, atol=1e-12)


def test_training_says_the_loss_of_its_objective():
    spec = spec_with({"name": "test/weighted", "rest": 0.5}, steps=1, eval_every=1)
    [member] = train_cohort([spec], dtype=torch.float64)
    model = build_model(spec.model, spec.task.vocab_size, spec.seed).double()
    data = spec.task.sample(spec.train.documents, stream(spec.data_seed, "train"))
    read, targets = data[slice(0, 8)].scored()
    weight = Weighted(rest=0.5).columns(data)["weight"][:8]
    losses = losses_of(model, model.token_embedding(data.tokens[:8]), read, targets)
    want = ((losses * weight[:, None]).sum() / weight.sum() / targets.shape[1]).item()
    assert member.history[-1].loss == pytest.approx(want, rel=1e-9)


def test_a_column_of_another_length_is_refused():
    with pytest.raises(UserError, match="the objective's column 'weight' has 1 rows for 20 documents"):
        train_cohort([spec_with("test/one_row")])


def test_the_objective_is_part_of_what_names_a_run():
    def run_id(objective: object) -> str:
        return spec_with(objective).run_id

    usual = spec_with(None)
    for written in ("answer", {"name": "answer"}, Answer()):
        assert spec_with(written) == usual, "the default written out is the default left out"
        assert run_id(written) == usual.run_id
    plain = run_id("test/weighted")
    assert plain != usual.run_id
    for same in ({"name": "test/weighted"}, {"name": "test/weighted", "rest": 1.0}, Weighted()):
        assert run_id(same) == plain
    assert len({usual.run_id, plain, run_id(Weighted(rest=0.5)), run_id("test/answer_and")}) == 4


def test_an_objective_comes_back_from_its_spec():
    spec = spec_with(Weighted(rest=0.5))
    written = spec.model_dump(mode="json")
    assert written["train"]["objective"] == {"name": "test/weighted", "rest": 0.5}
    again = parse(RunSpec, written)
    assert again == spec
    assert again.run_id == spec.run_id
    assert again.train.objective == Weighted(rest=0.5)
    assert spec.identity["train"]["settings"]["objective"]["code"] == OBJECTIVES.code("test/weighted")


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ("test/weigthed", "no objective named 'test/weigthed'; did you mean 'test/weighted'"),
        ({"rest": 1.0}, "an objective needs a 'name'"),
        ({"name": "test/weighted", "rset": 1.0}, "did you mean 'rest'"),
        (3, "an objective is a name or an object with a 'name', got 3"),
    ],
)
def test_wrong_objectives_are_refused(objective: object, message: str):
    written = {**tiny_spec().model_dump(mode="json"), "train": {"objective": objective}}
    with pytest.raises(UserError) as caught:
        parse(RunSpec, written)
    assert message in str(caught.value)


def test_members_of_a_cohort_minimise_the_same():
    with pytest.raises(UserError, match="may differ in seed"):
        train_cohort([spec_with(None), spec_with("test/weighted")])
