"""Pretrained folders, made here: tuned beside the same from random weights, and refused where weights are not there."""

import json
import logging
import math
import re
import shutil

import pytest
import torch

from mixerscope.artifacts import Erasures, Interchanges, Lengths, Probes
from mixerscope.artifacts.recoveries import Recoveries
from mixerscope.artifacts.state_verdict import StateVerdict
from mixerscope.cli import main
from mixerscope.errors import CorruptFile, UserError
from mixerscope.experiments.finetune import tuning
from mixerscope.experiments.finetune.pretrained import FIRST_TOKEN, Pretrained, as_tagger
from mixerscope.experiments.finetune.results import PRETRAINED, RANDOM, TunedResult, tuned_in
from mixerscope.experiments.paper.records import write_tables
from mixerscope.experiments.task_flip.pretrained import tuned_of
from mixerscope.experiments.task_flip.tables import collect, load, merged
from mixerscope.interventions.members import Members
from mixerscope.interventions.transplant import logits_after
from mixerscope.randomness import construction
from mixerscope.sites import record

transformers = pytest.importorskip(
    "transformers", reason="the foreign models come with the extra: pip install 'mixerscope[hf]'"
)
pytestmark = pytest.mark.filterwarnings("ignore")
SMALL = {"vocab_size": 24, "hidden_size": 16, "num_hidden_layers": 2, "initializer_range": 0.3}
KINDS = {
    "gpt_neox": ("GPTNeoX", {"num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 64}),
    "mamba": ("Mamba", {"state_size": 4}),
}
FEW = ["--steps", "4", "--batch-size", "8", "--documents", "100", "--set", "length=6"]


@pytest.fixture(params=KINDS)
def folder(request, tmp_path):
    logging.getLogger("transformers").setLevel(logging.ERROR)
    name, more = KINDS[request.param]
    with construction(7):
        config = getattr(transformers, f"{name}Config")(**SMALL, **more)
        model = getattr(transformers, f"{name}ForCausalLM")(config)
    model.save_pretrained(tmp_path / f"tiny-{request.param}")
    return tmp_path / f"tiny-{request.param}"


def finetune(folder, out, *words):
    return main(["finetune", "--model", str(folder), "--out", str(out), *words])


def test_weights_are_those_of_the_folder_and_boundaries_those_of_the_modules(folder):
    source = Pretrained.at(folder)
    module = source.load()
    with construction(0):
        saved = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), saved.parameters(), strict=True))
    other = source.random(0)
    assert [p.shape for p in other.parameters()] == [p.shape for p in module.parameters()]
    assert not torch.equal(next(other.parameters()), next(module.parameters()))
    model, tokens = as_tagger(module, 9), torch.randint(9, (3, 7), generator=torch.Generator().manual_seed(0))
    given = {}
    trunk = module.gpt_neox if hasattr(module, "gpt_neox") else module.backbone

    def note(layer, args, out):
        given["last"] = out[0] if isinstance(out, tuple) else out

    handle = trunk.layers[-1].register_forward_hook(note)
    with torch.no_grad():
        whole = module(tokens + FIRST_TOKEN).logits
    handle.remove()
    with torch.no_grad(), record(model, model.boundaries()) as seen:
        logits = model(tokens)
    torch.testing.assert_close(logits, whole[..., FIRST_TOKEN : FIRST_TOKEN + 9])
    torch.testing.assert_close(seen["blocks.1.resid_post"], given["last"])
    assert len(model.boundaries()) == 3


def test_what_another_document_has_in_its_stream_is_written_at_one_position(folder):
    model = as_tagger(Pretrained.at(folder).load(), 9)
    members, rng = Members([model]), torch.Generator().manual_seed(0)
    base, source = (torch.randint(9, (3, 7), generator=rng) for _ in range(2))
    with torch.no_grad(), record(model, model.boundaries()) as seen:
        given = model(source)
    with torch.no_grad():
        plain = model(base)
        written = {site: seen[site][None, :, 4] for site in model.boundaries()[1:]}
        found = logits_after(members, base, 4, written)[0]
    torch.testing.assert_close(found[:, :4], plain[:, :4])
    torch.testing.assert_close(found[:, 4], given[:, 4])


