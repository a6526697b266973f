"""Another question of a trained model: stages on what is there, and judging again."""

import pytest

from mixerscope.artifacts import Weights
from mixerscope.errors import SelfTestFailed, UserError
from mixerscope.results import load_run
from mixerscope.runs import redo, run, run_cohort
from mixerscope.stages.judge import Judge
from tests.conftest import with_stage
from tests.runs.folders import contents, copied, refuse


def test_another_question_is_measured_on_the_weights_that_are_there(finished, tmp_path, monkeypatch):
    result = copied(finished, tmp_path)
    before = contents(result.folder)
    monkeypatch.setattr("mixerscope.runs.train_cohort", refuse)
    other = with_stage(finished.spec, "patch", slots=("value",))
    asked = run(other, tmp_path, progress=False)
    assert asked.folder.path == result.folder.path
    assert asked.effects.slots == ("value",)
    assert [verdict.slot for verdict in asked.verdicts] == ["value"]
    after = contents(result.folder)
    assert {name: after[name] for name in before} == before, "what was there is as it was"
    assert finished.effects.slots == ("key",)


def test_without_weights_another_question_is_refused_in_one_sentence(finished, tmp_path):
    result = copied(finished, tmp_path)
    result.folder.drop(Weights.file)
    with pytest.raises(UserError, match=r"without keeping its weights.*--fresh.*--keep-weights"):
        run(with_stage(finished.spec, "patch", slots=("value",)), tmp_path, progress=False)
    assert run(finished.spec, tmp_path, progress=False).verdicts == finished.verdicts
    again = run(with_stage(finished.spec, "judge", rules={"carries": 0.7}), tmp_path, progress=False)
    assert again.verdicts, "judging needs no model"


def test_weights_that_someone_kept_are_not_dropped_by_a_call_that_keeps_none(finished, tmp_path):
    copied(finished, tmp_path)
    other = with_stage(finished.spec, "patch", slots=("value",))
    [result] = run_cohort([other], tmp_path, keep_weights=False)
    assert result.model() is not None


def test_of_several_analyses_the_usual_one_is_taken_else_the_last(finished, tmp_path):
    result = copied(finished, tmp_path)
    for carries in (0.6, 0.7, 0.8):
        last = redo(result, "judge", Judge(rules={"carries": carries})).stages["judge"].id
    assert load_run(result.folder.path).stages["judge"].id == finished.stages["judge"].id
    result.stages["judge"].folder.discard()
    assert load_run(result.folder.path).stages["judge"].id == last
    chosen = load_run(result.folder.path, {"judge": last})
    assert chosen.effects.slots == ("key",), "what an analysis reads comes with it"


def test_training_afresh_discards_every_analysis_of_the_old_model(finished, tmp_path):
    copied(finished, tmp_path)
    other = run(with_stage(finished.spec, "patch", slots=("value",)), tmp_path, progress=False)
    folder = other.stages["patch"].folder.path
    result = run(finished.spec, tmp_path, fresh=True, progress=False)
    assert not folder.exists()
    assert contents(result.folder) == contents(finished.folder)


def test_judging_again_is_byte_identical_and_builds_no_model(finished, tmp_path, monkeypatch):
    result = copied(finished, tmp_path)
    before = contents(result.folder)
    for name in ("build_model", "trained_models", "train_cohort"):
        monkeypatch.setattr(f"mixerscope.runs.{name}", refuse)
    assert redo(result, "judge", Judge(), fresh=True).verdicts == finished.verdicts
    assert contents(result.folder) == before
    other = redo(result, "judge", Judge(rules={"carries": 0.7}))
    assert other.stages["judge"].record.settings["rules"]["carries"] == 0.7
    assert load_run(result.folder.path).stages["judge"].id == finished.stages["judge"].id, "the usual one, unasked"


def test_a_stage_that_needs_the_model_is_not_worked_out_from_stored_results(finished):
    with pytest.raises(UserError, match="needs the model"):
        redo(finished, "patch", finished.spec.stages["patch"])


def unpatchable(monkeypatch) -> None:
    def failing(models, *_: object, **__: object):
        return [SelfTestFailed("site 'embed' cannot be trusted: it leaks") for _ in models]

    monkeypatch.setattr("mixerscope.stages.patch.grids_or_failures", failing)


def test_a_model_that_cannot_be_patched_keeps_its_training_and_says_why(finished, tmp_path, monkeypatch):
    unpatchable(monkeypatch)
    result = run(finished.spec, tmp_path, progress=False)
    assert result.reason == "the model cannot be patched: site 'embed' cannot be trusted: it leaks"
    assert result.status == finished.status
    assert result.curve == finished.curve
    assert result.scores.accuracy == finished.scores.accuracy, "accuracy needs no patching"
    with pytest.raises(UserError, match="cannot be patched"):
        _ = result.verdicts
    monkeypatch.setattr("mixerscope.runs.train_cohort", refuse)
    monkeypatch.setattr("mixerscope.stages.patch.grids_or_failures", refuse)
    assert run(finished.spec, tmp_path, progress=False).reason == result.reason, "it is not tried again"


def test_edits_other_than_the_patch_can_be_asked_for(finished, tmp_path):
    copied(finished, tmp_path)
    result = run(with_stage(finished.spec, "patch", edits=("swap", "zero", "mean")), tmp_path, progress=False)
    assert {cell.edit for cell in result.effects.cells} == {"swap", "zero", "mean"}
    assert result.verdicts == finished.verdicts, "a verdict reads the patch"
