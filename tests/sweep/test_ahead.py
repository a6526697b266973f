"""Compiling before it is one's turn: the processes, and what happens when they cannot."""

import pytest

from mixerscope.machine import Machine
from mixerscope.registry import MIXERS
from mixerscope.sweep import ahead as ahead_module
from mixerscope.sweep.ahead import Ahead
from mixerscope.sweep.cohorts import group
from mixerscope.sweep.execute import execute
from mixerscope.sweep.idle import Idle
from mixerscope.sweep.listening import Listener
from mixerscope.sweep.plan import Imagined, make_plan
from mixerscope.sweep.source import load_runs


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """The compiler takes half a minute even for these models; all around it is the same without."""
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")


@pytest.mark.slow
def test_every_cohort_has_its_turn_and_then_the_processes_are_gone(sweep_file):
    cohorts = group(load_runs(str(sweep_file())))
    ahead = Ahead(cohorts, Machine(compile=True), processes=1)
    assert all(ahead.is_ready(cohort, wait=60) for cohort in cohorts)
    assert ahead.failures == {}
    assert [process.wait(60) for process in ahead.processes] == [0]  # by themselves: they hold some of a GPU's memory
    ahead.close()


@pytest.mark.slow
def test_classes_that_were_named_here_are_known_there(sweep_file, own_mixer):
    cohorts = group(load_runs(str(sweep_file({"model.architecture": [MIXERS.adopt(own_mixer)]}))))
    ahead = Ahead(cohorts, Machine(compile=True), processes=1)
    assert all(ahead.is_ready(cohort, wait=60) for cohort in cohorts)
    ahead.close()
    assert ahead.failures == {}


def test_what_cannot_be_compiled_says_why_and_keeps_nobody_waiting(sweep_file):
    cohorts = group(load_runs(str(sweep_file())))
    ahead = Ahead(cohorts, Imagined("cuda", compile=True), processes=1)
    assert all(ahead.is_ready(cohort, wait=60) for cohort in cohorts)
    ahead.close()
    assert set(ahead.failures) == {cohort.id for cohort in cohorts}
    assert all("no CUDA device" in reason for reason in ahead.failures.values())


@pytest.mark.slow
def test_there_are_few_processes_until_the_first_cohorts_are_ready(sweep_file):
    cohorts = group(load_runs(str(sweep_file())), largest=1)
    assert len(cohorts) > 2
    ahead = Ahead(cohorts, Machine(compile=True), processes=2, at_first=1)
    assert len(ahead.processes) == 1
    assert all(ahead.is_ready(cohort, wait=60) for cohort in cohorts)
    assert [process.wait(60) for process in ahead.processes] == [0, 0]
    ahead.close()


@pytest.mark.slow
@pytest.mark.parametrize("at_first", [1, 2])
def test_nobody_waits_for_processes_that_cannot_be_started(sweep_file, monkeypatch, at_first):
    cohorts = group(load_runs(str(sweep_file())), largest=1)
    real, started = ahead_module.start, []

    def start():
        if len(started) == at_first - 1:
            raise BlockingIOError("too many processes")
        started.append(real())
        return started[-1]

    monkeypatch.setattr(ahead_module, "start", start)
    ahead = Ahead(cohorts, Machine(compile=True), processes=2, at_first=at_first)
    assert all(ahead.is_ready(cohort, wait=60) for cohort in cohorts)
    ahead.close()
    assert len(ahead.failures) == (0 if started else len(cohorts))


@pytest.mark.slow
def test_processes_that_were_started_early_are_taken_before_others_are_started(sweep_file):
    cohorts = group(load_runs(str(sweep_file())), largest=1)
    idle = Idle(2)
    early, dead = idle.processes
    dead.kill()
    dead.wait()
    ahead = Ahead(cohorts, Machine(compile=True), processes=2, idle=idle)
    assert ahead.processes[0] is early
    assert ahead.processes[1] not in (early, dead)
    assert idle.processes == []
    assert all(ahead.is_ready(cohort, wait=60) for cohort in cohorts)
    ahead.close()
    idle.close()
    assert ahead.failures == {}


