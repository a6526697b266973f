"""Code from outside is part of a run's identity: edit a mixer, a task or a stage, run again, and it is a new run."""

import sys
import textwrap
from pathlib import Path

import pytest

from mixerscope.cli import main
from mixerscope.errors import UserError
from mixerscope.registry import REGISTRIES, use
from mixerscope.results import load_run, load_runs
from mixerscope.runs import run
from mixerscope.spec import ModelSpec, RunSpec
from tests.conftest import tiny_spec

MIXER = '''
from torch import nn

from helper import SCALE
from mixerscope import Mixer


class Mine(Mixer):
    """Remembers nothing."""

    def __init__(self, width: int, *, gain: float = 1.0) -> None:
        super().__init__()
        self.gain = gain
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return SCALE * self.gain * self.linear(x).cumsum(1)

    def state_size(self, length: int) -> int:
        return length * self.linear.in_features
'''
TASK = '''
from mixerscope import AR


class MyTask(AR):
    """Associative recall of my own."""
'''
STAGE = '''
from dataclasses import dataclass
from typing import ClassVar

from mixerscope import Done, JsonArtifact, Stage


@dataclass(frozen=True)
class Norms(JsonArtifact):
    file: ClassVar[str] = "norms.json"
    largest: float


class Norm(Stage):
    """How large the weights are."""

    artifacts: ClassVar[tuple] = (Norms,)
    times: float = 1.0

    def run(self, trained):
        norms = [max(float(p.detach().norm()) for p in model.parameters()) for model in trained.models]
        return [Done((Norms(self.times * norm),)) for norm in norms]
'''


@pytest.fixture(autouse=True)
def _clean_registries(monkeypatch):
    before = set(sys.modules)
    for registry in REGISTRIES.values():
        for name in ("_entries", "_loaded", "_adopted", "_codes"):
            monkeypatch.setattr(registry, name, dict(getattr(registry, name)))
    yield
    for name in ("helper", *(n for n in set(sys.modules) - before if n.startswith("mixerscope_local_"))):
        sys.modules.pop(name, None)


@pytest.fixture
def mine(tmp_path) -> Path:
    (tmp_path / "helper.py").write_text("SCALE = 0.1\n")
    (tmp_path / "mine.py").write_text(textwrap.dedent(MIXER))
    (tmp_path / "my_task.py").write_text(textwrap.dedent(TASK))
    (tmp_path / "my_stage.py").write_text(textwrap.dedent(STAGE))
    return tmp_path


def spec_of(path: Path) -> RunSpec:
    name = use(f"{path / 'mine.py'}:Mine")
    return tiny_spec("attention").changed(model=ModelSpec(architecture=name, width=16))


def test_an_edited_mixer_is_another_run_and_the_old_one_is_refused_with_the_new_code(mine):
    first = run(spec_of(mine), mine / "runs", progress=False)
    again = run(spec_of(mine), mine / "runs", progress=False)
    assert again.run_id == first.run_id
    assert first.provenance.code.keys() == {"mixer local/Mine"}
    (mine / "mine.py").write_text((mine / "mine.py").read_text().replace("cumsum(1)", "flip(2).cumsum(1)"))
    second = run(spec_of(mine), mine / "runs", progress=False)
    assert second.run_id != first.run_id
    assert second.curve != first.curve
    stored = load_run(first.folder.path)
    with pytest.raises(UserError, match="was made by other code: model is not what it was"):
        stored.model()
    assert stored.verdicts == first.verdicts, "its results are as good as ever"


def test_a_module_that_a_mixer_imports_counts_too(mine):
    first = spec_of(mine).run_id
    (mine / "helper.py").write_text("SCALE = 0.2\n")
    assert spec_of(mine).run_id != first
    (mine / "helper.py").write_text("SCALE = 0.1\n")
    assert spec_of(mine).run_id == first


def test_a_file_edited_after_it_was_loaded_does_not_lend_its_name_to_what_runs(mine):
    spec = spec_of(mine)
    (mine / "helper.py").write_text("SCALE = 0.2\n")
    loaded = spec.run_id
    (mine / "helper.py").write_text("SCALE = 0.1\n")
    assert loaded == spec_of(mine).run_id, "the id is that of the code that was loaded"


