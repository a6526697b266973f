"""Jobs, estimates, and what is left of a sweep."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

import mixerscope as ms
from mixerscope import runs
from mixerscope.errors import UserError
from mixerscope.experiments.paper.sweeps import Choice, load_figure, runs_of
from mixerscope.machine import CPU, Machine
from mixerscope.registry import STAGES
from mixerscope.stages import Stage
from mixerscope.sweep.cohorts import group
from mixerscope.sweep.cost import AHEAD_SECONDS, GPU, Calibration, Timed, estimate, gain
from mixerscope.sweep.execute import execute
from mixerscope.sweep.plan import make_plan
from mixerscope.sweep.source import load_runs
from mixerscope.sweep.table import Conditions, timed_rows
from mixerscope.sweep.text import plan_lines
from tests.conftest import with_stage
from tests.sweep.conftest import BASE


@pytest.fixture
def gpu(monkeypatch):
    """A machine to plan for; nothing is run on it."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda _: "a GPU")
    return Machine("cuda", compile=True)


@pytest.fixture(scope="module")
def figure3():
    return load_runs("figure3")


def test_jobs_keep_the_limit_and_lose_nothing(figure3, gpu, tmp_path):
    plan = make_plan(figure3, tmp_path, gpu)
    assert len(plan.jobs) > 2
    assert sorted(cohort.id for cohort in plan.cohorts) == sorted(cohort.id for cohort in group(figure3))
    for job in plan.jobs:
        assert job.seconds <= 480
        assert job.seconds >= max(plan.estimator.alone(cohort) for cohort in job.cohorts)
        alone = [plan.estimator.alone(cohort) for cohort in job.cohorts]
        assert alone == sorted(alone, reverse=True)
    assert len(make_plan(figure3, tmp_path, gpu, job_seconds=3 * 480).jobs) < len(plan.jobs)


def test_one_precision_per_job(gpu, tmp_path):
    vary = {"train.precision": ["tf32", "float32"], "model.width": [8, 16], "train.lr": [1e-3, 1e-2]}
    plan = make_plan(ms.Sweep(base=BASE, vary=vary).runs(), tmp_path, gpu)
    assert [job.precision for job in plan.jobs] == ["float32", "tf32"]
    assert all(cohort.precision == job.precision for job in plan.jobs for cohort in job.cohorts)


def test_cohorts_longer_than_a_job_have_jobs_of_their_own(figure3, gpu, tmp_path):
    plan = make_plan(figure3, tmp_path, gpu, job_seconds=150)
    alone = {cohort.id: plan.estimator.alone(cohort) for cohort in plan.cohorts}
    long = [job for job in plan.jobs if job.seconds > 150]
    assert sorted(cohort.id for job in long for cohort in job.cohorts) == sorted(
        c for c in alone if alone[c] + AHEAD_SECONDS > 150
    )
    assert {job.seconds <= max(alone.values()) + AHEAD_SECONDS for job in long} == {True}
    assert sum(len(job.cohorts) for job in plan.jobs) == len(alone) == 35
    hopeless = make_plan(figure3, tmp_path, gpu, job_seconds=1)
    assert max(len(job.cohorts) for job in hopeless.jobs) > 1, "what is too long anyway is not made to wait in line"


def test_cohorts_of_two_tasks_are_told_apart_by_the_task_and_not_by_its_settings():
    """Recall has no grammar and treecall no pairs: neither says anything."""
    choice = Choice(widths=(32,), only=("attention", "based"))
    runs = [run for name in ("fig3", "fig7") for run in runs_of(load_figure(name), choice)]
    differ = ("eval_every=1000 steps=50016 x21", "eval_every=2000 steps=100032 x15")
    assert [str(cohort) for cohort in group(runs)] == [
        f"{name} task={task} d=32 {more}"
        for task, more in zip(("ar", "atr"), differ, strict=True)
        for name in ("attention", "based")
    ]


