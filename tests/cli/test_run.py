"""`run`, `new spec` and what becomes of damaged folders."""

import io
import json
import time

import pytest
from rich.console import Console

import mixerscope.runs
from mixerscope.cli import progress
from mixerscope.cli.progress import Lines
from mixerscope.cli.settings import make_spec, read_spec_file
from mixerscope.spec import RunSpec
from mixerscope.store import RunFolder


def test_a_spec_file_becomes_a_run_folder(cli, spec_file, tmp_path):
    code, out, err = cli("run", spec_file(), "--out", "here", "--set", "train.steps=3", "--set", "seed=7")
    assert code == 0
    [folder] = (tmp_path / "here").iterdir()
    assert RunFolder(folder).finished
    assert f"the run is in here/{folder.name}" in out
    assert "attention" in out
    assert "training 3/3" in err
    assert "intervening" in err
    spec = json.loads((folder / "spec.json").read_text())
    assert (spec["train"]["steps"], spec["seed"]) == (3, 7)


def test_a_finished_run_is_found_and_not_trained_again(cli, spec_file, finished, monkeypatch):
    def never(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr(mixerscope.runs, "train_cohort", never)
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    code, out, err = cli("run", spec_file())
    assert code == 0
    assert f"found the finished run runs/{finished.name}" in err
    assert "accuracy" in out
    assert {path.name: path.read_bytes() for path in finished.iterdir()} == before


def test_fresh_trains_again(cli, spec_file, finished):
    (finished / "weights.safetensors").write_bytes(b"")
    code, _, err = cli("run", spec_file(), "--fresh")
    assert code == 0
    assert "training 2/2" in err
    assert mixerscope.runs.load_run(finished).model() is not None


def test_names_are_enough(cli, tmp_path):
    settings = ["train.steps=1", "train.documents=4", "train.eval_documents=4", "interventions.documents=4"]
    settings += ["task.num_keys=32", "task.num_values=32", "model.width=8", "model.options.d_state=2"]
    words = [word for setting in settings for word in ("--set", setting)]
    code, _, _ = cli("run", "--task", "ar", "--arch", "mamba", "--out", "there", *words)
    assert code == 0
    [folder] = (tmp_path / "there").iterdir()
    assert folder.name.startswith("mamba-")
    assert json.loads((folder / "spec.json").read_text())["model"]["options"]["d_state"] == 2


def test_a_diverged_run_fails(cli, spec_file):
    words = ["run", spec_file(), "--set", "train.lr=1e30", "--set", "train.steps=9", "--set", "train.warmup=0"]
    for attempt in ("made", "found"):
        code, out, _ = cli(*words)
        assert code == 1, attempt
        assert "diverged" in out


@pytest.mark.parametrize("name", ["weights.safetensors", "cells.jsonl", "verdicts.json", "curve.jsonl", "spec.json"])
@pytest.mark.parametrize("how", ["truncated", "flipped", "gone"])
def test_a_damaged_file_is_named_and_not_loaded(cli, spec_file, finished, name, how):
    path = finished / name
    data = bytearray(path.read_bytes())
    if how == "gone":
        path.unlink()
    else:
        data[len(data) // 2] ^= 1
        path.write_bytes(data if how == "flipped" else data[: len(data) // 2])
    for words in (["run", spec_file()], ["report", "runs"]):
        code, out, err = cli(*words)
        assert (code, out) == (1, "")
        assert f"runs/{finished.name}/{name}" in err
        assert err.count("\n") == 1


def test_ls_runs_names_damaged_ones_and_lists_the_rest(cli, spec_file, finished):
    assert cli("run", spec_file(), "--set", "seed=3")[0] == 0
    code, out, err = cli("ls", "runs")
    assert (code, err) == (0, "")
    assert finished.name in out
    (finished / "verdicts.json").write_text("{}")
    code, out, err = cli("ls", "runs")
    assert code == 1
    assert finished.name not in out
    assert "attention-" in out
    assert "verdicts.json has changed" in err


def test_an_interrupt_is_one_line(cli, spec_file, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(mixerscope.runs, "train_cohort", interrupted)
    code, out, err = cli("run", spec_file())
    assert (code, out) == (130, "")
    assert err == "mixerscope: interrupted; finished runs are kept\n"


def test_unexpected_errors_keep_their_traceback(cli, spec_file, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(mixerscope.runs, "train_cohort", broken)
    with pytest.raises(ZeroDivisionError):
        cli("run", spec_file())


def test_new_spec_writes_all_defaults_out(cli, tmp_path):
    code, out, _ = cli("new", "spec", "mine.json", "--arch", "based", "--set", "train.steps=5")
    assert code == 0
    assert "mixerscope run mine.json" in out
    spec = json.loads((tmp_path / "mine.json").read_text())
    assert spec["model"]["options"]["feature_dim"] == 8
    assert spec["model"]["positions"] == "none"
    assert spec["task"]["num_pairs"] == 16
    assert spec["train"]["steps"] == 5
    assert spec["train"]["warmup"] == 0.1
    short = {"task": "ar", "model": {"architecture": "based"}, "train": {"steps": 5}}
    assert RunSpec.model_validate(spec).run_id == RunSpec.model_validate(short).run_id


def test_a_new_architecture_starts_from_its_own_defaults(cli, tmp_path):
    assert cli("new", "spec", "mine.json", "--arch", "based")[0] == 0
    changed = make_spec(read_spec_file(tmp_path / "mine.json"), ["model.architecture=attention"])
    assert changed.model == RunSpec.model_validate({"task": "ar", "model": {"architecture": "attention"}}).model
    assert changed.model.positions == "learned"


def test_a_terminal_gets_bars_with_rate_and_time_left(monkeypatch):
    terminal = Console(file=io.StringIO(), force_terminal=True, width=120)
    monkeypatch.setattr(progress, "remarks", lambda: terminal)
    with progress.following("mamba") as follow:
        for done in range(1, 41):
            follow("train", done, 100, "accuracy 99.0%")
            time.sleep(0.001)
        follow("intervene", 1, 1, "")
    last = terminal.file.getvalue().split("\x1b[2K")[-1]
    assert "mamba: training" in last
    assert "40/40" in last  # training that ended early is a full bar
    assert "/s" in last
    assert "00:00" in last
    assert "accuracy 99.0%" in last
    assert "mamba: intervening" in last


def test_the_verdict_table_fits_eighty_columns(cli, finished, spec_file, monkeypatch):
    path = finished / "verdicts.json"
    estimate = {"value": 0.5, "low": 0.25, "high": 0.75, "n": 8}
    found = {"mechanism": "association one step later", "route": ["key", "value", "query"], "moves": [], "reason": ""}
    path.write_text(json.dumps({"key": {**found, "share": estimate, "gap": estimate}}))
    RunFolder(finished).seal()
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = cli("run", spec_file())
    assert code == 0
    assert "key → value → query" in out
    assert "0.50 [0.25, 0.75]" in out
    assert all(len(line) <= 80 for line in out.splitlines() if not line.startswith("the run is in"))


def test_lines_are_few(monkeypatch):
    clock = iter(i * 0.1 for i in range(10_000))
    monkeypatch.setattr("mixerscope.cli.progress.time.monotonic", lambda: next(clock))
    said = []
    lines = Lines("x", console=None)
    monkeypatch.setattr(lines, "_say", said.append)
    for done in range(1, 201):  # twenty seconds
        lines("train", done, 500, "accuracy 3.0%")
    lines("intervene", 1, 1, "")
    lines.close()
    assert len(said) == 3 + 1 + 1  # one every five seconds, and the end of each stage
    assert said[0] == "x: training 51/500, accuracy 3.0%, 10/s, 44 s left"
    assert said[3].startswith("x: training 200/500")