def test_closing_keeps_nobody_waiting(sweep_file):
    cohorts = group(load_runs(str(sweep_file())))
    ahead = Ahead(cohorts, Machine(compile=True), processes=1)
    ahead.close()
    assert all(ahead.is_ready(cohort, wait=5) for cohort in cohorts)


@pytest.mark.slow
def test_a_process_that_dies_takes_no_work_from_the_others(sweep_file):
    cohorts = group(load_runs(str(sweep_file())), largest=1)
    assert len(cohorts) > 2
    ahead = Ahead(cohorts, Machine(compile=True), processes=2)
    ahead.processes[0].kill()
    assert all(ahead.is_ready(cohort, wait=60) for cohort in cohorts)
    ahead.close()
    assert set(ahead.failures.values()) <= {"the process that compiled it has ended"}
    assert len(ahead.failures) <= 1


def test_nobody_waits_for_processes_that_are_all_dead(sweep_file):
    cohorts = group(load_runs(str(sweep_file())), largest=1)
    ahead = Ahead(cohorts, Machine(compile=True), processes=1)
    ahead.processes[0].kill()
    assert all(ahead.is_ready(cohort, wait=60) for cohort in cohorts)
    ahead.close()
    assert len(ahead.failures) == len(cohorts)


def test_what_is_not_compiled_by_the_deadline_is_left_for_the_next_call(sweep_file, tmp_path, monkeypatch):
    class Endless(Ahead):
        def __init__(self, cohorts, machine, processes, at_first, idle, shares):
            super().__init__(cohorts, machine, 0)

    monkeypatch.setattr("mixerscope.sweep.execute.Ahead", Endless)
    monkeypatch.setattr("mixerscope.sweep.execute.compiles_ahead", lambda machine: True)
    machine = Machine()
    plan = make_plan(load_runs(str(sweep_file())), tmp_path / "out", machine)
    outcome = execute(plan, tmp_path / "out", machine, stop_after=1)
    assert (outcome.cohorts, outcome.jobs) == ([], [])
    assert len(outcome.left) == len(plan.cohorts)


def test_a_cohort_that_could_not_be_compiled_ahead_is_trained_all_the_same(sweep_file, tmp_path, monkeypatch):
    class Never(Ahead):
        def __init__(self, cohorts, machine, processes, at_first, idle, shares):
            super().__init__(cohorts, machine, 0)
            self.failures = {cohort.id: "out of order" for cohort in cohorts}
            for event in self.ready.values():
                event.set()

    said = []

    class Noting(Listener):
        def remark(self, text):
            said.append(text)

    monkeypatch.setattr("mixerscope.sweep.execute.Ahead", Never)
    monkeypatch.setattr("mixerscope.sweep.execute.compiles_ahead", lambda machine: True)
    runs = load_runs(str(sweep_file()))
    machine = Machine()
    outcome = execute(make_plan(runs, tmp_path / "out", machine), tmp_path / "out", machine, listener=Noting())
    assert [row.ending for row in outcome.cohorts] == ["finished", "finished"]
    assert sorted(said) == [
        "attention d=8 x2 is compiled where it is trained: out of order",
        "based d=8 x2 is compiled where it is trained: out of order",
    ]


@pytest.mark.slow
def test_a_cohort_is_ready_when_all_of_its_shares_are(sweep_file):
    cohorts = group(load_runs(str(sweep_file())), largest=1)
    ahead = Ahead(cohorts, Machine(compile=True), processes=2, at_first=1, shares=lambda cohort: 2)
    assert len(ahead.processes) == 2, "one for each share of the first"
    assert all(ahead.is_ready(cohort, wait=60) for cohort in cohorts)
    assert (set(ahead.left.values()), ahead.failures) == ({0}, {})
    ahead.close()


def test_a_share_that_fails_is_that_of_its_cohort_alone(sweep_file):
    first, second = group(load_runs(str(sweep_file())), largest=1)[:2]
    ahead = Ahead([first, second], Machine(), 0, shares=lambda cohort: 2)
    ahead._ended(first, None)
    assert not ahead.is_ready(first, wait=0)
    ahead._ended(first, "out of order")
    ahead._ended(second, None)
    assert ahead.is_ready(first, wait=0)
    assert not ahead.is_ready(second, wait=0)
    assert ahead.failures == {first.id: "out of order"}
