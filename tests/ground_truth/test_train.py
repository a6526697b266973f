"""Training by route, on two steps: what is stacked, what is kept, what is tried again."""

import json
from pathlib import Path

import pytest
import torch
from benchmarks.ground_truth import train
from benchmarks.ground_truth.admit import Admission
from benchmarks.ground_truth.plan import LEARNERS, MIXTURES, TASK, Cell, Size, cells
from benchmarks.ground_truth.routes import ROUTES

from mixerscope import build_model, train_cohort
from mixerscope.machine import CPU

TINY = Size(steps=2, batch=8, rates=1)


def numbers(interchange: float) -> Admission:
    return Admission(1.0, interchange, broken=1.0, off_route=0.0, single=0.0, details={})


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["attention", "mamba"])
def test_a_stacked_model_learns_what_it_learns_alone(learner: str):
    specs = Cell(learner, "induction / one step later").specs(TINY, seeds=(0, 1))
    together = train_cohort(specs, dtype=torch.float64)
    for spec, member in zip(specs, together, strict=True):
        [alone] = train_cohort([spec], dtype=torch.float64)
        for name, weight in alone.weights.items():
            torch.testing.assert_close(member.weights[name], weight, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("learner", LEARNERS)
def test_every_architecture_has_two_blocks_and_fits_the_documents(learner: str):
    spec = Cell(learner, "induction").specs(TINY)[0]
    model = build_model(spec.model, TASK.vocab_size, 0)
    assert len(model.layers()) == 2
    assert model(torch.zeros(1, TASK.max_length, dtype=torch.int64)).isfinite().all()


def test_the_model_says_nothing_of_the_route():
    for learner in LEARNERS:
        specs = [Cell(learner, route).specs(TINY)[0] for route in (*ROUTES, *MIXTURES)]
        assert len({spec.model.model_dump_json() for spec in specs}) == 1


def test_mixtures_come_after_their_parts_and_each_cell_once():
    plan = cells()
    assert len(set(plan)) == len(plan) == len(LEARNERS) * (len(ROUTES) + len(MIXTURES))
    kinds = [cell.is_mixture for cell in plan]
    assert kinds == sorted(kinds)


@pytest.mark.slow
def test_what_is_not_admitted_leaves_numbers_and_no_weights(tmp_path: Path):
    cell = Cell("attention", "induction")
    assert train.admitted_before(cell, tmp_path) is None
    line = train.learn(cell, tmp_path, CPU, TINY, [0, 1])
    assert "attention--induction: 0 of 2 admitted" in line
    assert [path.name for path in tmp_path.iterdir()] == ["attention--induction.json"]
    rows = train.admitted_before(cell, tmp_path)
    assert rows is not None
    assert [row["admitted"] for row in rows.values()] == [False, False]


def test_only_seeds_that_were_not_admitted_are_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cell = Cell("attention", "induction")
    monkeypatch.setattr(train, "admission", lambda *a, **k: numbers(0.99))
    train.learn(cell, tmp_path, CPU, TINY, [0])
    kept = (tmp_path / "attention--induction--0.safetensors").read_bytes()
    monkeypatch.setattr(train, "admission", lambda *a, **k: numbers(0.5))
    line = train.learn(cell, tmp_path, CPU, Size(steps=3, batch=8, rates=1), [0, 1])
    assert "1 of 2 admitted" in line
    assert (tmp_path / "attention--induction--0.safetensors").read_bytes() == kept
    rows = json.loads((tmp_path / "attention--induction.json").read_text())["models"]
    assert [(row["seed"], row["steps"], row["interchange"]) for row in rows] == [(0, 2, 0.99), (1, 3, 0.5)]
