"""`mixerscope new mixer`, `task`, `stage`: packages that can be installed, checked and listed, over nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mixerscope.check import check_mixer, check_task
from mixerscope.cli.skeleton import write_skeleton
from mixerscope.errors import UserError

KINDS = ("mixer", "task", "stage")


def written(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_package_is_written(cli, kind, tmp_path):
    code, said, _ = cli("new", kind, "my-thing")
    assert code == 0
    assert "pip install -e" in said
    assert written(tmp_path) == {
        "my-thing/pyproject.toml",
        "my-thing/src/my_thing/__init__.py",
        "my-thing/tests/test_my_thing.py",
    }
    text = (tmp_path / "my-thing" / "src" / "my_thing" / "__init__.py").read_text()
    assert "class MyThing(" in text
    assert "$" not in text


def test_what_is_written_keeps_every_promise(cli, tmp_path):
    for kind, check in (("mixer", check_mixer), ("task", check_task)):
        assert cli("new", kind, f"some-{kind}")[0] == 0
        place = tmp_path / f"some-{kind}" / "src" / f"some_{kind}" / "__init__.py"
        found = check(f"{place}:Some{kind.capitalize()}")
        assert [result for result in found if not result.passed] == []


@pytest.mark.parametrize("name", ["My-Thing", "1st", "a/b", "../up", "a b", "", "class", "a--b", "-a", "ä", "x" * 61])
def test_a_name_that_cannot_be_one_is_refused(refused, name, tmp_path):
    words = ["--", name] if name.startswith("-") else [name]
    assert "cannot name a package" in refused("new", "mixer", *words)
    assert not list(tmp_path.iterdir())


def test_a_refused_name_is_told_which_rule_it_breaks(refused):
    assert "a word of Python" in refused("new", "task", "class")
    assert "at most 60 letters" in refused("new", "task", "x" * 61)


@pytest.mark.parametrize("name", ["torch", "mixerscope", "json"])
def test_a_package_that_is_installed_is_not_hidden(refused, name, tmp_path):
    assert "is installed here already" in refused("new", "task", name)
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(refused, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    (tmp_path / "file").write_text("keep")
    for name in ("mine", "file"):
        assert "exists already" in refused("new", "stage", name)
    assert "cannot be written" in refused("new", "stage", "other", "--out", "file")
    assert written(tmp_path) == {"mine/notes.txt", "file"}


@pytest.mark.slow
def test_installed_its_tests_pass_and_it_is_listed(cli, tmp_path):
    uv = str(Path(sys.executable).with_name("uv"))
    site = tmp_path / "site"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}

    def ran(*words: str) -> str:
        found = subprocess.run(
            [sys.executable, "-m", *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert found.returncode == 0, found.stdout + found.stderr
        return found.stdout

    for kind in KINDS:
        assert cli("new", kind, f"my-{kind}")[0] == 0
        install = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--no-deps", "--target", str(site)]
        subprocess.run([*install, str(tmp_path / f"my-{kind}")], check=True)
        ran("ruff", "check", "--isolated", "--line-length", "120", "--select", "E,F,W", f"my-{kind}")
        ran("pytest", "-q", "-p", "no:cacheprovider", f"my-{kind}/tests")
        assert f"my-{kind}/my_{kind}" in ran("mixerscope", "ls", f"{kind}s")
    for kind in ("mixer", "task"):
        assert "passed all" in ran("mixerscope", "check", f"my-{kind}/my_{kind}")


def test_a_link_that_leads_nowhere_is_not_followed(tmp_path):
    (tmp_path / "mine").symlink_to("nowhere")
    with pytest.raises(UserError, match="exists already"):
        write_skeleton("mixer", "mine", tmp_path)
    assert not (tmp_path / "nowhere").exists()