FACTORY = """
from mixerscope.mixers.attention import Attention

def make(k):
    class M(Attention):
        scale = k
    return M
"""
NAMED = {
    "called": "Made = make({})\n",
    "derived": "class Made(make(1)):\n    scale = {}\n",
    "changed": "Made = make(1)\nMade.scale = {}\n",
}


@pytest.mark.parametrize("text", NAMED.values(), ids=list(NAMED))
def test_the_file_that_was_named_counts_though_another_made_the_class(mine, text: str):
    (mine / "factory.py").write_text(FACTORY)
    ids = []
    for number in (3, 5, 3):
        (mine / "named.py").write_text("from factory import make\n" + text.format(number))
        name = use(f"{mine / 'named.py'}:Made")
        ids.append(tiny_spec("attention").changed(model=ModelSpec(architecture=name, width=16)).run_id)
    assert ids[0] == ids[2] != ids[1]


BROKEN = {
    "x[:, :2]": "Mine fails on two documents|another shape",
    "x.flip(1)": "is not causal: changing the last token moves outputs before it",
    "x * x.mean().item() + nope": "Mine fails on two documents: name 'nope' is not defined",
}


@pytest.mark.parametrize("body", BROKEN)
def test_a_mixer_that_cannot_work_is_refused_before_training_in_one_sentence(mine, body: str):
    text = (mine / "mine.py").read_text().replace("SCALE * self.gain * self.linear(x).cumsum(1)", body)
    (mine / "mine.py").write_text(text)
    with pytest.raises(UserError, match=BROKEN[body]) as caught:
        run(spec_of(mine), mine / "runs", progress=False)
    assert "`mixerscope check`" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (mine / "runs").exists()


def test_a_mixer_without_a_state_size_is_refused_before_training(mine):
    text = (mine / "mine.py").read_text()
    (mine / "mine.py").write_text(text[: text.index("    def state_size")])
    with pytest.raises(UserError, match=r"Mine fails on two documents|no `state_size\(length\)`"):
        run(spec_of(mine), mine / "runs", progress=False)


RETURNED = {
    "Norms(1.0)": "must give a list of 1 results",
    "[Norms(1.0)]": r"must give Done\(\(artifact, \.\.\.\)\) or Impossible",
    "[Done(Norms(1.0))]": r"must give Done\(\(artifact, \.\.\.\)\) or Impossible",
    "[Done((Norms(float('nan')),))]": r"gave a norms\.json that cannot be written",
    "[Done((trained,))]": "gave Trained, but declares Norms as `artifacts`",
}


@pytest.mark.parametrize("returned", RETURNED)
def test_a_stage_that_gives_something_else_is_told_what_it_should_give(mine, returned: str):
    text = (mine / "my_stage.py").read_text()
    body = text[: text.index("        norms = [")] + f"        return {returned}\n"
    (mine / "my_stage.py").write_text(body)
    name = use(f"{mine / 'my_stage.py'}:Norm")
    spec = tiny_spec("attention").changed(stages={name: {}})
    with pytest.raises(UserError, match=RETURNED[returned]):
        run(spec, mine / "runs", progress=False)


def test_a_model_can_be_loaded_without_the_code_of_the_stages(mine):
    name = use(f"{mine / 'my_stage.py'}:Norm")
    result = run(tiny_spec("attention").changed(stages={name: {}}), mine / "runs", progress=False)
    for table in (REGISTRIES["stage"]._entries, REGISTRIES["stage"]._loaded):
        table.pop(name)
    again = load_run(result.folder.path)
    assert again.model() is not None
    with pytest.raises(UserError, match=r"--use file\.py:Class"):
        _ = again.spec


def test_a_spec_made_before_its_mixer_was_edited_is_refused(mine):
    spec = spec_of(mine)
    assert spec.run_id
    (mine / "helper.py").write_text("SCALE = 0.2\n")
    spec_of(mine)
    with pytest.raises(UserError, match="edited after this spec was made; make the spec again"):
        run(spec, mine / "runs", progress=False)
    assert not (mine / "runs").exists()


