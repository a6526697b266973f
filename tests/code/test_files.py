"""Which code a class is: other code has another identity, the same code elsewhere has the same."""

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mixerscope.code import code_identity
from mixerscope.registry import MIXERS, Registry
from tests.code.sources import sha, write


def of_file(folder: Path, file: str = "mine.py", name: str = "Mine") -> str:
    registry = Registry("mixer", {})
    return sha(registry.code(registry.adopt(f"{folder / file}:{name}")))


def of_module(folder: Path, module: str, name: str = "Mine") -> str:
    """Its identity when `folder` is on the path, imported in this process for the first time."""
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        return sha(code_identity(getattr(importlib.import_module(module), name)))
    finally:
        sys.path.remove(str(folder))
        for loaded in [each for each in sys.modules if each.split(".")[0] == module.split(".")[0]]:
            del sys.modules[loaded]


MINE = "import helper\n\n\nclass Mine:\n    def forward(self, x):\n        return helper.double(x)\n"
HELPER = "def double(x):\n    return 2 * x\n"


def test_our_own_classes_need_no_identity():
    assert code_identity(MIXERS.load("attention")) is None


def test_an_edited_file_is_other_code(tmp_path):
    before = of_file(write(tmp_path, mine="class Mine:\n    scale = 1\n"))
    assert of_file(tmp_path) == before
    assert of_file(write(tmp_path, mine="class Mine:\n    scale = 2\n")) != before


def test_the_same_files_in_another_folder_are_the_same_code(tmp_path, monkeypatch):
    write(tmp_path / "a", mine=MINE, helper=HELPER)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    before = of_file(tmp_path / "a")
    assert of_file(tmp_path / "b") == before
    monkeypatch.chdir(tmp_path / "b")
    assert of_file(Path(), "mine.py") == before


SHOWING = """

if __name__ == "__main__":
    import json

    from mixerscope.code import code_identity

    print(json.dumps(code_identity(Mine)))
"""


def test_a_script_a_file_and_a_module_of_the_same_text_are_the_same_code(tmp_path):
    write(tmp_path, mine=MINE + SHOWING, helper=HELPER + "\n\ndef back():\n    import mine\n")
    shown = subprocess.run([sys.executable, tmp_path / "mine.py"], check=True, capture_output=True, text=True, cwd="/")
    assert sha(json.loads(shown.stdout)) == of_file(tmp_path)
    assert of_module(tmp_path, "mine") == of_file(tmp_path)


DEEP = {
    "directly": {"mine": "import helper\nclass Mine: ...\n"},
    "through another": {"mine": "import between\nclass Mine: ...\n", "between": "from helper import double\n"},
    "inside a function": {"mine": "class Mine:\n    def forward(self):\n        from helper import double\n"},
    "behind a condition": {"mine": "if False:\n    import helper\nclass Mine: ...\n"},
    "in a folder that is no package": {
        "mine": "class Mine:\n    def forward(self):\n        import space.inner\n",
        "space__inner": "import helper\n",
    },
    "in a cycle": {"mine": "import a\nclass Mine: ...\n", "a": "import b\n", "b": "import a, helper\n"},
}


@pytest.mark.parametrize("how", DEEP)
def test_an_edited_helper_is_other_code(tmp_path, how):
    write(tmp_path, helper="double = 2\n", unrelated="x = 1\n", **DEEP[how])
    before = of_file(tmp_path)
    write(tmp_path, unrelated="x = 2\n")
    assert of_file(tmp_path) == before
    write(tmp_path, helper="double = 3\n")
    assert of_file(tmp_path) != before


PACKAGE = {
    "lab__init": "",
    "lab__deep__init": "",
    "lab__deep__mixer": "from . import near\nfrom ..far import x\nfrom lab.deep import absolute\nclass Mine: ...\n",
    "lab__deep__near": "x = 1\n",
    "lab__deep__absolute": "x = 1\n",
    "lab__far": "from .farther import x\n",
    "lab__farther": "x = 1\n",
    "lab__unrelated": "x = 1\n",
}


@pytest.mark.parametrize(
    "file", ["lab__init", "lab__deep__init", "lab__deep__near", "lab__deep__absolute", "lab__farther"]
)
def test_an_edit_in_a_local_package_is_other_code(tmp_path, file):
    before = of_module(write(tmp_path, **PACKAGE), "lab.deep.mixer")
    write(tmp_path, lab__unrelated="x = 2\n")
    assert of_module(tmp_path, "lab.deep.mixer") == before
    write(tmp_path, **{file: PACKAGE[file] + "edited = True\n"})
    assert of_module(tmp_path, "lab.deep.mixer") != before