def test_estimates_agree_with_the_rates_they_come_from(figure3, gpu):
    """Steps per second of 7 and 35 stacked models, TF32, compiled, as measured."""
    results = Path(__file__).parents[2] / "benchmarks" / "results"
    for file, seeds in (("no_loops", [0]), ("stacks_of_35", [0, 1, 2, 3, 4])):
        rows = json.loads((results / f"training_cuda_tf32_compiled_{file}.json").read_text())["rows"]
        measured = {(row["architecture"], row["width"]): row["steps_per_s"] for row in rows}
        assert len(measured) >= 7
        runs = [run.changed(seed=seed) for run in load_runs("figure3", {"train.precision": "tf32"}) for seed in seeds]
        for cohort in group(runs):
            rate = measured.get((cohort.first.model.architecture, cohort.first.model.width))
            if rate is not None:
                assert cohort.first.train.steps / estimate(cohort, gpu).train == pytest.approx(rate, rel=0.2)
    assert {cohort.first.model.architecture for cohort in group(figure3)} == set(GPU)


def test_estimates_of_treecall_agree_with_what_was_measured_there(gpu):
    """Its batches have two parts, and documents of up to 103 tokens."""
    results = Path(__file__).parents[2] / "benchmarks" / "results"
    rows = json.loads((results / "training_cuda_tf32_compiled_stacks_of_15_treecall.json").read_text())["rows"]
    [row] = [row for row in rows if row["by"].startswith("this trainer")]
    choice = Choice(widths=(row["width"],), only=(row["architecture"],))
    [cohort] = group(runs_of(load_figure("fig7"), choice))
    assert len(cohort) == row["models"]
    assert cohort.first.train.steps / estimate(cohort, gpu).train == pytest.approx(row["steps_per_s"], rel=0.2)


def test_more_of_anything_takes_longer(gpu):
    def seconds(machine, **vary):
        [cohort] = group(ms.Sweep(base=BASE, vary={k.replace("__", "."): v for k, v in vary.items()}).runs())
        return estimate(cohort, machine).total

    for machine in (CPU, gpu):
        plain = seconds(machine)
        for more in (
            {"seed": [0, 1]},
            {"model__width": [64]},
            {"model__layers": [4]},
            {"train__steps": [400]},
            {"train__eval_documents": [800]},
            {"stages__patch__documents": [800]},
            {"stages__patch__slots": [["key", "value"]]},
            {"stages__emergence__looks": [3]},
        ):
            assert seconds(machine, **more) > plain, more
    assert seconds(Machine("cuda"), train__steps=[50_000]) > seconds(gpu, train__steps=[50_000])
    assert seconds(gpu, train__precision=["float32"]) > seconds(gpu, train__precision=["tf32"])


def test_several_in_flight_gain_something_but_not_everything(figure3, gpu):
    for cohort in group(figure3):
        assert gain(cohort, gpu, 1) == 1
        assert 1 < gain(cohort, gpu, 2) < gain(cohort, gpu, 4) < gain(cohort, gpu, 6) == gain(cohort, gpu, 8) < 4


def test_estimates_are_corrected_by_what_was_timed(gpu, figure3):
    calibration = Calibration()
    assert calibration.factor("mamba") == 1
    calibration.add(Timed("mamba", 10.0, 20.0))
    calibration.add(Timed("attention", 10.0, 5.0))
    assert calibration.factor("mamba") == 2
    assert calibration.factor("attention") == 0.5
    assert calibration.factor("h3") == 1.25


def test_what_cohorts_took_is_used_by_the_next_call(sweep_file, tmp_path):
    specs = load_runs(str(sweep_file()))
    root = tmp_path / "out"
    outcome = execute(make_plan(specs, root, CPU), root, CPU)
    row = outcome.cohorts[0]
    plan = make_plan([*specs, *(spec.changed(data_seed=1) for spec in specs)], root, CPU)
    assert plan.estimator.calibration.factor(row.architecture) == pytest.approx(row.alone_s / row.expected_s)
    other = make_plan(specs, root, Machine(threads=2))
    assert other.estimator.calibration.factor(row.architecture) == 1, "times of another machine say nothing"


