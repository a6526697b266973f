"""A sweep from Python."""

import pytest

import mixerscope as ms
from mixerscope import runs
from mixerscope.errors import CorruptFile, MixerscopeError
from tests.sweep.conftest import BASE

SWEEP = ms.Sweep(base=BASE, vary={"model.architecture": ["attention", "based"], "seed": [0, 1]})


def test_it_gives_the_finished_runs_in_the_order_of_the_sweep(tmp_path, capsys):
    found = ms.run_sweep(SWEEP, tmp_path)
    assert [result.spec.run_id for result in found] == [run.run_id for run in SWEEP.runs()]
    assert "4 runs, 0 of them finished" in capsys.readouterr().err
    again = ms.run_sweep(SWEEP.runs()[1:], str(tmp_path), progress=False)
    assert [result.folder.path for result in again] == [result.folder.path for result in found[1:]]
    assert capsys.readouterr() == ("", "")


def test_what_there_is_no_time_for_is_not_among_the_results(tmp_path):
    assert ms.run_sweep(SWEEP, tmp_path, progress=False, stop_after=1e-6) == []


def test_a_cohort_that_fails_is_told_after_the_others_are_done(tmp_path, monkeypatch):
    make = runs.run_cohort

    def failing(specs, *rest):
        if specs[0].model.architecture == "attention":
            raise RuntimeError("the GPU fell off")
        return make(specs, *rest)

    monkeypatch.setattr(runs, "run_cohort", failing)
    with pytest.raises(MixerscopeError, match=r"^attention d=8 failed: RuntimeError: the GPU fell off"):
        ms.run_sweep(SWEEP, tmp_path, progress=False)
    assert len(ms.load_runs(tmp_path)) == 2


def test_a_damaged_run_is_neither_used_nor_made_anew(tmp_path):
    found = ms.run_sweep(SWEEP, tmp_path, progress=False)
    (found[0].folder.path / "curve.json").write_text("[]")
    with pytest.raises(CorruptFile, match=r"curve\.json"):
        ms.run_sweep(SWEEP, tmp_path, progress=False)
