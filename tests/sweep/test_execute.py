"""Running a plan: results, failures, deadlines, interrupts."""

import json
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mixerscope import runs
from mixerscope.artifacts import Timing
from mixerscope.errors import CorruptFile, UserError
from mixerscope.machine import CPU, Machine
from mixerscope.progress import Cancelled
from mixerscope.store import find_runs
from mixerscope.sweep import forecast as forecast_module
from mixerscope.sweep.best import finished_runs
from mixerscope.sweep.cost import Calibration
from mixerscope.sweep.device import with_its_share
from mixerscope.sweep.execute import execute
from mixerscope.sweep.listening import Listener
from mixerscope.sweep.plan import Job, make_plan
from mixerscope.sweep.source import load_runs
from mixerscope.sweep.table import read_rows
from mixerscope.sweep.text import ended_line, outcome_lines
from tests.sweep.conftest import BASE


def contents(root: Path) -> dict[str, bytes]:
    """Every file of every run folder that is the same for equal runs."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for folder in find_runs(root)
        for path in folder.path.rglob("*")
        if path.is_file() and path.name != "timing.json"
    }


def carry_out(specs, root, *, in_flight=1, **options):
    return execute(make_plan(specs, root, CPU, in_flight=in_flight), root, CPU, **options)


def test_every_run_gets_its_folder_whatever_is_in_flight_with_it(sweep_file, tmp_path):
    specs = load_runs(str(sweep_file({"model.architecture": ["attention", "based", "base_conv"], "seed": [0, 1]})))
    outcome = carry_out(specs, tmp_path / "one")
    together = carry_out(specs, tmp_path / "three", in_flight=3)
    assert contents(tmp_path / "one") == contents(tmp_path / "three")
    assert len(find_runs(tmp_path / "one")) == 6
    for rows in (outcome.cohorts, together.cohorts):
        assert sorted((row.architecture, row.ending, row.finished, row.diverged) for row in rows) == [
            (name, "finished", 2, 0) for name in ("attention", "base_conv", "based")
        ]
    kept = read_rows(tmp_path / "one")
    assert [row["kind"] for row in kept] == ["cohort", "cohort", "cohort", "job"]
    assert kept[-1]["wall_s"] >= sum(row["wall_s"] for row in kept[:3])
    assert sorted(run for row in kept[:3] for run in row["runs"]) == sorted(spec.run_id for spec in specs)
    again = carry_out(specs, tmp_path / "one")
    assert (again.cohorts, again.jobs) == ([], [])


def test_the_next_job_does_not_wait_for_the_last_of_the_one_before(sweep_file, tmp_path, monkeypatch):
    specs = load_runs(str(sweep_file({"model.architecture": ["attention", "based", "base_conv"], "seed": [0]})))
    plan = make_plan(specs, tmp_path, CPU, in_flight=2)
    plan = replace(plan, jobs=tuple(Job(i, (cohort,), 1.0) for i, cohort in enumerate(plan.cohorts, 1)))
    both, real = threading.Barrier(2, timeout=60), runs.run_cohort

    def meeting(cohort, *arguments):
        if cohort != plan.cohorts[2].runs:
            both.wait()
        return real(cohort, *arguments)

    monkeypatch.setattr(runs, "run_cohort", meeting)
    began = time.monotonic()
    outcome = execute(plan, tmp_path, CPU)
    took = time.monotonic() - began
    assert [row.ending for row in outcome.cohorts] == ["finished"] * 3
    assert sorted(row.job for row in outcome.jobs) == [1, 2, 3]
    assert sum(row.wall_s for row in outcome.jobs) <= took, "times of jobs add up"


def test_what_goes_wrong_outside_a_cohort_is_raised_and_not_waited_for(sweep_file, tmp_path, monkeypatch):
    def damaged(*_):
        raise CorruptFile("the table is damaged")

    monkeypatch.setattr("mixerscope.sweep.execute.cohort_row", damaged)
    with pytest.raises(CorruptFile, match="the table is damaged"):
        carry_out(load_runs(str(sweep_file({"seed": [0]}))), tmp_path / "out")


def test_weights_are_kept_only_on_request(sweep_file, tmp_path):
    specs = load_runs(str(sweep_file({"seed": [0]})))
    carry_out(specs, tmp_path / "without")
    carry_out(specs, tmp_path / "with", keep_weights=True)
    assert list((tmp_path / "without").glob("*/weights.safetensors")) == []
    assert len(list((tmp_path / "with").glob("*/weights.safetensors"))) == 1


def test_a_cohort_that_fails_does_not_stop_the_others(sweep_file, tmp_path, monkeypatch):
    specs = load_runs(str(sweep_file({"model.architecture": ["attention", "based"], "seed": [0, 1]})))
    real = runs.run_cohort

    def failing(cohort, *arguments):
        if cohort[0].model.architecture == "based":
            raise RuntimeError("the GPU fell off")
        return real(cohort, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(runs, "run_cohort", failing)
        outcome = carry_out(specs, tmp_path)
    assert [row.architecture for row in outcome.failed] == ["based"]
    assert outcome.failed[0].reason.startswith("RuntimeError: the GPU fell off (test_execute.py:")
    assert [run.path.name.partition("-")[0] for run in find_runs(tmp_path)] == ["attention"] * 2
    [row] = [row for row in read_rows(tmp_path) if row["kind"] == "cohort" and row["ending"] == "failed"]
    assert row["runs"] == [spec.run_id for spec in specs if spec.model.architecture == "based"]
    assert [row.ending for row in carry_out(specs, tmp_path).cohorts] == ["finished"], "the next call tries again"


def test_a_run_that_is_damaged_in_mid_sweep_fails_its_cohort_and_no_other(sweep_file, tmp_path):
    specs = load_runs(str(sweep_file({"model.architecture": ["attention", "based"], "seed": [0, 1]})))
    plan = make_plan(specs, tmp_path, CPU)
    damaged = runs.run_folder(specs[0], tmp_path)
    damaged.path.mkdir()
    (damaged.path / "seal.json").write_text('{"kind": "tra')
    outcome = execute(plan, tmp_path, CPU)
    assert {row.architecture: row.ending for row in outcome.cohorts} == {"attention": "failed", "based": "finished"}
    assert outcome.failed[0].reason.startswith(f"{damaged.path}/seal.json: this is no Seal")
    assert [run.run_id for run in finished_runs(specs, tmp_path)] == [spec.run_id for spec in specs[2:]]
    plan = make_plan(specs, tmp_path, CPU)
    assert set(plan.damaged) == {specs[0].run_id}
    assert [cohort.runs for cohort in plan.cohorts] == [(specs[1],)], "the others of its cohort are made"


def test_diverged_members_are_counted(sweep_file, tmp_path):
    vary = {"train.lr": [1e-3, 1e30], "train.warmup": [0], "train.steps": [9]}
    [row] = carry_out(load_runs(str(sweep_file(vary))), tmp_path).cohorts
    assert (row.ending, row.finished, row.diverged, row.unpatched) == ("finished", 1, 1, 0)
    assert ended_line(row).endswith(", 1 diverged")


def test_a_model_that_cannot_be_patched_is_counted_and_fails_nobody(sweep_file, tmp_path, unpatchable):
    unpatchable(1)
    specs = load_runs(str(sweep_file({"seed": [0, 1, 2]})))
    outcome = carry_out(specs, tmp_path)
    [row] = outcome.cohorts
    assert (row.ending, row.finished, row.diverged, row.unpatched) == ("finished", 3, 0, 1)
    assert outcome.failed == []
    assert ended_line(row).endswith(", 1 unpatched")
    assert outcome_lines(outcome, [])[1].endswith(" finished, 1 unpatched")
    assert make_plan(specs, tmp_path, CPU).cohorts == [], "there is nothing more to be had of it"


def test_stages_that_are_missing_are_made_without_training(sweep_file, tmp_path, monkeypatch):
    vary = {"train.lr": [1e-3, 1e-2], "train.steps": [100]}
    bare = load_runs(str(sweep_file(vary, base={**BASE, "stages": {}}, name="bare.json")))
    wanted = load_runs(str(sweep_file(vary)))
    carry_out(bare[:1], tmp_path, keep_weights=True)
    plan = make_plan(wanted, tmp_path, CPU)
    assert [(cohort.runs, cohort.trained) for cohort in plan.cohorts] == [((wanted[1],), False), ((wanted[0],), True)]
    assert plan.estimator.alone(plan.cohorts[1]) < plan.estimator.alone(plan.cohorts[0])
    training = runs.train_cohort

    def noting(specs, *arguments):
        trained.extend(specs)
        return training(specs, *arguments)

    trained: list = []
    monkeypatch.setattr(runs, "train_cohort", noting)
    rows = execute(plan, tmp_path, CPU).cohorts
    assert trained == [wanted[1]]
    assert [(row.steps, row.finished, row.alone_s is None) for row in rows] == [(100, 1, False), (0, 1, True)]
    assert ended_line(rows[1]).startswith("attention d=8 x1, trained before: finished after ")
    assert list(make_plan(wanted, tmp_path, CPU).finished) == wanted


def test_seconds_of_a_cohort_add_up_and_are_those_of_its_runs(sweep_file, tmp_path):
    specs = load_runs(str(sweep_file({"seed": [0, 1]})))
    [row] = carry_out(specs, tmp_path).cohorts
    timing = Timing.from_bytes((runs.run_folder(specs[0], tmp_path).path / "timing.json").read_bytes())
    assert row.build_s == timing.build_seconds
    assert row.train_s == pytest.approx(timing.seconds - timing.build_seconds, rel=0.01)
    assert row.steps_per_s == timing.steps_per_second
    assert row.build_s + row.train_s + row.stages_s == pytest.approx(row.wall_s)
    assert row.stages_s > 0
    assert {"patch", "judge"} <= set(row.by_stage)
    assert 0 < sum(row.by_stage.values()) <= row.stages_s + 0.1


@pytest.fixture
def hasty(monkeypatch):
    """Rates count after a blink, so that deadlines can be tested in a blink."""
    monkeypatch.setattr(forecast_module, "MEASURED_AFTER", 0.1)
    monkeypatch.setattr(forecast_module, "SAMPLED_EVERY", 0.02)


def test_what_cannot_end_in_time_by_the_estimate_is_not_started(sweep_file, tmp_path, monkeypatch):
    specs = load_runs(str(sweep_file({"model.architecture": ["attention", "based"], "seed": [0, 1]})))
    slow = {"attention": 1e6, "based": 1e-6}
    monkeypatch.setattr(Calibration, "factor", lambda self, architecture: slow[architecture])
    outcome = carry_out(specs, tmp_path, stop_after=600)
    assert [row.architecture for row in outcome.cohorts] == ["based"], "a smaller one takes its place"
    assert [cohort.first.model.architecture for cohort in outcome.left] == ["attention"]
    assert len(find_runs(tmp_path)) == 2
    with pytest.raises(UserError, match="positive"):
        carry_out(specs, tmp_path, stop_after=0)


def test_what_turns_out_too_slow_is_left_clean_for_the_next_call(sweep_file, tmp_path, monkeypatch, hasty):
    specs = load_runs(str(sweep_file({"seed": [0, 1], "train.steps": [60]})))
    real = runs.run_cohort

    def slow(cohort, root, progress, *arguments):
        def slowly(*news):
            time.sleep(0.1)
            return progress(*news)

        return real(cohort, root, slowly, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Calibration, "factor", lambda *_: 1e-9)
        patch.setattr(runs, "run_cohort", slow)
        outcome = carry_out(specs, tmp_path / "hurried", stop_after=2.0)
    [row] = outcome.cohorts
    assert row.ending == "out of time"
    assert "too late" in row.reason
    assert row.alone_s > row.wall_s, "what it would have taken in all"
    assert [cohort.runs for cohort in outcome.left] == [tuple(specs)]
    assert make_plan(specs, tmp_path / "hurried", CPU).finished == ()
    carry_out(specs, tmp_path / "hurried")
    carry_out(specs, tmp_path / "calm")
    assert contents(tmp_path / "hurried") == contents(tmp_path / "calm")


def test_an_interrupt_gives_up_what_is_in_flight_and_keeps_what_is_finished(sweep_file, tmp_path, monkeypatch):
    vary = {"model.architecture": ["attention", "based", "mamba"], "seed": [0]}
    specs = load_runs(str(sweep_file(vary)))
    seen = threading.Event()

    class Interrupting(Listener):
        def __init__(self):
            self.ended = []

        def cohort_started(self, cohort):
            if self.ended:
                assert seen.wait(10)
                raise KeyboardInterrupt

        def progress(self, cohort, stage, done, total, note):
            if stage == "train":
                seen.set()

        def cohort_ended(self, cohort, row):
            self.ended.append(row)

    real = runs.run_cohort

    def unhurried(cohort, root, progress, *arguments):
        """The first to be started ends, the second goes on until it is told to stop."""
        if cohort[0].model.architecture == first:
            return real(cohort, root, progress, *arguments)
        give_up_at = time.monotonic() + 30
        while time.monotonic() < give_up_at:
            if (answer := progress("train", 1, 10, "")) is not None:
                raise Cancelled(answer)
            time.sleep(0.01)
        raise AssertionError("was not told to stop")

    plan = make_plan(specs, tmp_path, CPU, in_flight=2)
    first = plan.cohorts[0].first.model.architecture
    listener = Interrupting()
    with monkeypatch.context() as patch:
        patch.setattr(runs, "run_cohort", unhurried)
        with pytest.raises(KeyboardInterrupt):
            execute(plan, tmp_path, CPU, listener=listener)
    assert [row.ending for row in listener.ended] == ["finished", "interrupted"]
    assert len(find_runs(tmp_path)) == 1
    assert [row["kind"] for row in read_rows(tmp_path)] == ["cohort", "cohort", "job"]
    assert len(carry_out(specs, tmp_path).cohorts) == 2


def test_the_table_of_another_kind_is_refused(sweep_file, tmp_path):
    (tmp_path / "sweep.jsonl").write_text(json.dumps({"mine": 1}) + "\n")
    with pytest.raises(Exception, match="not a table of cohorts"):
        make_plan(load_runs(str(sweep_file())), tmp_path, CPU)


def test_cohorts_in_flight_share_the_memory_of_a_gpu(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (1, 100 * 2**30))
    assert with_its_share(Machine("cuda"), 4).memory_gib == pytest.approx(100 * 0.85 / 4)
    assert with_its_share(Machine("cuda", memory_gib=3.0), 4).memory_gib == 3.0
    assert with_its_share(CPU, 4) == CPU
