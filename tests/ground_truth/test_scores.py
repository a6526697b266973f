"""What the report and the challenge count, on models and answers that are known."""

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from benchmarks.ground_truth import __main__ as report
from benchmarks.ground_truth import challenge, collection
from benchmarks.ground_truth.localise import Faithfulness, auroc, declared, faithfulness, pairs_of, scores
from benchmarks.ground_truth.plan import TASK, Cell, Size
from safetensors.torch import load_file, save_file

from mixerscope.errors import UserError
from mixerscope.model import build_model
from mixerscope.planted.models import direct_retriever, induction_transformer


@pytest.fixture
def handed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Three models in a collection of their own; their truth by name."""
    for name in ("MODELS", "ADMITTED", "CHALLENGE"):
        place = tmp_path / getattr(collection, name).name
        for module in (collection, challenge):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, place)
    source = tmp_path / "trained"
    source.mkdir()
    for seed, route in enumerate(("induction", "divider", "induction / divider")):
        cell = Cell("mamba", route)
        spec = cell.specs(Size(1, 1))[0]
        model = build_model(spec.model, TASK.vocab_size, seed)
        save_file(model.state_dict(), source / f"{cell.name}--0.safetensors")
        rows = [{"seed": 0, "admitted": True, "accuracy": 1.0}, {"seed": 1, "admitted": False, "accuracy": 0.4}]
        written = spec.model_dump(mode="json", include={"task", "model"})
        result = {"architecture": "mamba", "route": route, "spec": written, "models": rows}
        (source / f"{cell.name}.json").write_text(collection.json.dumps(result))
    assert collection.collect(source) == (3, 3)
    return {one.id: one.answer for one in collection.known()}


def test_a_collection_gives_back_its_models(handed: dict[str, str]):
    assert sorted(handed.values()) == ["divider", "induction", "mixture"]
    for one in collection.known():
        stored = load_file(collection.MODELS / f"{one.id}.safetensors")
        assert all(torch.equal(stored[name], w) for name, w in one.model().state_dict().items())


def test_what_was_taken_over_can_be_put_back(handed: dict[str, str], tmp_path: Path):
    before = {name: getattr(collection, name).read_bytes() for name in ("ADMITTED", "CHALLENGE")}
    assert collection.put_back(tmp_path / "back") == 3
    assert collection.collect(tmp_path / "back") == (3, 3)
    assert before == {name: getattr(collection, name).read_bytes() for name in before}


def test_what_is_handed_out_says_nothing_of_the_route(handed: dict[str, str], tmp_path: Path):
    assert challenge.hand_out(tmp_path / "out") == 3
    folders = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert folders == sorted(handed)
    texts = [path.read_text() for path in (tmp_path / "out").glob("*/spec.json")]
    assert len(set(texts)) == 1
    assert not any(route in collection.CHALLENGE.read_text() for route in handed.values())


def test_a_submission_is_scored_without_its_answers(handed: dict[str, str]):
    assert challenge.score(handed) == {"right": 3}
    assert challenge.score({}) == {"right": 1, "undetermined": 2}, "to name no route is right of a mixture"
    assert challenge.score(dict.fromkeys(handed, "induction")) == {"right": 1, "wrong": 2}
    assert challenge.last_line(Counter(right=1, wrong=2)) == "right 1, undetermined 0, wrong 2 of 3"


@pytest.mark.parametrize(("said", "why"), [({"x": "induction"}, "which is none of the 3"), (None, "is no answer")])
def test_a_submission_that_names_what_is_not_there_is_refused(
    said: dict[str, str] | None, why: str, handed: dict[str, str]
):
    with pytest.raises(UserError, match=why):
        challenge.score(dict.fromkeys(handed, "indution") if said is None else said)


@pytest.mark.parametrize(
    ("truth", "said", "want"),
    [
        ("induction", "induction", "right"),
        ("induction", "undetermined", "undetermined"),
        ("induction", "divider", "wrong"),
        ("mixture", "undetermined", "right"),
        ("mixture", "induction", "wrong"),
        ("pointer", "direct, first block", "wrong"),
        ("pointer", "undetermined", "right"),
    ],
)
def test_a_verdict_is_right_undetermined_or_wrong(truth: str, said: str, want: str):
    assert report.outcome(said, truth) == want


def test_planted_models_are_judged_by_their_route():
    assert report.judge(induction_transformer(TASK, 0), TASK) == "induction"
    assert report.judge(direct_retriever(TASK, 0, block=1, layers=2), TASK) == "direct, last block"


def test_the_bound_of_the_error_rate_is_that_of_clopper_and_pearson():
    assert report.upper_bound(0, 100) == pytest.approx(1 - 0.05 ** (1 / 100))
    assert report.upper_bound(1, 100) == pytest.approx(0.0466, abs=1e-4)
    assert report.upper_bound(3, 3) == pytest.approx(1.0)


def test_the_route_of_a_planted_model_scores_highest_and_alone_is_faithful():
    model, pairs = induction_transformer(TASK, 0), pairs_of(TASK)
    on, found = declared("induction"), scores(model, pairs)["exact patching"]
    assert auroc([(found[cell], on[cell]) for cell in on]) == 1.0
    curve = faithfulness(model, pairs, found)
    assert curve.curve == pytest.approx((0, 1, 1, 1, 1, 1, 1), abs=1e-3)
    backwards = faithfulness(model, pairs, {cell: -value for cell, value in found.items()})
    assert backwards.curve[:5] == pytest.approx((0, 0, 0, 0, 0), abs=1e-3)
    assert curve.cpr > 0.9 > 0.3 > backwards.cpr
    assert curve.cmd < 0.1 < 0.7 < backwards.cmd


def test_areas_under_a_curve_are_those_of_trapezia():
    curve = Faithfulness((0.0, 1.5, 1.0))
    assert curve.cpr == pytest.approx(1.0)
    assert curve.cmd == pytest.approx(0.5)


def test_auroc_counts_ties_half():
    assert auroc([(1.0, True), (1.0, False), (0.0, False)]) == 0.75


def test_the_recorded_report_is_of_the_models_that_are_kept_and_holds():
    rows = json.loads(report.REPORT.read_text())
    known = collection.known()
    assert [(row["id"], row["route"]) for row in rows] == [(one.id, one.route) for one in known]
    counts = Counter(row["outcome"] for row in rows)
    assert counts["wrong"] == 0
    assert counts["right"] >= 0.95 * len(rows)
    assert len({one.route for one in known}) >= 4
    assert len({one.architecture for one in known}) >= 4
    page = report.README.read_text()
    assert report.shown(page, rows) == page, "run python -m benchmarks.ground_truth"


@pytest.mark.parametrize("architecture", ["attention", "based"])
def test_models_that_are_kept_are_still_judged_as_recorded(architecture: str):
    [one, *_] = [one for one in collection.known() if one.architecture == architecture]
    assert report.judge(one.model(), one.task) == one.answer
