"""A model as one file of plain PyTorch: the same numbers, and the same gradients, without us."""

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import mixerscope as ms
from mixerscope.export.plain import NoPlainSource, plain_settings, plain_source
from mixerscope.randomness import construction
from mixerscope.registry import MIXERS, architecture_entries
from mixerscope.spec import ModelSpec

MINE = """
import numpy
import mixerscope as ms
from torch import nn


class Mine(ms.Mixer):
    def __init__(self, width, *, scale=2.0):
        super().__init__()
        self.scale, self.out, self.site = numpy.float64(scale).item(), nn.Linear(width, width), ms.Site()

    def forward(self, x):
        return self.site(self.out(x.cumsum(1) * self.scale))

    def state_size(self, length):
        return self.out.in_features
"""


def model_of(architecture: str, **settings) -> ms.Model:
    spec = ModelSpec.model_validate({"architecture": architecture, "width": 8, **settings})
    return ms.build_model(spec, 9, seed=0).eval()


def copied(model: ms.Model, text: str) -> torch.nn.Module:
    """What the text builds, with the model's weights."""
    assert not [line for line in text.splitlines() if "import" in line.split() and "mixerscope" in line]
    module = ModuleType("copied")
    sys.modules["copied"] = module
    try:
        exec(text, module.__dict__)
        with construction(0):
            made = module.build({"model": plain_settings(model), "vocab_size": 9})
    finally:
        del sys.modules["copied"]
    made.load_state_dict(model.state_dict())
    return made


ARCHITECTURES = [
    entry.name for entry in architecture_entries() if entry.origin == "mixerscope" and entry.name != "pattern"
]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_can_be_written_out(architecture):
    model = model_of(architecture)
    made = copied(model, plain_source(model, f"a{architecture}"))
    tokens = torch.randint(9, (3, 20), generator=torch.Generator().manual_seed(0))
    assert torch.equal(made(tokens), model(tokens))
    for one in (made, model):
        one(tokens).logsumexp(-1).sum().backward()
    ours, theirs = dict(model.named_parameters()), dict(made.named_parameters())
    assert list(ours) == list(theirs)
    assert all(
        (ours[name].grad is None and p.grad is None) or torch.equal(ours[name].grad, p.grad)
        for name, p in theirs.items()
    )


def test_layers_may_differ_and_have_convolutions_of_their_own():
    layers = [
        {"mixer": "gru", "residual": False, "norm": "none", "mlp": False},
        {"mixer": "attention", "short_conv": 3},
    ]
    model = model_of("pattern", options={"layers": layers}, init="small_model")
    assert "class ShortConv(nn.Module)" in plain_source(model, "b")
    assert "ShortConv = None" in plain_source(model_of("gru"), "c")


def test_a_mixer_from_a_file_is_written_out_with_what_it_imports(tmp_path: Path, monkeypatch):
    for table in ("_entries", "_loaded", "_adopted"):
        monkeypatch.setattr(MIXERS, table, dict(getattr(MIXERS, table)))
    (tmp_path / "helper.py").write_text("SCALE = 3\n")
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "leans.py").write_text(
        MINE.replace("import numpy", "import helper, numpy")
        .replace("x.cumsum", "helper.SCALE * x.cumsum")
        .replace("Mine", "Leans")
    )
    model = model_of(MIXERS.adopt(f"{tmp_path / 'mine.py'}:Mine"))
    text = plain_source(model, "d")
    assert "import numpy" in text
    tokens = torch.tensor([[1, 2, 3]])
    assert torch.equal(copied(model, text)(tokens), model(tokens))
    with pytest.raises(NoPlainSource, match="imports helper, which is no installed package"):
        plain_source(model_of(MIXERS.adopt(f"{tmp_path / 'leans.py'}:Leans")), "e")


def test_a_copy_that_computes_something_else_is_not_given_out(monkeypatch):
    model = model_of("attention")
    monkeypatch.setattr(model, "forward", lambda tokens: torch.zeros(2, 12, 9))
    with pytest.raises(NoPlainSource, match="other logits"):
        plain_source(model, "f")