def test_a_folder_is_tuned_beside_the_same_from_random_weights(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tuning, "GATE", 0.0)  # nothing this small learns anything here
    assert finetune(folder, tmp_path / "out", "--task", "dyck", *FEW) == 0
    found = {one.about["weights"]: one for one in tuned_in(tmp_path / "out")}
    assert set(found) == {PRETRAINED, RANDOM}
    for one in found.values():
        assert one.about["model"] == folder.name
        assert one.about["layers"] == 2
        # What a recurrence carries cannot be written, so nothing is called recomputed there.
        assert set(one.about["impossible"]) == ({"track"} if "mamba" in folder.name else set())
        assert (one.find(StateVerdict) is None) == ("mamba" in folder.name)
        for artifact in (Lengths, Probes, Erasures, Recoveries, Interchanges):
            assert one.find(artifact) is not None, artifact.file
        assert len(one.find(Probes).boundaries) == 3
        sites = {each.site for each in one.find(Erasures).ablated}
        assert {"blocks.0.mixer_out", "blocks.1.resid_post"} <= sites
    assert found[PRETRAINED].find(Lengths) != found[RANDOM].find(Lengths)
    said = capsys.readouterr()
    assert "pretrained weights: accuracy" in said.out
    assert "random weights: accuracy" in said.out
    assert finetune(folder, tmp_path / "out", "--task", "dyck", *FEW) == 0
    assert "train" not in capsys.readouterr().err, "what is there is not made again"
    tables = collect([tmp_path / "out"])
    assert set(tables["tuned"]["weights"]) == {PRETRAINED, RANDOM}
    kept = {one.weights: one for one in tuned_of(tables)}
    read = found[PRETRAINED].find(Probes)
    assert [row["boundary"] for row in kept[PRETRAINED].rows] == [0, 1, 2]
    at = read.sites.index(read.boundaries[1])
    assert kept[PRETRAINED].rows[1]["readability"] == pytest.approx(read.readability[0][at], abs=1e-6)
    write_tables(tmp_path / "kept", merged(tmp_path / "kept", tables), {})
    assert tuned_of(load(tmp_path / "kept")) == list(kept.values())
    place = found[RANDOM].path
    (place / "probes.json").write_text("{}")
    with pytest.raises(CorruptFile, match=r"probes.json is not what was written"):
        TunedResult(place).find(Probes)
    shutil.rmtree(place)
    with pytest.raises(UserError, match="stands alone"):
        list(tuned_in(tmp_path / "out"))


def test_below_the_gate_only_lengths_are_told(folder, tmp_path):
    if "mamba" in folder.name:
        pytest.skip("one family shows it")
    assert finetune(folder, tmp_path / "out", "--task", "parity", *FEW) == 0
    for one in tuned_in(tmp_path / "out"):
        assert not one.about["passed"]
        assert one.find(Lengths) is not None
        assert one.find(Probes) is None
        assert "below the gate" in one.about["impossible"]["probes"]


def test_weights_that_are_not_there_are_never_made_up(folder, tmp_path, capsys):
    def refused(*words, of=folder):
        assert finetune(of, tmp_path / "out", *(words or ("--task", "dyck", *FEW))) == 2
        assert not (tmp_path / "out").exists()
        [line] = capsys.readouterr().err.strip().splitlines()
        return line

    assert "is no folder with a config.json" in refused(of=tmp_path / "nowhere")
    assert "tracks no state" in refused("--task", "ar")
    if "neox" in folder.name:  # before training: it would say so on the way
        assert "4 times as long have 81 tokens, and the model takes 64" in refused(
            "--task", "parity", "--set", "length=20"
        )
    weights = folder / "model.safetensors"
    kept = weights.read_bytes()
    weights.unlink()
    assert "pretrained weights unavailable" in refused()
    weights.write_bytes(kept[: len(kept) // 2])
    assert "cannot be read" in refused()
    from safetensors.torch import load_file, save_file

    weights.write_bytes(kept)
    tensors = load_file(weights)
    lost = next(name for name in tensors if ".layers.0." in name)
    del tensors[lost]
    save_file(tensors, weights, metadata={"format": "pt"})
    assert "has no weights for" in refused()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "bert"}))
    assert "bert" in refused()


