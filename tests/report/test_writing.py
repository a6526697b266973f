"""Where the page goes, what it refuses, and what it leaves alone."""

import os

import pytest

from mixerscope.errors import CorruptFile, UserError
from mixerscope.report import write_report
from mixerscope.store import read_json

from .conftest import find_run


def test_the_same_runs_give_the_same_bytes(folder, tmp_path):
    root = folder("based", "attention", "two slots")
    first = write_report(root, tmp_path / "a" / "first.html")
    second = write_report(root, tmp_path / "b" / "second.html")
    assert first.read_bytes() == second.read_bytes()
    assert (tmp_path / "a" / "summary.json").read_bytes() == (tmp_path / "b" / "summary.json").read_bytes()


def test_the_page_can_go_elsewhere(folder, tmp_path):
    root = folder("based")
    (tmp_path / "there").mkdir()
    assert write_report(root, tmp_path / "there") == tmp_path / "there" / "report.html"
    assert write_report(str(root), tmp_path / "new" / "page.html") == tmp_path / "new" / "page.html"
    assert (tmp_path / "new" / "summary.json").is_file()
    assert not (root / "report.html").exists()


def test_a_folder_without_runs_is_refused_and_left_as_it_was(tmp_path):
    with pytest.raises(UserError, match="no finished runs"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["effects.safetensors", "evaluation.json", "verdicts.json", "curve.json", "self_test.json"]
)
def test_a_tampered_file_is_refused(folder, name):
    root = folder("based")
    [path] = find_run(root, "based").path.rglob(name)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptFile, match=name):
        write_report(root)
    assert not (root / "report.html").exists()


def test_a_page_of_ours_is_written_anew(folder):
    root = folder("based")
    write_report(root)
    folder("attention")
    write_report(root)
    assert len(read_json(root / "summary.json")["models"]) == 2
    assert "attention" in (root / "report.html").read_text()


def foreign(path):
    path.write_text('<!doctype html>\n<meta name="generator" content="my thesis">\n{"generator": "mixerscope"}')


def symlink(path):
    elsewhere = path.with_name("elsewhere")
    elsewhere.write_text('{"generator": "mixerscope"}<meta name="generator" content="mixerscope 0">')
    path.symlink_to(elsewhere)


HINDRANCES = {
    "a file of someone's": foreign,
    "an empty file": lambda path: path.touch(),
    "a link": symlink,
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a pipe": os.mkfifo,
    "a folder": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("name", ["page.html", "summary.json"])
@pytest.mark.parametrize("what", HINDRANCES)
def test_what_is_not_ours_is_not_overwritten(folder, tmp_path, name, what):
    root, there = folder("based"), tmp_path / "there"
    there.mkdir()
    HINDRANCES[what](there / name)
    before = {path.name: path.lstat() for path in there.iterdir()}
    if (what, name) == ("a folder", "page.html"):  # a folder that is there receives the page
        (there / name / "report.html").write_text("mine")
    with pytest.raises(UserError, match="was not written by mixerscope"):
        write_report(root, there / "page.html")
    assert {path.name: path.lstat() for path in there.iterdir()}.keys() == before.keys()
    assert (there / name).lstat().st_ino == before[name].st_ino


def test_the_page_cannot_take_the_place_of_the_table(folder, tmp_path):
    with pytest.raises(UserError, match=r"cannot be called summary\.json"):
        write_report(folder("based"), tmp_path / "summary.json")
    assert not (tmp_path / "summary.json").exists()
