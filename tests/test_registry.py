"""Names of components: who may take one, and what happens when the code behind it is edited."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mixerscope.errors import UnknownName, UserError
from mixerscope.loading import import_place
from mixerscope.registry import MIXERS, OBJECTIVES, REGISTRIES, STAGES, Registry, looks_like_reference


@pytest.fixture
def registry():
    return Registry("mixer", {"known": ("no_such_module:Known", "never imported")})


@pytest.fixture(autouse=True)
def modules_as_before(tmp_path, tmp_path_factory, monkeypatch):
    temporary = str(tmp_path_factory.getbasetemp())
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(temporary):  # another test's, which would come first
            del sys.modules[name]
    before = dict(sys.modules)
    monkeypatch.chdir(tmp_path)
    yield
    for name in set(sys.modules) - set(before):
        del sys.modules[name]


def write(path: str, text: str) -> Path:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)
    return Path(path)


def test_stages_and_objectives_are_kinds_of_components():
    assert list(REGISTRIES) == ["mixer", "architecture", "task", "stage", "objective"]
    assert (STAGES.group, STAGES.names()[:3]) == ("mixerscope.stages", ["patch", "patch_dev", "prove"])
    assert (OBJECTIVES.group, OBJECTIVES.names()[0]) == ("mixerscope.objectives", "answer")


def test_the_code_of_a_built_in_is_told_without_importing_it(registry):
    assert registry.code("known") is None
    code = "import sys\nfrom mixerscope.registry import MIXERS\nassert MIXERS.code('mamba') is None\n"
    subprocess.run([sys.executable, "-c", f"{code}assert 'torch' not in sys.modules"], check=True)
    with pytest.raises(UnknownName, match="did you mean 'known'"):
        registry.code("knwn")


def test_the_code_of_a_registered_class_is_told(registry):
    registry.register("mine")(type(registry))  # a class of ours under another name
    assert registry.code("mine") is None
    registry.register("here")(Here)
    assert set(registry.code("here")) == {"sha256"}


class Here:
    """Lives in a file."""


def test_a_cell_that_is_run_again_replaces_its_class(registry):
    def cell() -> type:
        @registry.register("mine")
        class Mine:
            """Mine."""

        return Mine

    first, second = cell(), cell()
    assert first is not second
    assert registry.load("mine") is second
    assert registry.name_of(second) == "mine"
    assert [entry.summary for entry in registry.entries() if entry.name == "mine"] == ["Mine."]


@pytest.mark.parametrize("name", ["known", "taken"])
def test_a_built_in_name_or_one_of_another_class_is_refused(registry, name):
    registry.register("taken")(Here)
    with pytest.raises(UserError, match=f"a mixer named '{name}' exists already"):
        registry.register(name)(type("Other", (), {}))


def test_a_built_in_class_cannot_be_registered_over():
    cls = MIXERS.load("attention")
    with pytest.raises(UserError, match="exists already"):
        MIXERS.register("attention")(type(cls)(cls.__qualname__, (cls,), {"__module__": cls.__module__}))


@pytest.mark.parametrize("reference", ["mine.py:Mine", "mine:Mine"])
def test_adopting_again_gives_the_class_as_it_is_now(registry, reference):
    write("mine.py", "class Mine:\n    scale = 1\n")
    assert registry.adopt(reference) == "local/Mine"
    first, code = registry.load("local/Mine"), registry.code("local/Mine")
    registry.adopt(reference)
    assert registry.load("local/Mine") is first, "nothing was edited"
    write("mine.py", "class Mine:\n    scale = 2\n")
    assert registry.adopt(reference) == "local/Mine"
    assert (first.scale, registry.load("local/Mine").scale) == (1, 2)
    assert registry.code("local/Mine") != code


@pytest.mark.parametrize("reference", ["mine.py:Mine", "mine:Mine"])
def test_edited_helpers_are_imported_again(registry, reference):
    write("mine.py", "from between import scale\n\n\nclass Mine:\n    scale = scale\n")
    write("between.py", "from helper import scale\n")
    write("helper.py", "scale = 1\n")
    first = registry.load(registry.adopt(reference))
    write("helper.py", "scale = 2\n")
    assert registry.load(registry.adopt(reference)).scale == 2
    assert first.scale == 1


@pytest.mark.parametrize("reference", ["mine.py:Mine", "mine:Mine"])
@pytest.mark.parametrize("edited", ["mine", "helper"])
def test_an_edit_within_the_same_second_is_not_missed(registry, monkeypatch, reference, edited):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    texts = {"mine": "import helper\n\n\nclass Mine:\n    scale = 1, helper.scale\n", "helper": "scale = 1\n"}
    for name, text in texts.items():
        os.utime(write(f"{name}.py", text), (1e9, 1e9))
    assert registry.load(registry.adopt(reference)).scale == (1, 1)
    os.utime(write(f"{edited}.py", texts[edited].replace("1", "2")), (1e9, 1e9))
    assert 2 in registry.load(registry.adopt(reference)).scale


def test_an_edit_in_a_local_package_is_imported_again(registry, monkeypatch):
    write("lab/__init__.py", "from .mixer import Mine\n")
    write(
        "lab/mixer.py", "from lab import near\nimport lab.still\nclass Mine:\n    scale = near.scale * lab.still.one\n"
    )
    write("lab/still.py", "one = 1\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    os.utime(write("lab/near.py", "scale = 1\n"), (1e9, 1e9))
    assert registry.load(registry.adopt("lab.mixer:Mine")).scale == 1
    os.utime(write("lab/near.py", "scale = 2\n"), (1e9, 1e9))
    assert registry.load(registry.adopt("lab.mixer:Mine")).scale == 2
    write("lab/near.py", "scale = 3\n")
    assert registry.load(registry.adopt("lab:Mine")).scale == 3


def test_a_helper_that_another_file_imported_before_the_edit_is_imported_again(registry):
    write("a.py", "from helper import scale\nclass A:\n    scale = scale\n")
    write("b.py", "from helper import scale\nclass B:\n    scale = scale\n")
    write("helper.py", "scale = 1\n")
    registry.adopt("a.py:A")
    write("helper.py", "scale = 2\n")
    assert registry.load(registry.adopt("b.py:B")).scale == 2
    assert registry.load("local/A").scale == 1
    assert registry.load(registry.adopt("a.py:A")).scale == 2


def test_files_in_two_folders_have_their_own_helpers(registry):
    for scale, (folder, name) in enumerate((("one", "One"), ("two", "Two"))):
        write(f"{folder}/mine.py", f"from helper import scale\nclass {name}:\n    scale = scale\n")
        write(f"{folder}/helper.py", f"scale = {scale}\n")
        assert registry.load(registry.adopt(f"{folder}/mine.py:{name}")).scale == scale
    one, two = registry.code("local/One"), registry.code("local/Two")
    write("two/helper.py", "scale = 7\n")
    assert (registry.code("local/One"), registry.code("local/Two")) == (one, two), "what was loaded is what runs"
    registry.adopt("two/mine.py:Two")
    assert registry.code("local/One") == one
    assert registry.code("local/Two") != two


def test_a_helper_hidden_by_another_module_is_refused(registry, tmp_path, monkeypatch):
    write("elsewhere/helper.py", "scale = 1\n")
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    import helper  # pyright: ignore[reportMissingImports]

    write("here/helper.py", "scale = 2\n")
    write("here/mine.py", "import helper\nclass Mine: ...\n")
    with pytest.raises(UserError, match=r"here/helper\.py is hidden by another module named 'helper', .*elsewhere"):
        registry.adopt("here/mine.py:Mine")
    assert sys.modules["helper"] is helper


def test_a_file_imports_what_lies_beside_it_and_leaves_the_path_alone(registry):
    write("deep/mine.py", "import sys\nfrom helper import scale\nseen = list(sys.path)\nclass Mine: ...\n")
    write("deep/helper.py", "scale = 1\n")
    before = list(sys.path)
    module, path = import_place("deep/mine.py")
    assert module.seen[0] == str(Path("deep").resolve())
    assert path == Path("deep/mine.py").resolve()
    assert sys.path == before


def test_the_same_class_name_from_another_file_is_refused_with_both_places(registry):
    for folder in ("one", "two"):
        write(f"{folder}/mine.py", "class Mine: ...\n")
    registry.adopt("one/mine.py:Mine")
    with pytest.raises(UserError) as caught:
        registry.adopt("two/mine.py:Mine")
    assert str(Path("one/mine.py").resolve()) in str(caught.value)
    assert str(Path("two/mine.py").resolve()) in str(caught.value)
    assert registry.adopt(str(Path("one/mine.py").resolve()) + ":Mine") == "local/Mine"


@pytest.mark.parametrize("reference", ["mine.py:Mine", "mine:Mine"])
@pytest.mark.parametrize("line", ["import sys; sys.exit(2)", "raise GeneratorExit", "1 / 0", "def (:"])
def test_whatever_a_file_raises_is_an_error_of_its_owner_and_can_be_mended(registry, reference, line):
    write("mine.py", "class Mine:\n    scale = 1\n")
    registry.adopt(reference)
    write("mine.py", f"class Mine:\n    scale = 2\n{line}\n")
    before = list(sys.path)
    with pytest.raises(UserError, match="cannot import"):
        registry.adopt(reference)
    assert sys.path == before
    assert registry.load("local/Mine").scale == 1
    write("mine.py", "class Mine:\n    scale = 1\n")
    assert registry.load(registry.adopt(reference)).scale == 1


@pytest.mark.parametrize("reference", ["mine.py:Mine", "mine:Mine"])
def test_a_helper_imported_by_a_file_that_failed_is_imported_again(registry, reference):
    write("mine.py", "import helper\n1 / 0\n")
    write("helper.py", "scale = 1\n")
    with pytest.raises(UserError, match="ZeroDivisionError"):
        registry.adopt(reference)
    write("mine.py", "import helper\nclass Mine:\n    scale = helper.scale\n")
    write("helper.py", "scale = 2\n")
    assert registry.load(registry.adopt(reference)).scale == 2


def test_an_interruption_stays_one(registry):
    write("mine.py", "raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        registry.adopt("mine.py:Mine")


@pytest.mark.parametrize(
    "text", ["mine.py:Mine", "a/b c/mine.py:Mine", "/abs/mine.py:Mine", "pkg.module:Mine", "a.b.c:D"]
)
def test_references_are_told(text):
    assert looks_like_reference(text)


@pytest.mark.parametrize(
    "text", ["atr:paper", "ar:paper-as-written", "mamba", "lab/mine", "a.b", "a.b:", "a..b:C", ":C", "mine.py:"]
)
def test_names_and_presets_are_no_references(text):
    assert not looks_like_reference(text)
