"""`run`, `new spec` and what becomes of damaged folders."""

import io
import json
import shutil
import time
from pathlib import Path

import pytest
from rich.console import Console

import mixerscope.runs
from mixerscope.artifacts import Estimate, Verdict, Verdicts
from mixerscope.cli import progress
from mixerscope.cli.progress import Lines
from mixerscope.cli.settings import make_spec, read_spec_file
from mixerscope.cli.verdicts import verdict_table
from mixerscope.results import load_run
from mixerscope.spec import RunSpec, preset
from mixerscope.store import RunFolder


def test_a_spec_file_becomes_a_run_folder(cli, spec_file, tmp_path):
    code, out, err = cli("run", spec_file(), "--out", "here", "--set", "train.steps=3", "--set", "seed=7")
    assert code == 0
    [folder] = (tmp_path / "here").iterdir()
    assert RunFolder(folder).sealed
    assert f"the run is in here/{folder.name}" in out
    assert "attention" in out
    assert err.startswith("3 steps of 4 documents: about ")
    assert "training 3/3" in err
    assert "patching" in err
    spec = json.loads((folder / "spec.json").read_text())["spec"]
    assert (spec["train"]["steps"], spec["seed"]) == (3, 7)


def test_a_finished_run_is_found_and_not_trained_again(cli, spec_file, finished, monkeypatch):
    def never(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr(mixerscope.runs, "train_cohort", never)
    before = {path: path.read_bytes() for path in finished.rglob("*.*")}
    code, out, err = cli("run", spec_file())
    assert code == 0
    assert f"found the finished run runs/{finished.name}" in err
    assert "accuracy" in out
    assert {path: path.read_bytes() for path in finished.rglob("*.*")} == before


def test_another_question_of_a_trained_model_trains_nothing(cli, spec_file, finished, monkeypatch):
    def never(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr(mixerscope.runs, "train_cohort", never)
    code, out, err = cli("run", spec_file(), "--set", 'stages.patch.slots=["value"]')
    assert code == 0
    assert f"found runs/{finished.name} trained already" in err
    assert "patching" in err
    assert len(list(finished.glob("patch-*"))) == len(list(finished.glob("judge-*"))) == 2
    (finished / "weights.safetensors").unlink()
    code, out, err = cli("run", spec_file(), "--set", "stages.patch.documents=9")
    assert (code, out) == (1, "")
    assert "weights.safetensors is missing" in err


def test_fresh_trains_again(cli, spec_file, finished):
    (finished / "weights.safetensors").write_bytes(b"")
    code, _, err = cli("run", spec_file(), "--fresh")
    assert code == 0
    assert "training 2/2" in err
    assert load_run(finished).model() is not None


def test_names_are_enough(cli, tmp_path):
    settings = ["train.steps=1", "train.documents=4", "train.eval_documents=4", "stages.patch.documents=4"]
    settings += ["model.width=8", "model.options.d_state=2"]
    words = [word for setting in settings for word in ("--set", setting)]
    code, _, _ = cli("run", "--task", "ar", "--arch", "mamba", "--out", "there", *words)
    assert code == 0
    [folder] = (tmp_path / "there").iterdir()
    assert folder.name.startswith("mamba-")
    spec = json.loads((folder / "spec.json").read_text())["spec"]
    assert spec["model"]["options"]["d_state"] == 2
    assert spec["task"]["num_pairs"] == 4, "the small task, unless one asks for the published one"
    assert spec["model"]["init"] == "small_model"


def test_the_published_setting_is_a_preset_and_its_cost_is_said_before_it_starts(cli, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(mixerscope.runs, "train_cohort", interrupted)
    code, _, err = cli("run", "--task", "ar", "--arch", "mamba", "--preset", "paper")
    assert code == 130
    said, _ = err.splitlines()
    assert said.startswith("50,016 steps of 32 documents: about ")
    assert said.endswith(("hours on cpu", "minutes on cpu"))


def test_a_diverged_run_fails(cli, spec_file):
    words = ["run", spec_file(), "--set", "train.lr=1e30", "--set", "train.steps=9", "--set", "train.warmup=0"]
    for attempt in ("made", "found"):
        code, out, _ = cli(*words)
        assert code == 1, attempt
        assert "diverged" in out


FILES = ("weights.safetensors", "effects.safetensors", "verdicts.json", "curve.json", "spec.json", "self_test.json")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", ["truncated", "flipped", "gone"])
def test_a_damaged_file_is_named_and_not_loaded(cli, spec_file, finished, name, how):
    [path] = finished.rglob(name)
    data = bytearray(path.read_bytes())
    if how == "gone":
        path.unlink()
    else:
        data[len(data) // 2] ^= 1
        path.write_bytes(data if how == "flipped" else data[: len(data) // 2])
    for words in (["run", spec_file()], ["report", "runs"]):
        code, out, err = cli(*words)
        assert (code, out) == (1, "")
        assert f"runs/{path.relative_to(finished.parent)}" in err
        assert err.count("\n") == 1


def test_ls_runs_names_damaged_ones_and_lists_the_rest(cli, spec_file, finished):
    assert cli("run", spec_file(), "--set", "seed=3")[0] == 0
    code, out, err = cli("ls", "runs")
    assert (code, err) == (0, "")
    assert finished.name in out
    assert "attention d=8 seed=3" in out, "runs are named by the settings in which they differ"
    [verdicts] = finished.rglob("verdicts.json")
    verdicts.write_text("{}")
    code, out, err = cli("ls", "runs")
    assert code == 1
    assert finished.name not in out
    assert "attention-" in out
    assert "verdicts.json has changed" in err


def test_ls_runs_refuses_a_misnamed_folder_by_name_and_counts_a_copy_once(cli, finished, tmp_path):
    shutil.copytree(finished, tmp_path / "runs" / "elsewhere" / finished.name)
    code, out, _ = cli("ls", "runs")
    assert code == 0
    assert out.count(finished.name) == 1
    (tmp_path / "runs" / "elsewhere" / finished.name).rename(tmp_path / "runs" / "attention-0123456789ab")
    code, out, err = cli("ls", "runs")
    assert code == 1
    assert "attention-0123456789ab is misnamed" in err
    assert finished.name in out


def test_judge_names_mechanisms_again_with_other_rules_and_keeps_both(cli, finished, monkeypatch):
    def never(*_, **__):
        raise AssertionError("a model was built")

    monkeypatch.setattr("mixerscope.model.backbone.build_model", never)
    before = {path: path.read_bytes() for path in finished.rglob("*.*")}
    code, out, _ = cli("judge", "runs")
    assert code == 0
    assert "judged 1 run" in out
    assert {path: path.read_bytes() for path in finished.rglob("*.*")} == before, "that verdict was there"
    assert cli("judge", "runs", "--fresh")[0] == 0
    assert {path: path.read_bytes() for path in finished.rglob("*.*")} == before, "and is the same, byte for byte"
    code, out, _ = cli("judge", "runs", "--set", "rules.carries=0.7", "--set", "rules.min_gap=0")
    assert code == 0
    assert len(list(finished.glob("judge-*"))) == 2
    assert cli("report", "runs")[0] == 0


def test_a_page_shows_verdicts_by_the_rules_one_asks_for(cli, finished):
    assert cli("report", "runs", "--set", "carries=0.7")[0] == 0
    assert len(list(finished.glob("judge-*"))) == 2
    assert "0.7" in (finished.parent / "report.html").read_text()


def test_the_spec_of_a_finished_run_can_be_run_again_with_something_changed(cli, finished):
    code, _, _ = cli("run", finished / "spec.json", "--set", "train.steps=1", "--set", "stages.patch.documents=8")
    assert code == 0
    other = [path for path in finished.parent.glob("attention-*") if path != finished]
    assert len(other) == 1
    assert json.loads((other[0] / "spec.json").read_text())["spec"]["train"]["steps"] == 1


def test_the_mechanism_stays_in_sight_however_long_the_names_are(cli, finished, spec_file):
    settings = [
        "train.lr=0.5",
        "task.num_keys=9",
        "model.init=small_model",
        "train.documents=12",
        "train.eval_documents=9",
    ]
    words = [word for setting in settings for word in ("--set", setting)]
    assert cli("run", spec_file(), *words)[0] == 0
    code, out, _ = cli("judge", "runs")
    assert code == 0
    assert "mechanism" in out.splitlines()[0]
    assert out.count("not above guessing") == 2


def test_judging_by_rules_that_do_not_exist_is_refused(refused, finished):
    assert "did you mean 'carries'" in refused("judge", "runs", "--set", "rules.carry=0.7")
    assert "rules.carries" in refused("judge", "runs", "--set", "rules.carries=2")
    assert "nowhere is not a folder" in refused("judge", "nowhere")


def test_judge_names_tracked_states_again(cli, refused, spec_file):
    spec = {
        "task": {"name": "parity", "length": 6},
        "model": {"architecture": "gru", "width": 8},
        "stages": {"lengths": {"documents": 8, "times": [1, 2]}, "interchange": {"pairs": 16}, "track": {}},
    }
    assert cli("run", spec_file(**spec), "--out", "states")[0] == 0
    [folder] = Path("states").glob("gru-*")
    kept = {path: path.read_bytes() for path in folder.rglob("*.*")}
    code, out, err = cli("judge", "states", "--fresh")
    assert (code, err) == (0, "")
    assert "judged 1 run" in out
    assert "not learned" in out
    assert {path: path.read_bytes() for path in folder.rglob("*.*")} == kept
    code, out, _ = cli("judge", "states", "--set", "stages.track.rules.follows=0.8", "--set", "carries=0.7")
    assert code == 0
    assert len(list(folder.glob("track-*"))) == 2, "beside the other"
    assert not list(folder.glob("judge-*")), "of recall"
    wrong = refused("judge", "states", "--set", "stages.track.rules.follow=0.8")
    assert "did you mean 'follows'" in wrong
    spec["stages"] = {"lengths": {"documents": 8, "times": [1, 2]}}
    assert cli("run", spec_file(**spec), "--out", "bare")[0] == 0
    code, out, err = cli("judge", "bare")
    assert "judged 0 runs" in out
    assert "there is nothing to judge" in err


def test_an_interrupt_is_one_line(cli, spec_file, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(mixerscope.runs, "train_cohort", interrupted)
    code, out, err = cli("run", spec_file())
    assert (code, out) == (130, "")
    assert err.splitlines()[1:] == ["mixerscope: interrupted; finished runs are kept"]


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
    assert spec["task"]["num_pairs"] == 4
    assert spec["train"]["steps"] == 5
    assert spec["train"]["warmup"] == 0.1
    assert spec["stages"]["patch"]["documents"] == 320
    assert spec["stages"]["judge"]["rules"]["carries"] == 0.5
    short = preset("small", "ar", "based")
    short["train"]["steps"] = 5
    assert RunSpec.model_validate(spec).run_id == RunSpec.model_validate(short).run_id


def test_a_new_architecture_starts_from_its_own_defaults(cli, tmp_path):
    assert cli("new", "spec", "mine.json", "--arch", "based")[0] == 0
    changed = make_spec(read_spec_file(tmp_path / "mine.json"), ["model.architecture=attention"])
    assert changed.model == RunSpec.model_validate(preset("small", "ar", "attention")).model
    assert changed.model.positions == "learned"


def test_a_terminal_gets_bars_with_rate_and_time_left(monkeypatch):
    terminal = Console(file=io.StringIO(), force_terminal=True, width=120)
    monkeypatch.setattr(progress, "remarks", lambda: terminal)
    with progress.following("mamba") as follow:
        for done in range(1, 41):
            follow("train", done, 100, "accuracy 99.0%")
            time.sleep(0.001)
        follow("patch", 1, 1, "")
    last = terminal.file.getvalue().split("\x1b[2K")[-1]
    assert "mamba: training" in last
    assert "40/40" in last  # training that ended early is a full bar
    assert "/s" in last
    assert "00:00" in last
    assert "accuracy 99.0%" in last
    assert "mamba: patching" in last


def test_the_verdict_table_fits_eighty_columns(finished, monkeypatch):
    result = load_run(finished)
    estimate = Estimate(0.5, 0.25, 0.75, 8)
    route = ("key", "value", "query")
    found = Verdict("association one step later", route, (), estimate, estimate, (), "", "key", estimate)
    monkeypatch.setattr(type(result), "verdicts", Verdicts((found,)))
    monkeypatch.setattr(type(result), "find", lambda self, kind: Verdicts((found,)) if kind is Verdicts else None)
    said = Console(file=io.StringIO(), width=80)
    said.print(verdict_table([result]))
    out = said.file.getvalue()
    assert "key → value → query" in out
    assert "0.50 [0.25, 0.75]" in out
    assert all(len(line) <= 80 for line in out.splitlines())


def test_lines_are_few(monkeypatch):
    clock = iter(i * 0.1 for i in range(10_000))
    monkeypatch.setattr("mixerscope.cli.progress.time.monotonic", lambda: next(clock))
    said = []
    lines = Lines("x", console=None)
    monkeypatch.setattr(lines, "_say", said.append)
    for done in range(1, 201):  # twenty seconds
        lines("train", done, 500, "accuracy 3.0%")
    lines("patch", 1, 1, "")
    lines.close()
    assert len(said) == 3 + 1 + 1  # one every five seconds, and the end of each stage
    assert said[0] == "x: training 51/500, accuracy 3.0%, 10/s, 44 s left"
    assert said[3].startswith("x: training 200/500")


def test_a_run_that_another_process_makes_is_refused_in_a_sentence_if_one_will_not_wait(cli, spec_file, tmp_path):
    from mixerscope.cli.settings import make_spec, read_spec_file
    from mixerscope.results import run_folder
    from mixerscope.store import Locks

    spec = make_spec(read_spec_file(spec_file()), [])
    name = run_folder(spec, tmp_path).path.name
    locks = Locks(tmp_path / "runs", [name])
    locks.take()
    code, out, err = cli("run", spec_file(), "--no-wait")
    locks.release()
    assert (code, out) == (2, "")
    assert err.startswith(f"mixerscope: {name} is being made by process ")
    assert err.count("\n") == 1
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("stages.probes.documents=1", "too few different ones"),
        ("stages.erase.documents=1", "too few different ones"),
        ("stages.interchange.documents=4", "no two states are met 8 times"),
        ("stages.align.documents=4", "no two states are met 8 times"),
        ("stages.recover.pairs=1", "or more pairs"),
        ("stages.lengths.times=[1,100000]", "800,000 inputs, of 4,096 at most; make stages.lengths.times smaller"),
        ("stages.erase.times=[1,1000]", "8,000 inputs, of 4,096 at most; make stages.erase.times smaller"),
        ("model.options.d_conv=8", "make documents longer"),
    ],
)
def test_documents_that_a_stage_cannot_have_are_refused_before_training(cli, tmp_path, setting, said):
    code, _, err = cli("run", "--task", "parity", "--arch", "mamba", "--out", "here", "--set", setting)
    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "here").exists()
