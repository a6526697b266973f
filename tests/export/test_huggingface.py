"""A run that leaves the house: what is in the folder, and that it comes back."""

import inspect
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file

import mixerscope as ms
from mixerscope.artifacts import Verdicts, Weights
from mixerscope.cli import main
from mixerscope.errors import CorruptFile, UserError
from mixerscope.export.card import model_card
from mixerscope.packs import unpack
from mixerscope.results import RunResult, load_run, load_runs


def recall_run(root: Path) -> RunResult:
    return next(run for run in load_runs(root) if "emergence" in run.stages)


def test_it_loads_back_with_the_same_logits(made: Path, tmp_path: Path):
    run = recall_run(made)
    folder = ms.export_run(run.folder.path, tmp_path / "hub")
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "config.json",
        "evidence.pack",
        "model.safetensors",
        "modeling.py",
    ]
    tokens = torch.tensor([[0, 1, 2, 3], [3, 2, 1, 0]])
    assert torch.equal(ms.load_export(folder)(tokens), run.model()(tokens))
    unpack(folder / "evidence.pack", tmp_path / "again")
    assert load_run(tmp_path / "again" / run.folder.path.name).verdicts == run.verdicts


def test_the_five_lines_of_the_card_run_in_plain_pytorch(made: Path, tmp_path: Path):
    run = recall_run(made)
    folder = ms.export_run(run, tmp_path / "hub")
    [code] = re.findall(r"^```python\n(.*?)^```", (folder / "README.md").read_text(), re.M | re.S)
    assert len(code.splitlines()) == 5
    tokens = [[0, 1, 2, 3]]
    alone = "import sys\nsys.path.insert(0, '.')\nsys.modules['mixerscope'] = None  # as if it were not installed"
    say = f"import torch\nprint(model(torch.tensor({tokens})).tolist())"
    words = [sys.executable, "-I", "-W", "error", "-c", f"{alone}\n{code}\n{say}"]
    ran = subprocess.run(words, check=True, cwd=folder, capture_output=True, text=True)
    assert torch.equal(torch.tensor(json.loads(ran.stdout)), run.model()(torch.tensor(tokens)))


def test_a_model_whose_source_is_gone_is_exported_with_the_reason(made: Path, tmp_path: Path, monkeypatch):
    run = recall_run(made)
    monkeypatch.setattr(inspect, "getsource", lambda _: (_ for _ in ()).throw(OSError("gone")))
    folder = ms.export_run(run, tmp_path / "hub")
    assert not (folder / "modeling.py").exists()
    card = (folder / "README.md").read_text()
    assert "the source of mixerscope.mixers.mamba is not at hand" in card
    assert 'ms.load_export(".")' in card
    assert isinstance(ms.load_export(folder), torch.nn.Module)


def test_the_card_says_what_was_found_and_its_metadata_can_be_read(made: Path, tmp_path: Path):
    run = recall_run(made)
    folder = ms.export_run(run, tmp_path / "hub")
    card = ModelCard.load(folder / "README.md")
    assert card.data.library_name == "mixerscope"
    scores = {result.metric_type: result.metric_value for result in card.data.eval_results}
    assert scores == {"accuracy": run.scores.accuracy.value, "likelihood": run.scores.likelihood.value}
    [verdict] = run.verdicts
    assert f"**key: {verdict.mechanism}**" in card.text
    for test in verdict.tests:
        assert f"| {test.name} | {'yes' if test.passed else 'no'} |" in card.text
    assert f"{verdict.guessing:.3f}" in card.text
    assert run.provenance.data_sha256 in card.text
    assert '"carries": 0.5' in card.text
    assert "2505.15105" in card.text


def test_a_tracked_state_and_a_diverged_run_have_cards_too(made: Path):
    cards = {run.training["task"]["name"] + run.status.outcome: model_card(run, "") for run in load_runs(made)}
    diverged = next(text for name, text in cards.items() if name.endswith("diverged"))
    assert "No verdict: training diverged" in diverged
    assert "results: []" in diverged
    state = next(text for name, text in cards.items() if name.startswith("parity"))
    assert "**state: " in state
    assert "| carried" in state or "| follows" in state or state.count("\n| ") > 12


def test_words_of_others_cannot_break_the_card(made: Path):
    run = recall_run(made)
    judged = run.stages["judge"].folder
    [verdict] = run.verdicts
    evil = "x |\n---\n<script>alert(1)</script> `"
    test = replace(verdict.tests[0], about=evil, name=evil)
    found = Verdicts((replace(verdict, mechanism=evil, reason=evil, slot=evil, tests=(test,)),))
    (judged.path / Verdicts.file).write_bytes(found.to_bytes())
    judged.close(run.stages["judge"].record.identity, judged.seal().files)
    text = model_card(load_run(run.folder.path), "")
    assert "alert(1)" in text
    assert "<script>" not in text
    assert ModelCard(text).data.library_name == "mixerscope"
    [row] = [line for line in text.splitlines() if line.startswith("| x")]
    assert len(re.findall(r"(?<!\\)\|", row)) == 8


def test_runs_without_weights_and_names_that_are_taken_are_refused(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run = recall_run(made)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for to in ("taken", "file", "nowhere/hub"):
        assert main(["export", str(run.folder.path), "--to", str(tmp_path / to)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert main(["export", str(made), "--to", str(tmp_path / "hub")]) == 2
    assert "holds 3 runs; name the folder of one" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "taken"), "--to", str(tmp_path / "hub")]) == 2
    assert "holds no finished runs" in capsys.readouterr().err
    run.folder.drop(Weights.file)
    assert main(["export", str(run.folder.path), "--to", str(tmp_path / "hub")]) == 2
    assert "without keeping the weights" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "runs", "taken"]
    assert (tmp_path / "taken" / "mine.txt").read_text() == "mine"


def test_what_does_not_fit_is_not_loaded(made: Path, tmp_path: Path):
    folder = ms.export_run(recall_run(made), tmp_path / "hub")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "run_id": "0" * 12}))
    with pytest.raises(UserError, match="other code"):
        ms.load_export(folder)
    (folder / "config.json").write_text(json.dumps(config))
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").write_bytes(Weights({k: v[:1] for k, v in weights.items()}).to_bytes())
    with pytest.raises(CorruptFile, match="does not fit"):
        ms.load_export(folder)
    (folder / "model.safetensors").write_bytes(b"x" * 20)
    with pytest.raises(CorruptFile):
        ms.load_export(folder)
    for text in ("{", "[]", "{}", json.dumps({**config, "spec": 3})):
        (folder / "config.json").write_text(text)
        with pytest.raises((UserError, CorruptFile)):
            ms.load_export(folder)
    with pytest.raises(UserError, match="holds no exported run"):
        ms.load_export(tmp_path)