def test_finished_runs_are_found_and_damaged_ones_named(sweep_file, tmp_path):
    specs = load_runs(str(sweep_file()))
    for spec in specs[:2]:
        runs.run(spec, tmp_path, progress=False)
    plan = make_plan(specs, tmp_path, CPU)
    assert list(plan.finished) == specs[:2]
    assert [cohort.runs for cohort in plan.cohorts] == [tuple(specs[2:])]
    folder = runs.run_folder(specs[0], tmp_path)
    verdicts = folder.stage("judge", specs[0].stage_id("judge")).path / "verdicts.json"
    verdicts.write_text("{}")
    plan = make_plan(specs, tmp_path, CPU)
    assert list(plan.damaged) == [specs[0].run_id]
    assert str(verdicts) in plan.damaged[specs[0].run_id]
    assert (list(plan.finished), plan.sound) == ([specs[1]], specs[1:])
    assert [cohort.runs for cohort in plan.cohorts] == [tuple(specs[2:])], "the others are made all the same"
    assert "4 runs, 1 of them finished, 1 damaged; to do" in plan_lines(plan)[-1]


def test_what_is_damaged_before_its_stages_were_made_is_named_too(sweep_file, tmp_path):
    [spec] = load_runs(str(sweep_file({"seed": [0]}, base={**BASE, "stages": {}}, name="bare.json")))
    runs.run(spec, tmp_path, progress=False)
    [wanted] = load_runs(str(sweep_file({"seed": [0]})))
    assert make_plan([wanted], tmp_path, CPU).cohorts[0].trained
    (runs.run_folder(spec, tmp_path).path / "weights.safetensors").write_bytes(b"")
    plan = make_plan([wanted], tmp_path, CPU)
    assert (list(plan.damaged), plan.cohorts) == ([wanted.run_id], [])
    (runs.run_folder(spec, tmp_path).path / "seal.json").write_text("{")
    assert list(make_plan([wanted], tmp_path, CPU).damaged) == [wanted.run_id]


def test_runs_finished_elsewhere_count_as_finished_and_are_not_made(sweep_file, tmp_path):
    specs = load_runs(str(sweep_file({"train.lr": [1e-3, 1e-2], "model.width": [8, 16]})))
    elsewhere = [spec.run_id for spec in specs if spec.model.width == 8] + [specs[1].run_id, "0123456789ab"]
    plan = make_plan(specs, tmp_path, CPU, skip=dict.fromkeys(elsewhere))
    assert {run.run_id for run in plan.finished} == set(elsewhere[:3])
    assert [cohort.runs for cohort in plan.cohorts] == [(specs[3],)]
    assert plan.cohorts[0].label == "attention d=16", "cohorts are named as they are without skipping any"


def test_how_long_a_job_may_take_is_a_setting(sweep_file, tmp_path):
    specs = load_runs(str(sweep_file({"model.width": [8, 12, 16], "train.steps": [5000]})))
    assert len(make_plan(specs, tmp_path, CPU).jobs) == 1
    assert len(make_plan(specs, tmp_path, CPU, job_seconds=20).jobs) == 3
    with pytest.raises(UserError, match="positive number of seconds"):
        make_plan(specs, tmp_path, CPU, job_seconds=float("nan"))


def test_a_run_that_was_asked_something_else_elsewhere_is_not_skipped(sweep_file, tmp_path):
    [spec] = load_runs(str(sweep_file({"seed": [0]})))
    stages = {f"{name}-{spec.stage_id(name)}" for name in spec.stages}
    assert make_plan([spec], tmp_path, CPU, skip={spec.run_id: stages}).finished == (spec,)
    other = with_stage(spec, "patch", documents=7)
    assert make_plan([other], tmp_path, CPU, skip={spec.run_id: stages}).finished == ()


def test_a_stage_of_which_nothing_is_known_costs_nothing():
    def seconds(stages):
        [cohort] = group(ms.Sweep(base={**BASE, "stages": stages}).runs())
        return estimate(cohort, CPU)

    assert seconds({}).stages == 0
    assert seconds({}).train == seconds({"patch": {}, "judge": {}}).train > 0
    assert seconds({"patch": {}, "judge": {}}) == seconds({"patch": {}})


