"""The demo's flow and the report verb, with small training and mostly a page that only says it was asked for."""

import pytest

import mixerscope.report
from mixerscope.experiments import demo as experiment
from mixerscope.registry import MIXERS
from mixerscope.runs import run
from mixerscope.spec import RunSpec, digest

from .conftest import TINY


@pytest.fixture
def pages(monkeypatch):
    """Stands in for the report; collects what it was asked for."""
    asked = []

    def write_report(root, out=None, runs=None):
        asked.append((str(root), [run.training["model"]["architecture"] for run in runs]))
        return out or root / "report.html"

    monkeypatch.setattr(mixerscope.report, "write_report", write_report)
    return asked


@pytest.fixture
def tiny_demo(monkeypatch):
    specs = [RunSpec.model_validate(TINY | {"model": {"architecture": a, "width": 8}}) for a in ("attention", "based")]
    monkeypatch.setattr(experiment, "demo_specs", lambda: specs)
    return specs


def test_a_miss_is_said_and_fails(cli, pages, tiny_demo):
    code, out, err = cli("demo")
    assert code == 1
    for spec in tiny_demo:
        assert f"{spec.model.architecture}: training" in err
        assert f"{spec.model.architecture} reached " in out
    assert "short of the demo's 95%" in out
    assert "report: runs/demo/report.html" in out
    assert pages == [("runs/demo", ["attention", "based"])]


def test_reaching_the_target_is_fine_and_the_second_time_trains_nothing(cli, pages, tiny_demo, monkeypatch):
    monkeypatch.setattr(experiment, "ACCURACY", 0.0)
    code, out, err = cli("demo", "--out", "here")
    assert code == 0
    assert "training" in err
    assert "short of" not in out
    again, same, said = cli("demo", "--out", "here")
    assert (again, same) == (0, out)
    assert said.count("found the finished run") == len(tiny_demo)
    assert "training" not in said
    assert len(pages) == 2
    code, _, said = cli("demo", "--out", "here", "--fresh")
    assert code == 0
    assert said.count("training 2/2") == len(tiny_demo)


def test_a_diverged_model_is_a_miss(cli, pages, monkeypatch):
    train = TINY["train"] | {"lr": 1e30, "steps": 9, "warmup": 0}
    monkeypatch.setattr(experiment, "demo_specs", lambda: [RunSpec.model_validate(TINY | {"train": train})])
    code, out, _ = cli("demo")
    assert code == 1
    assert "attention diverged, short of the demo's 95%" in out
    assert len(pages) == 1


def test_the_demo_compares_three_architectures_on_one_task():
    specs = experiment.demo_specs()
    assert [spec.model.architecture for spec in specs] == ["attention", "based", "deltanet"]
    assert len({digest(spec.task.model_dump()) for spec in specs}) == 1
    for spec in specs:
        assert spec.model.layers == 2
        assert spec.train.stop_at_accuracy is None
        assert spec.train.documents == spec.train.steps * spec.train.batch_size
        assert spec.stages["patch"].documents == experiment.DOCUMENTS
        assert spec.stages["patch"].avoid_present


def test_report_names_the_page(cli, pages, finished):
    code, out, _ = cli("report", "runs")
    assert (code, out) == (0, "1 run: runs/report.html\n")
    code, out, _ = cli("report", finished, "--out", "page.html")
    assert (code, out) == (0, "1 run: page.html\n")


def test_report_of_the_best_rates_leaves_out_the_others(cli, pages, finished):
    slower = TINY | {"train": TINY["train"] | {"lr": 1e-9}}
    run(RunSpec.model_validate(slower), "runs", progress=False)
    assert cli("report", "runs")[1] == "2 runs: runs/report.html\n"
    assert cli("report", "runs", "--best")[1] == "1 run: runs/report.html\n"


def test_report_overwrites_its_own_page_and_nobody_elses(cli, refused, finished):
    assert cli("report", "runs")[0] == 0
    assert cli("report", "runs")[0] == 0
    (finished.parent / "summary.json").write_text("[1, 2, 3]")
    assert "summary.json exists and was not written by mixerscope" in refused("report", "runs")
    (finished.parent / "thesis.html").write_text("<p>mine</p>")
    assert "thesis.html exists and was not written" in refused("report", "runs", "--out", "runs/thesis.html")


def test_report_makes_the_example_again_with_the_code_that_is_named(cli, tmp_path, monkeypatch):
    for table in ("_entries", "_loaded", "_adopted"):
        monkeypatch.setattr(MIXERS, table, dict(getattr(MIXERS, table)))
    source = "from mixerscope.mixers.attention import Attention\n\nclass Mine(Attention):\n    heads = 1\n"
    (tmp_path / "mine.py").write_text(source)
    spec = TINY | {"model": {"architecture": MIXERS.adopt("mine.py:Mine"), "width": 8}}
    run(RunSpec.model_validate(spec), "runs", progress=False)
    page = tmp_path / "runs" / "report.html"
    for table in ("_entries", "_loaded", "_adopted"):
        getattr(MIXERS, table).pop("local/Mine")
    assert cli("report", "runs")[0] == 0
    assert "One of the measured pairs" not in page.read_text()
    assert cli("report", "runs", "--use", "mine.py:Mine")[0] == 0
    assert "One of the measured pairs" in page.read_text()
