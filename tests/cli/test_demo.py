"""The demo's flow and the report verb, with small training and a page that only says it was asked for."""

import sys
from types import SimpleNamespace

import pytest

from mixerscope.experiments import demo as experiment
from mixerscope.spec import RunSpec, digest

from .conftest import TINY


@pytest.fixture
def pages(monkeypatch):
    """Stands in for the report; collects what it was asked for."""
    asked = []

    def write_report(root, out=None, runs=None):
        asked.append(root)
        return out or root / "report.html"

    monkeypatch.setitem(sys.modules, "mixerscope.report", SimpleNamespace(write_report=write_report))
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
    assert [str(root) for root in pages] == ["runs/demo"]


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
    assert [spec.model.architecture for spec in specs] == ["attention", "based", "mamba"]
    assert len({digest(spec.task.model_dump()) for spec in specs}) == 1
    for spec in specs:
        assert spec.model.layers == 2
        assert spec.train.stop_at_accuracy == 0.98


def test_report_names_the_page(cli, pages, finished):
    code, out, _ = cli("report", "runs")
    assert (code, out) == (0, "1 run: runs/report.html\n")
    code, out, _ = cli("report", finished, "--out", "page.html")
    assert (code, out) == (0, "1 run: page.html\n")