def test_the_same_file_elsewhere_is_the_same_run(mine, tmp_path_factory):
    first = spec_of(mine).run_id
    other = tmp_path_factory.mktemp("elsewhere")
    for name in ("mine.py", "helper.py"):
        (other / name).write_text((mine / name).read_text())
    for registry in REGISTRIES.values():
        registry._entries.pop("local/Mine", None)
        registry._loaded.pop("local/Mine", None)
        registry._adopted.pop("local/Mine", None)
    assert spec_of(other).run_id == first


def test_a_stage_from_outside_runs_with_the_others_and_is_found_again(mine, monkeypatch):
    name = use(f"{mine / 'my_stage.py'}:Norm")
    stages = {"patch": {"documents": 8}, "judge": {}, name: {"times": 2.0}}
    spec = tiny_spec("attention").changed(stages=stages)
    result = run(spec, mine / "runs", progress=False)
    norms = type(spec.stages[name]).artifacts[0]
    assert result.read(norms).largest > 0
    assert result.stages[name].folder.path.name == f"local-Norm-{spec.stage_id(name)}"
    once = run(spec.changed(stages={**stages, name: {}}), mine / "runs", progress=False)
    assert result.read(norms).largest == pytest.approx(2 * once.read(norms).largest)
    assert once.run_id == result.run_id


SMALL = ["train.steps=1", "train.documents=8", "train.eval_documents=8", "stages.patch.documents=8", "model.width=8"]
WORDS = [word for setting in SMALL for word in ("--set", setting)]


def test_a_file_stands_where_a_name_does_on_the_command_line(mine, monkeypatch, capsys):
    monkeypatch.chdir(mine)
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["run", "--task", "my_task.py:MyTask", "--arch", "mine.py:Mine", *WORDS]) == 0
    assert main(["run", "--task", "ar", "--arch", "gru", "--set", "model.architecture=mine.py:Mine", *WORDS]) == 0
    assert main(["show", "mine.py:Mine"]) == 0
    assert main(["show", "my_task.py:MyTask"]) == 0
    assert main(["sample", "my_task.py:MyTask", "--set", "num_pairs=2"]) == 0
    assert main(["ls", "runs"]) == 0
    said = capsys.readouterr().out
    assert "Remembers nothing." in said
    assert "Associative recall of my own." in said
    assert "local/Mine task=ar d=8" in said
    assert "local/Mine task=local/MyTask d=8" in said
    assert len(list(load_runs(mine / "runs"))) == 2


def test_a_page_and_a_verdict_need_none_of_the_code(mine, monkeypatch, capsys):
    monkeypatch.chdir(mine)
    run(spec_of(mine), mine / "runs", progress=False)
    for registry in REGISTRIES.values():
        registry._entries.pop("local/Mine", None)
        registry._loaded.pop("local/Mine", None)
    for name in ("mine.py", "helper.py"):
        (mine / name).unlink()
    assert main(["judge", "runs", "--set", "rules.carries=0.7"]) == 0
    assert main(["report", "runs"]) == 0
    assert main(["ls", "runs"]) == 0
    assert "local/Mine" in (mine / "runs" / "report.html").read_text()


@pytest.mark.parametrize(
    ("reference", "complaint"),
    [
        ("nowhere.py:Mine", "there is no file nowhere.py"),
        ("mine.py:Mien", "did you mean 'Mine'"),
        ("helper.py:SCALE", "no class in helper.py named 'SCALE'"),
        ("my_stage.py:Norms", "derived from none of Mixer, Architecture, Task, Stage, Objective"),
        ("mine.py:", "names no class"),
        ("mine", "names no class"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_sentence(mine, monkeypatch, reference: str, complaint: str):
    monkeypatch.chdir(mine)
    with pytest.raises(UserError, match=complaint.replace(".", r"\.")) as caught:
        use(reference)
    assert "\n" not in str(caught.value)


def test_a_name_in_a_file_imports_nothing(mine, monkeypatch, capsys):
    monkeypatch.chdir(mine)
    (mine / "spec.json").write_text('{"task": "ar", "model": {"architecture": "mine.py:Mine"}}')
    assert main(["run", "spec.json"]) == 2
    assert "no architecture named 'mine.py:Mine'" in capsys.readouterr().err
    (mine / "spec.json").write_text('{"task": "ar:small", "model": {"architecture": "local/Mine"}}')
    assert main(["run", "spec.json", *WORDS]) == 2
    assert main(["run", "spec.json", "--use", "mine.py:Mine", *WORDS]) == 0
