"""`mixerscope sweep`."""

import io
import json

import pytest
from rich.console import Console

from mixerscope import runs
from mixerscope.cli import sweep_progress
from mixerscope.machine import CPU
from mixerscope.store import find_runs
from mixerscope.sweep.execute import execute
from mixerscope.sweep.plan import make_plan
from mixerscope.sweep.source import load_runs
from tests.cli.conftest import TINY


@pytest.fixture
def sweep_file(tmp_path):
    def write(**vary):
        path = tmp_path / "sweep.json"
        vary = {key.replace("__", "."): values for key, values in vary.items()} or {"train.lr": [1e-3, 1e-2]}
        path.write_text(json.dumps({"base": TINY, "vary": vary}))
        return path

    return write


def test_a_sweep_makes_its_runs_and_a_second_call_finds_them(cli, sweep_file, tmp_path):
    words = ["sweep", sweep_file(model__architecture=["attention", "based"], seed=[0, 1]), "--out", "here"]
    code, out, err = cli(*words)
    assert code == 0, err
    assert len(find_runs(tmp_path / "here")) == 4
    assert "4 runs, 0 of them finished; to do: 2 cohorts in 1 jobs" in err
    assert "job 1: 2 cohorts, float32" in out
    assert len([line for line in out.splitlines() if line.endswith(" finished")]) == 2
    first = out
    code, out, err = cli(*words)
    assert code == 0
    assert "job 1" not in out
    assert [line for line in out.splitlines() if line.startswith(("attention", "based"))] == first.splitlines()[1:7]
    assert "4 of them finished; to do: 0 cohorts" in err
    code, out, _ = cli(*words, "--set", "seed=7")
    assert code == 0
    assert "sum of all 2 jobs so far" in out
    assert len(find_runs(tmp_path / "here")) == 6


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(cli, sweep_file, tmp_path):
    code, out, _ = cli("sweep", sweep_file(), "--dry-run", "--out", "here")
    assert code == 0
    assert "attention" in out
    assert "2 runs, 0 of them finished; to do: 1 cohorts in 1 jobs" in out
    assert not (tmp_path / "here").exists()
    code, out, _ = cli("sweep", "figure3", "--dry-run", "--device", "cuda", "--compile")
    assert code == 0, "a GPU need not be here to plan for one"
    assert "245 runs" in out


def test_wrong_input(refused, sweep_file):
    assert "did you mean 'train.lr'" in refused("sweep", sweep_file(train__lrr=[1]))
    assert "train.lr" in refused("sweep", sweep_file(train__lr=[-1]))
    assert "no slot 'kee'" in refused("sweep", sweep_file(stages__patch__slots=[["kee"]]))
    assert "figure3" in refused("sweep", "figure33")
    assert "at least 1" in refused("sweep", sweep_file(), "--in-flight", "0")
    assert "at least 1" in refused("sweep", sweep_file(), "--largest", "0")
    assert "--stop-after" in refused("sweep", sweep_file(), "--stop-after", "soon")
    assert "positive" in refused("sweep", sweep_file(), "--stop-after", "0")
    assert "no CUDA device" in refused("sweep", sweep_file(), "--device", "cuda")


def test_a_failed_cohort_is_told_and_fails_the_call(cli, sweep_file, monkeypatch):
    def failing(*_, **__):
        raise RuntimeError("the GPU\nfell off")

    monkeypatch.setattr(runs, "run_cohort", failing)
    code, out, _ = cli("sweep", sweep_file())
    assert code == 1
    assert "attention d=8 x2 failed: RuntimeError: the GPU fell off" in out


def test_a_damaged_run_is_told_and_the_others_are_made(cli, sweep_file, tmp_path):
    assert cli("sweep", sweep_file(seed=[0]))[0] == 0
    [folder] = find_runs(tmp_path / "runs")
    [verdicts] = folder.path.glob("judge-*/verdicts.json")
    verdicts.write_text("{}")
    code, out, _ = cli("sweep", sweep_file(seed=[0, 1]))
    assert code == 1
    assert f"{verdicts.relative_to(tmp_path)} has changed" in out
    assert len([line for line in out.splitlines() if line.startswith("attention ")]) == 1, "it is not among the best"
    assert len(find_runs(tmp_path / "runs")) == 2


def test_an_interrupt_is_one_line(cli, sweep_file, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("mixerscope.sweep.executors.local.execute", interrupted)
    code, out, err = cli("sweep", sweep_file())
    assert (code, out) == (130, "")
    assert err.endswith("mixerscope: interrupted; finished runs are kept\n")


def test_a_terminal_gets_a_bar_per_cohort_and_one_for_all(sweep_file, tmp_path, monkeypatch):
    terminal = Console(file=io.StringIO(), force_terminal=True, width=140, highlight=False)
    monkeypatch.setattr(sweep_progress, "remarks", lambda: terminal)
    plan = make_plan(load_runs(str(sweep_file())), tmp_path, CPU)
    with sweep_progress.following_sweep(plan) as listener:
        execute(plan, tmp_path, CPU, listener=listener)
        assert listener.bars == {}
    said = terminal.file.getvalue()
    assert "attention d=8 x2: finished after" in said
    assert "2/2" in said.split("\x1b[2K")[-1]
    for doing in ("preparing", "training", "patch"):
        assert f"attention d=8 x2: {doing}" in said


def test_a_report_of_the_best_runs_alone(cli, sweep_file, tmp_path):
    words = [sweep_file(train__lr=[1e-3, 1e-2], seed=[0, 1]), "--out", "here"]
    code, out, err = cli("sweep", *words)
    assert code == 0, err
    assert "`mixerscope report here --best` makes a page of these runs" in out
    assert cli("report", "here")[:2] == (0, "4 runs: here/report.html\n")
    assert cli("report", "here", "--best", "--out", "best.html")[:2] == (0, "2 runs: best.html\n")
    best = json.loads((tmp_path / "summary.json").read_text())["models"]
    assert sorted(row["seed"] for row in best) == [0, 1]


def test_a_report_of_the_best_needs_a_run_that_did_not_diverge(cli, sweep_file):
    cli("sweep", sweep_file(train__lr=[1e30]), "--out", "here")
    code, _, err = cli("report", "here", "--best")
    assert (code, err) == (2, "mixerscope: all runs in here diverged, so none is the best; leave out --best\n")