def test_names_of_modules_count(tmp_path):
    one = of_file(write(tmp_path / "a", mine="import p, q\nclass Mine: ...\n", p="x = 1\n", q="x = 2\n"))
    two = of_file(write(tmp_path / "b", mine="import p, q\nclass Mine: ...\n", p="x = 2\n", q="x = 1\n"))
    assert one != two


def test_two_classes_of_one_file_are_told_apart(tmp_path):
    write(tmp_path, mine="class Mine: ...\nclass Yours: ...\n")
    assert of_file(tmp_path) != of_file(tmp_path, name="Yours")


def test_reading_imports_runs_nothing(tmp_path):
    lazy = "class Mine:\n    def forward(self):\n        import package.inner\n"
    write(tmp_path, mine=lazy, package__init="raise RuntimeError('was run')\n", package__inner="x = 1\n")
    before = of_file(tmp_path)
    assert not any(name.startswith("package") for name in sys.modules)
    assert of_file(write(tmp_path, package__inner="x = 2\n")) != before


@pytest.mark.parametrize(
    "line",
    [
        "import os.path, sys, json, torch.nn.functional, numpy as np",
        "from torch import nn\n\ntry:\n    from torch import no_such_name\nexcept ImportError:\n    nn = 1",
        "from mixerscope.mixers import Mixer\nfrom json import *",
        "try:\n    import no_such_module.at_all\nexcept ImportError:\n    pass",
        "def lazily():\n    from ....beyond import everything",
        "if False:\n    import broken",
    ],
)
def test_imports_from_elsewhere_or_nowhere_do_no_harm(tmp_path, line):
    write(tmp_path, mine=f"{line}\nclass Mine: ...\n", broken="def (:\n")
    first = of_file(tmp_path)
    assert of_file(tmp_path) == first


def test_a_text_that_python_warns_about_is_read_all_the_same(tmp_path):
    write(tmp_path, mine="import helper\nclass Mine:\n    pattern = '\\d'\n", helper="x = 1\n")
    with pytest.warns((SyntaxWarning, DeprecationWarning)):
        before = of_file(tmp_path)
    write(tmp_path, helper="x = 2\n")
    with pytest.warns((SyntaxWarning, DeprecationWarning)):
        assert of_file(tmp_path) != before


def test_a_helper_in_site_packages_is_not_hashed(tmp_path):
    site = write(tmp_path / "site-packages", elsewhere="x = 1\n")
    sys.path.append(str(site))
    write(tmp_path / "here", mine="import elsewhere\nclass Mine: ...\n")
    before = of_file(tmp_path / "here")
    write(site, elsewhere="x = 2\n")
    assert of_file(tmp_path / "here") == before


def install(site: Path, *, editable: bool = False) -> None:
    info = site / "griffin-1.2.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: griffin\nVersion: 1.2.0\n")
    (info / "RECORD").write_text("griffin_lab/__init__.py,,\ngriffin_lab/mixer.py,sha256=abc,12\n")
    (info / "direct_url.json").write_text(json.dumps({"url": "file:///x", "dir_info": {"editable": editable}}))


def griffin(folder: Path) -> type:
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    return importlib.import_module("griffin_lab.mixer").Griffin


def test_an_installed_class_is_told_by_its_version(tmp_path):
    site = tmp_path / "site-packages"
    install(site)
    write(site, griffin_lab__init="", griffin_lab__mixer="class Griffin: ...\n")
    assert code_identity(griffin(site)) == {"distribution": "griffin", "version": "1.2.0"}


def test_a_class_of_an_editable_install_is_told_by_its_source(tmp_path):
    install(tmp_path / "site-packages", editable=True)
    write(tmp_path / "src", griffin_lab__init="", griffin_lab__mixer="class Griffin: ...\n")
    sha(code_identity(griffin(tmp_path / "src")))


def test_an_editable_install_by_a_link_is_told_by_its_source(tmp_path):
    site = tmp_path / "site-packages"
    install(site, editable=True)
    write(tmp_path / "src", griffin_lab__init="", griffin_lab__mixer="from . import near\nclass Griffin: ...\n")
    write(tmp_path / "src", griffin_lab__near="x = 1\n")
    (site / "griffin_lab").symlink_to(tmp_path / "src" / "griffin_lab")
    cls = griffin(site)
    before = sha(code_identity(cls))
    write(tmp_path / "src", griffin_lab__near="x = 2\n")
    assert sha(code_identity(cls)) != before


def test_a_stray_file_in_site_packages_is_told_by_its_source(tmp_path):
    site = tmp_path / "site-packages"
    install(site)
    before = of_module(write(site, stray="class Mine: ...\n"), "stray")
    assert of_module(write(site, stray="class Mine: x = 1\n"), "stray") != before
