"""Wrong input: one sentence that names the thing, exit code 2, nothing written."""

import socket

import pytest


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"model__architecture": "mambo"}, ["'mambo'", "did you mean 'mamba'"]),
        ({"task": "arr"}, ["no task named 'arr'", "did you mean 'ar'"]),
        ({"task__name": ["ar"]}, ["name", "['ar']"]),
        ({"task": 5}, ["task", "got 5"]),
        ({"task__num_piars": 3}, ["'num_piars'", "did you mean 'num_pairs'"]),
        ({"trian": {}}, ["'trian'", "did you mean 'train'"]),
        ({"train__stepz": 3}, ["'stepz'", "did you mean 'steps'"]),
        ({"model__options": {"haeds": 2}}, ["'haeds'", "did you mean 'heads'?"]),
        ({"model__options": {"heads": "two"}}, ["heads", "integer", "'two'"]),
        ({"model__options": {"heads": 3}}, ["width = 8", "heads = 3"]),
        ({"model__width": "wide"}, ["model.width", "integer", "'wide'"]),
        ({"train__lr": [1]}, ["train.lr", "number", "[1]"]),
        ({"train__steps": 1.5}, ["train.steps", "integer", "1.5"]),
        ({"train__steps": 0}, ["train.steps", "greater than 0"]),
        ({"train": "fast"}, ["train", "'fast'"]),
        ({"task__num_pairs": 9}, ["num_pairs = 9", "num_keys = 4"]),
        ({"stages__patch": {"slots": ["kee"]}}, ["no slot 'kee'", "key, value"]),
        ({"stages__pach": {}}, ["no stage named 'pach'", "did you mean 'patch'"]),
        ({"stages__patch": {"slot": ["key"]}}, ["'slot'", "did you mean 'slots'"]),
        ({"interventions": {}}, ["RunSpec has no field 'interventions'"]),
        ({"model__max_length": 3}, ["model.max_length = 3"]),
        ({"version": 1}, ["version"]),
    ],
)
def test_a_wrong_spec_is_one_sentence(refused, spec_file, change, parts):
    said = refused("run", spec_file(**change))
    for part in parts:
        assert part in said


@pytest.mark.parametrize(
    ("stage", "settings", "part"),
    [
        ("probes", {"labels": ["sin"]}, "no label of GroupWord named 'sin'; did you mean 'sign'?"),
        ("probes", {"sites": ["blocks.0.mixer.conv_out"]}, "no site to probe named 'blocks.0.mixer.conv_out'"),
        ("probes", {"first": 13}, "first = 13 leaves no position"),
        ("erase", {"label": "depth"}, "no label of GroupWord named 'depth'"),
        ("erase", {"times": [1, 200]}, "2401 tokens, and the model learns positions for 1024"),
        ("align", {"places": ["blocks.7.resid_pre"]}, "no place to align named 'blocks.7.resid_pre'"),
        ("lengths", {"times": [1, 200]}, "2401 tokens, and the model learns positions for 1024"),
        ("interchange", {"position": 12}, "position = 12 leaves no inputs"),
        ("recover", {"position": 12}, "position = 12 leaves no inputs"),
    ],
)
def test_stages_that_look_at_states_are_refused_before_training(refused, spec_file, stage, settings, part):
    task = {"name": "group", "length": 12}
    assert part in refused("run", spec_file(task=task, stages={stage: settings}, model__max_length=1024))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("{'task': 'ar'}", ["is not JSON", "line 1"]),
        ("", ["is not JSON"]),
        ("[1, 2]", ["JSON object", "list"]),
        ('{"task": "ar"}', ["model", "required"]),
        ('{"task": "ar", "task": "ar"}', ["'task'", "twice"]),
    ],
)
def test_a_file_that_is_no_spec(refused, tmp_path, text, parts):
    path = tmp_path / "bad.json"
    path.write_text(text)
    said = refused("run", path)
    for part in ["bad.json" if "required" not in parts else "", *parts]:
        assert part in said


def test_a_spec_file_that_is_not_text(refused, tmp_path):
    (tmp_path / "bad.json").write_bytes(b"\xff\xfe\x00{")
    assert "bad.json is not JSON" in refused("run", tmp_path / "bad.json")


def test_a_missing_spec_file_says_how_to_make_one(refused):
    assert "mixerscope new spec nowhere.json" in refused("run", "nowhere.json")


def test_a_folder_in_place_of_a_spec_file(refused, tmp_path):
    (tmp_path / "spec.json").mkdir()
    assert "spec.json" in refused("run", "spec.json")


