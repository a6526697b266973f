"""A mixer in somebody's own file: found by reference, told apart by its source, checked, refused by name."""

import sys

import pytest

from mixerscope.check import PROPERTIES, check_mixer
from mixerscope.cli.check import check
from mixerscope.errors import UserError
from mixerscope.registry import MIXERS, Registry

SOURCE = '''
"""Outside."""
import torch
from torch import nn
from mixerscope.mixers import Mixer

class {name}(Mixer):
    """A running mean.

    More text.
    """

    def __init__(self, width, *, sharp: bool = False):
        super().__init__()
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        steps = torch.arange(1, x.shape[1] + 1, dtype=x.dtype, device=x.device)
        return self.proj(x).cumsum({dim}) / steps[:, None]

    def state_size(self, length):
        return length * self.proj.in_features

NOT_A_CLASS = 3
'''


@pytest.fixture
def source(tmp_path, monkeypatch):
    def write(name, dim=1, file="outside.py"):
        path = tmp_path / file
        path.write_text(SOURCE.format(name=name, dim=dim))
        return path

    monkeypatch.chdir(tmp_path)
    known = dict(MIXERS._entries)
    yield write
    for name in set(MIXERS._entries) - set(known):
        del MIXERS._entries[name], MIXERS._loaded[name]
        MIXERS._adopted.pop(name, None)
    sys.modules.pop("lab_module", None)


def test_by_file(source):
    path = source("RunningMean")
    results = check_mixer(f"{path}:RunningMean")
    assert [result.name for result in results] == list(PROPERTIES)
    assert all(result.passed for result in results)
    entry = {entry.name: entry for entry in MIXERS.entries()}["local/RunningMean"]
    assert set(MIXERS.code(entry.name) or {}) == {"sha256"}
    assert entry.summary == "A running mean."
    assert entry.origin == "local"


def test_by_module_in_the_current_folder(source):
    source("ModuleMean", file="lab_module.py")
    before = list(sys.path)
    assert all(result.passed for result in check_mixer("lab_module:ModuleMean"))
    assert sys.path == before
    assert "local/ModuleMean" in MIXERS


def test_the_same_source_again_is_the_same_mixer(source):
    registry = Registry("mixer", {})
    path = source("Twice")
    assert registry.adopt(f"{path}:Twice") == registry.adopt("outside.py:Twice") == "local/Twice"
    first, code = registry.load("local/Twice"), registry.code("local/Twice")
    registry.adopt(f"{path}:Twice")
    assert registry.load("local/Twice") is first
    source("Twice", dim=0)
    assert registry.adopt(f"{path}:Twice") == "local/Twice"
    assert registry.load("local/Twice") is not first
    assert registry.code("local/Twice") != code


def test_what_is_checked_is_the_file_as_it_is_now(source):
    source("Edited")
    assert all(result.passed for result in check_mixer("outside.py:Edited"))
    source("Edited", dim=0)  # sums over documents, not over positions
    assert "documents" in {result.name for result in check_mixer("outside.py:Edited") if not result.passed}
    source("Edited")
    assert all(result.passed for result in check_mixer("outside.py:Edited"))
    assert all(result.passed for result in check_mixer("local/Edited")), "and its name stands for it"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("nowhere.py:Mixer", "there is no file nowhere.py"),
        ("outside.py:RunningMeen", "did you mean 'RunningMean'"),
        ("outside.py:NOT_A_CLASS", "no class in outside.py named 'NOT_A_CLASS'"),
        ("no_such_package.file:Mixer", "cannot import module 'no_such_package.file'"),
        (":Mixer", "cannot import module ''"),
        ("outside.py:Tensor", "no class in outside.py named 'Tensor'"),
        ("collections:OrderedDict", "must be a subclass of mixerscope.mixers.Mixer"),
        ("mambo", "did you mean 'mamba'"),
    ],
)
def test_wrong_references(source, reference, message):
    source("RunningMean")
    with pytest.raises(UserError) as caught:
        check_mixer(reference)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_with_a_syntax_error(source, tmp_path):
    (tmp_path / "bad.py").write_text("class Mixer(:\n")
    with pytest.raises(UserError, match=r"cannot import bad\.py"):
        check_mixer("bad.py:Mixer")


def test_command_names_the_failed_test(source, capsys):
    source("Across", dim=0)  # sums over documents, not over positions
    assert check("outside.py:Across") == 1
    output = capsys.readouterr().out
    assert "is refused" in output
    assert "documents" in output.splitlines()[-1]


def test_command_passes_a_sound_mixer(capsys):
    assert check("base_conv") == 0
    assert f"base_conv passed all {len(PROPERTIES)} tests" in capsys.readouterr().out


def test_a_constructor_that_raises_is_a_refusal_with_its_reason(tmp_path):
    file = tmp_path / "wrong.py"
    file.write_text(
        "from mixerscope import Mixer\n\n\nclass Wrong(Mixer):\n    def __init__(self, width: int) -> None:\n"
        "        super().__init__(width)\n"
    )
    [result] = check_mixer(f"{file}:Wrong")
    assert (result.name, result.passed) == ("construction", False)
    assert "TypeError" in result.detail


def test_a_file_that_raises_on_import_is_the_users_to_mend(tmp_path):
    file = tmp_path / "loud.py"
    file.write_text("raise RuntimeError('no')\n")
    with pytest.raises(UserError, match="RuntimeError: no"):
        check_mixer(f"{file}:Loud")
