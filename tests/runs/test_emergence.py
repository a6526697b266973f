"""How a mechanism came about: a stage that watches training."""

import pytest

from mixerscope.artifacts.effects import SHARE
from mixerscope.errors import UserError
from mixerscope.interventions import boundary_sites, make_pairs
from mixerscope.runs import run
from tests.conftest import tiny_spec, with_stage
from tests.runs.folders import contents, copied


def test_emergence_outlives_a_kill_at_the_end_of_training(finished, tmp_path, monkeypatch):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    spec = with_stage(finished.spec, "emergence", looks=4, documents=8)
    with monkeypatch.context() as patch:
        patch.setattr("mixerscope.runs._Making._write_training", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(spec, tmp_path, progress=False)
    result = run(spec, tmp_path, progress=False)
    undisturbed = run(spec, tmp_path / "undisturbed", progress=False)
    assert contents(result.folder) == contents(undisturbed.folder)


def test_emergence_asked_for_later_means_training_again(finished, tmp_path):
    copied(finished, tmp_path)
    spec = with_stage(finished.spec, "emergence", looks=4, documents=8)
    with pytest.raises(UserError, match=r"measured while training.*means training again, with --fresh"):
        run(spec, tmp_path, progress=False)
    assert run(spec, tmp_path, fresh=True, progress=False).emergence.points


def with_emergence(spec, looks: int):
    return with_stage(spec, "emergence", looks=looks, documents=8)


def test_emergence_is_measured_at_log_spaced_steps_and_changes_nothing_else(finished, tmp_path):
    with pytest.raises(UserError, match="did not measure emergence"):
        _ = finished.emergence
    result = run(with_emergence(finished.spec, 4), tmp_path, progress=False)
    points = result.emergence.points
    assert sorted({point.step for point in points}) == [0, 1, 2, 6]
    pairs = make_pairs(finished.task, finished.spec.stages["patch"], finished.spec.data_seed)
    at_the_end = [point for point in points if point.step == 6]
    assert len(at_the_end) == len(boundary_sites(finished.model())) * len(pairs.original.roles)
    assert all((point.share is None) == bool(point.reason) for point in points)
    assert result.run_id == finished.run_id, "it changes no weight, so it is no other training"
    found, before = contents(result.folder), contents(finished.folder)
    assert {name: found[name] for name in before} == before


def test_the_emergence_of_a_learned_model_ends_in_the_shares_of_its_table(tmp_path):
    spec = tiny_spec("attention", steps=300, batch_size=32, documents=640, lr=1e-2, eval_every=300)
    spec = spec.changed(
        task=spec.task.changed(num_pairs=2, num_keys=3, num_values=3), model=spec.model.changed(init="small_model")
    )
    spec = with_stage(with_stage(spec, "patch", documents=64), "emergence", looks=1, documents=64)
    result = run(spec, tmp_path, progress=False)
    points = result.emergence.points
    table = {
        (r["slot"], r["site"], r["role"]): r
        for r in result.effects.rows()
        if r["metric"] == SHARE and r["direction"] == "restore"
    }
    assert points
    for point in points:
        assert point.step == 300
        assert point.share == pytest.approx(table[point.slot, point.site, point.role]["value"], abs=1e-6)
    assert max(point.share for point in points) > 0.9
    assert points[0].accuracy == pytest.approx(result.scores.accuracy.value)


def test_emergence_of_a_diverging_run_says_so(tmp_path):
    spec = tiny_spec("attention", lr=1e30, schedule="constant", warmup=0.0)
    points = run(with_emergence(spec, 3), tmp_path, progress=False).emergence.points
    assert [point.step for point in points if point.site is None] != []
    assert all(point.reason for point in points if point.share is None)