STATES = {**BASE, "task": {"name": "parity", "length": 8}}


def staging(stages):
    """Seconds of the stages of a run that tracks a state."""
    [cohort] = group(ms.Sweep(base={**STATES, "stages": stages}).runs())
    return estimate(cohort, CPU).stages


@pytest.mark.parametrize(
    ("stage", "less", "more"),
    [
        ("lengths", {"documents": 64}, {"documents": 4096}),
        ("probes", {"documents": 300}, {"documents": 6000}),
        ("erase", {"documents": 300}, {"documents": 6000}),
        ("erase", {"stream_documents": 300}, {"stream_documents": 48000}),
        ("erase", {"damaged_documents": 16}, {"damaged_documents": 1024}),
        ("erase", {"draws": 0}, {"draws": 40}),
        ("interchange", {"documents": 100}, {"documents": 4096}),
        ("interchange", {"pairs": 16}, {"pairs": 1024}),
        ("align", {"documents": 64}, {"documents": 2048}),
        ("align", {"pairs": 16}, {"pairs": 1024}),
        ("align", {"steps": 2}, {"steps": 1500}),
        ("recover", {"pairs": 16}, {"pairs": 1024}),
    ],
)
def test_smaller_stages_about_states_are_foreseen_to_be_quicker_and_larger_ones_slower(stage, less, more):
    usual = staging({stage: {}})
    assert 0 < staging({stage: less}) < usual < staging({stage: more})


def test_subspaces_take_as_long_as_they_are_learned_whatever_judges_them():
    usual = staging({"align": {}})
    assert staging({"align": {"pairs": 16}}) > 0.8 * usual
    assert staging({"align": {"steps": 1500}}) > 5 * usual


def test_a_stage_of_ones_own_is_planned_whatever_its_settings_are_called(tmp_path, monkeypatch):
    class Own(Stage):
        documents: int | None = None
        steps: int = 0

    for name in ("_entries", "_loaded"):
        monkeypatch.setattr(STAGES, name, dict(getattr(STAGES, name)))
    STAGES.register("own")(Own)
    for settings in ({}, {"documents": 7, "steps": 9}):
        runs = ms.Sweep(base={**STATES, "stages": {"own": settings, "recover": {}}}).runs()
        [job] = make_plan(runs, tmp_path, CPU).jobs
        [cohort] = job.cohorts
        assert estimate(cohort, CPU).stages == staging({"recover": {}})


def test_what_could_only_fail_after_training_is_refused(sweep_file, tmp_path):
    with pytest.raises(UserError, match="no slot 'kee'"):
        make_plan(load_runs(str(sweep_file({"stages.patch.slots": [["kee"]]}))), tmp_path, CPU)
    with pytest.raises(UserError, match="at least 1 cohort"):
        make_plan(load_runs(str(sweep_file())), tmp_path, CPU, in_flight=0)


def test_a_plan_in_words(figure3, gpu, tmp_path):
    lines = plan_lines(make_plan(figure3, tmp_path, gpu))
    assert lines[-1].startswith("245 runs, 0 of them finished; to do: 35 cohorts in ")
    assert len([line for line in lines if " in flight, about " in line]) > 2
    assert len([line for line in lines if " float32 " in line]) == 35


def test_rows_that_do_not_know_how_they_were_computed_are_not_compared():
    conditions = Conditions.of(CPU, 1)
    row = {"kind": "cohort", "architecture": "mamba", "expected_s": 2.0, "alone_s": 3.0, **asdict(conditions)}
    assert [one.took for one in timed_rows([row], conditions)] == [3.0]
    del row["kernels"]
    assert timed_rows([row], conditions) == []


def test_a_time_that_exceeds_the_limit_by_a_rounding_has_a_group():
    from mixerscope.sweep.plan import _packed

    assert _packed([951.478784], 951.4787839999999) == [[0]]
    assert _packed([2.0, 1.0, 1.0], 2.0) == [[0], [1, 2]]