@pytest.mark.parametrize(
    ("setting", "part"),
    [
        ("train.stepz=3", "did you mean 'train.steps'"),
        ("steps=3", "no setting named 'steps'"),
        ("stepz=3", "did you mean 'stages.align.steps' or 'train.steps'?"),
        (
            "foo=1",
            "known ones begin with data_seed, model, seed, stages, task, train, version, such as model.a",
        ),
        ("train.steps.more=3", "did you mean 'train.steps'"),
        ("model.options.head=3", "did you mean 'model.options.heads'"),
        ("task.num_pair=3", "did you mean 'task.num_pairs'"),
        ("train.steps", "path=value"),
        ("=3", "path=value"),
        ("train.steps=many", "'many'"),
        ("stages.patch.document=3", "did you mean 'stages.patch.documents'"),
        ("stages.judge.rules.carry=3", "did you mean 'stages.judge.rules.carries'"),
        ('stages.patch.edits=["swap","noise:scale=much"]', "stages.patch.edits: edit 'noise:scale=much': scale takes"),
        ("stages.patch.documents=0", "stages.patch.documents: "),
        ("stages.patch.reads=[]", "stages.patch.reads: name at least one"),
        ("model.architecture=atention", "did you mean 'attention'"),
        ("task.name=arr", "did you mean 'ar'"),
    ],
)
def test_a_setting_that_does_not_fit(refused, spec_file, setting, part):
    assert part in refused("run", spec_file(), "--set", setting)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--on", "mars"], "--on is 'local'"),
        (["--on", "slurm:0"], "a number of jobs from 1"),
        (["--slurm", "partition=gpu"], "which is for --on slurm"),
        (["--stop-after", "-5"], "a positive number of seconds"),
    ],
)
def test_a_dry_run_refuses_what_a_sweep_would(refused, words, part):
    assert part in refused("sweep", "figure3", "--dry-run", *words)


def test_run_needs_a_file_or_names(refused, spec_file):
    assert "--arch" in refused("run", "--task", "ar")
    assert "--task" in refused("run")
    assert "not both" in refused("run", spec_file(), "--arch", "mamba")


def test_unknown_names_on_the_command_line(refused):
    assert "did you mean 'mamba'" in refused("run", "--task", "ar", "--arch", "mamab")
    assert "did you mean 'attention'" in refused("show", "atention")
    assert "no task named 'qqqq'; known: ar" in refused("sample", "qqqq")
    assert "did you mean 'ar'" in refused("new", "spec", "--task", "arr")
    assert "num_pairs" in refused("sample", "ar", "--set", "num_pair=3")
    assert "num_keys = 4" in refused("sample", "ar", "--set", "num_keys=4")


def test_unknown_commands_and_options(refused):
    assert "demo does not take 'extra'; `mixerscope demo --help` says what it takes" in refused("demo", "extra")
    assert "did you mean 'report' or 'reproduce' or 'export'?" in refused("reprot")
    assert "known: mixer, spec, stage, task" in refused("new", "thing")
    assert "--seed" in refused("sample", "ar", "--sede", "3")
    assert '"mixers"' in refused("ls", "mixer")
    assert "--n = 0" in refused("sample", "ar", "--n", "0")
    assert "--n" in refused("sample", "ar", "--n", "some")
    assert "--width = 0" in refused("show", "mamba", "--width", "0")


def test_a_file_where_the_output_folder_should_be(refused, spec_file, tmp_path):
    (tmp_path / "taken").write_text("mine")
    assert "cannot write to taken" in refused("run", spec_file(), "--out", "taken")
    assert "cannot write to taken" in refused("run", spec_file(), "--out", "taken/deeper")
    assert (tmp_path / "taken").read_text() == "mine"


def test_reports_need_runs(refused, tmp_path):
    assert "nowhere is not a folder" in refused("report", "nowhere")
    (tmp_path / "empty").mkdir()
    assert "empty holds no finished runs" in refused("report", "empty")
    assert "empty holds no finished runs" in refused("ls", "runs", "--out", "empty")
    assert "is not a folder" in refused("ls", "runs")


def test_what_cannot_be_served_is_refused(refused, finished, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "nowhere is not a folder" in refused("serve", "nowhere")
    assert "empty holds no finished runs" in refused("serve", "empty")
    assert "port = 70000 should lie between" in refused("serve", "runs", "--port", "70000")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "is in use" in refused("serve", "runs", "--port", str(taken.getsockname()[1]))


def test_a_page_that_cannot_be_written(refused, finished):
    assert "nowhere/page.html" in refused("report", "runs", "--out", "nowhere/page.html")


def test_new_spec_overwrites_nothing(refused, tmp_path):
    (tmp_path / "spec.json").write_text("mine")
    assert "spec.json exists already" in refused("new", "spec")
    assert "cannot write nowhere/spec.json" in refused("new", "spec", "nowhere/spec.json")