def test_what_is_wrong_with_a_folder_or_a_setting_is_told_before_training_in_one_sentence(folder, tmp_path, capsys):
    def refused(*words, task="dyck"):
        assert finetune(folder, tmp_path / "out", "--task", task, *FEW, *words) == 2
        assert not (tmp_path / "out").exists()
        [line] = capsys.readouterr().err.strip().splitlines()
        return line

    for rate in ("nan", "inf"):
        assert "rate are above 0" in refused("--lr", rate)
    for seed in ("-1", str(2**70)):
        assert "a seed is 0 or more" in refused("--seed", seed)
    assert "too few different ones" in refused("--set", "length=4", task="flip_flop")
    assert "4,096 inputs" in refused("--set", "length=2000")
    config = folder / "config.json"
    kept = config.read_text()
    for wrong, said in (
        ({"num_hidden_layers": 1}, r"layers\.1\..* others, and its config.json says 1 layers"),
        ({"num_hidden_layers": 3}, r"has no weights for .*layers\.2\."),
        ({"num_hidden_layers": "two"}, "expected int, got str"),
        ({"hidden_size": 32}, "of the shape that its config.json says"),
    ):
        config.write_text(json.dumps(json.loads(kept) | wrong))
        assert re.search(said, refused()), wrong
    config.write_text(kept)
    (folder / "model.safetensors").unlink()
    for index in ("{", "{}", "[]", '{"weight_map": 3}', '{"weight_map": {}}', '{"weight_map": {"a": 3}}'):
        (folder / "model.safetensors.index.json").write_text(index)
        said = refused()
        assert "model.safetensors.index.json" in said or "has no 3, which its index names" in said, index


def test_whatever_is_raised_of_a_broken_folder_is_said_of_that_folder_before_anything_is_written(
    folder, tmp_path, capsys
):
    def refused():
        assert finetune(folder, tmp_path / "out", "--task", "dyck", *FEW) == 2
        assert not (tmp_path / "out").exists()
        [line] = capsys.readouterr().err.strip().splitlines()
        assert str(folder) in line
        return line

    config, weights = folder / "config.json", folder / "model.safetensors"
    said, kept = json.loads(config.read_text()), weights.read_bytes()
    for wrong, told in (
        ({"hidden_act": "nosuch"}, "KeyError: 'nosuch'"),
        ({"hidden_size": -16}, "negative dimension"),
        ({"vocab_size": 0}, "does not run"),
        ({"vocab_size": 10**12}, "too few for the"),
        ({"num_hidden_layers": 0}, "says 0 layers"),
        ({"initializer_range": -1.0}, "no model can be made"),
        ({"layer_norm_epsilon": math.nan, "layer_norm_eps": math.nan}, "give logits that are not finite"),
        ({"model_type": ["mamba"]}, "unhashable type"),
        ({"tie_word_embeddings": "yes"}, "expected bool"),
        ({"return_dict": False}, "does not run"),
    ):
        config.write_text(json.dumps(said | wrong))
        assert told in refused(), wrong
    if "neox" in folder.name:
        for wrong in ({"num_attention_heads": 0}, {"attention_dropout": 2.0}):
            config.write_text(json.dumps(said | wrong))
            assert "config.json" in refused(), wrong
    for text in ("[]", "5", "", "{", "[" * 100_000):
        config.write_text(text)
        assert "config.json cannot be read" in refused(), text[:9]
    config.write_text(json.dumps(said))
    for cut in (0, 4, 100, len(kept) - 1):
        weights.write_bytes(kept[:cut])
        assert ("too few for the" if cut <= 100 else "model.safetensors cannot be read") in refused(), cut
    weights.write_bytes(b"\xff" * 8 + kept[8:])
    assert "model.safetensors cannot be read" in refused()
    weights.unlink()
    weights.mkdir()
    assert "has no model.safetensors" in refused()
    weights.rmdir()
    (folder / "part1.safetensors").write_bytes(kept)
    names = {"weight_map": {"x": "part1.safetensors"}}
    for index in (names, names | {"metadata": 5}):
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        assert "model.safetensors.index.json cannot be read" in refused()
    for name in ("x" * 400, "a\0b"):
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": name}, "metadata": {}}))
        assert "which its index names" in refused()


def test_weights_that_are_no_numbers_are_not_called_a_training_that_diverged(folder, tmp_path, capsys):
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if ".layers.1." in name)
    for value in (math.nan, math.inf):
        tensors[name].view(-1)[0] = value
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        assert finetune(folder, tmp_path / "out", "--task", "dyck", *FEW) == 2
        assert f"the weights in {folder} are not finite in {name}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_file_that_may_not_be_read_is_named(folder, monkeypatch):
    def denied(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr("pathlib.Path.open", denied)
    with pytest.raises(UserError, match=r"config.json cannot be read: .*Permission denied"):
        Pretrained.at(folder)


def test_mistakes_of_our_own_are_not_said_to_be_the_folders(folder, tmp_path, monkeypatch):
    def wrong(*args, **kwargs):
        raise KeyError("ours")

    monkeypatch.setattr("mixerscope.experiments.finetune.pretrained.adapt_hf", wrong)
    with pytest.raises(KeyError, match="ours"):
        finetune(folder, tmp_path / "out", "--task", "dyck", *FEW)
