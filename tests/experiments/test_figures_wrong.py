"""Results that are not there, or are of something else."""

import json
import shutil
from pathlib import Path

import pytest

from mixerscope.cli import main
from mixerscope.cli.reproduce import COLLECTS, WRITES
from mixerscope.experiments.paper.records import ABOUT

KEPT = Path(__file__).parents[2] / "reproduction"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["figure", "fig3", "{empty}"], "there are no results below"),
        (["figure", "fig99", "{empty}"], "no figure named 'fig99'"),
        (["figure", "all", "{empty}"], "there are no results below"),
        (["reproduce", "claims", "--results", "{empty}"], "there are no results below"),
        (["reproduce", "page", "--results", "{empty}"], "there are no results below"),
        (["reproduce", "fig3", "--collect", "{empty}/none.pack"], "there are no results in"),
        (["reproduce", "fig3", "--collect", "{empty}"], "holds no finished runs"),
    ],
)
def test_missing_results_are_said_in_a_sentence(words, said, tmp_path, capsys):
    assert main([word.format(empty=tmp_path) for word in words]) == 2
    complaint = capsys.readouterr().err
    assert said in complaint
    assert complaint.count("\n") == 1


def test_a_figure_with_runs_of_its_own_is_not_drawn_from_those_of_others(tmp_path, capsys):
    shutil.copytree(KEPT / "fig3", tmp_path / "fig3", ignore=shutil.ignore_patterns("*.pack"))
    assert main(["figure", "beyond", str(tmp_path)]) == 2
    assert "there are no runs of beyond below" in capsys.readouterr().err
    assert not (tmp_path / "beyond").exists()


def test_a_table_needs_no_runs(tmp_path, capsys):
    assert main(["reproduce", "table-params", "--results", str(tmp_path)]) == 0
    assert "4a" not in capsys.readouterr().out
    assert (tmp_path / "table-params" / "figure.svg").is_file()


@pytest.mark.parametrize("asked", [{"preset": "paper"}, {"toy": True}, {"settings": {"train.steps": 3}}], ids=str)
def test_a_table_that_needs_no_runs_is_made_whatever_lies_beside_it(asked, tmp_path):
    """It takes neither --preset nor --set, so nobody could say what the others were asked for with."""
    shutil.copytree(KEPT / "fig4a", tmp_path / "fig4a", ignore=shutil.ignore_patterns("*.pack"))
    about = tmp_path / "fig4a" / ABOUT
    about.write_text(json.dumps({**json.loads(about.read_text()), **asked}))
    assert main(["reproduce", "table-params", "--results", str(tmp_path)]) == 0
    assert (tmp_path / "table-params" / "figure.svg").is_file()


IDLE = ("--dry-run", "--missing", "--unproven", "--compile")
VALUED = {"--widths": "32", "--seeds": "3", "--only": "mamba", "--set": "train.steps=3", "--out": "runs"}
VALUED |= {"--collect": "x.pack", "--write-sweep": "x.json", "--device": "cuda", "--on": "slurm"}
VALUED |= {"--slurm": "partition=gpu", "--stop-after": "5", "--largest": "3"}


def idle(read: tuple[str, ...] = ()) -> list[list[str]]:
    """Every option that is not among those that are read, with a value where it takes one."""
    own = [[option] for option in IDLE] + [[option, value] for option, value in VALUED.items()]
    return [words for words in own if words[0] not in read]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *(("claims", words) for words in idle()),
        *(("page", words) for words in [*idle(), ["--preset", "paper"]]),
        *(("table-params", words) for words in [*idle(("--dry-run",)), ["--preset", "paper"]]),
        *((each, [*words, "--collect", "x.pack"]) for each in ("all", "task-flip") for words in idle(COLLECTS)),
        *(("all", [*words, "--write-sweep", "x.json"]) for words in idle((*WRITES, "--collect"))),
    ],
    ids=lambda given: given if isinstance(given, str) else " ".join(given),
)
def test_options_of_which_nothing_would_come_are_refused(name, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(KEPT / "fig4a", tmp_path / "reproduction" / "fig4a", ignore=shutil.ignore_patterns("*.pack"))
    before = sorted(tmp_path.rglob("*"))
    assert main(["reproduce", name, *words]) == 2
    complaint = capsys.readouterr().err
    assert f"trains nothing; leave {words[0]}" in complaint
    assert complaint.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("option", ["--results", "--out"])
@pytest.mark.parametrize("name", ["fig3", "task-flip"])
def test_a_file_in_place_of_a_folder_is_found_before_anything_is_trained(option, name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    for place in ("file", "file/below"):
        assert main(["reproduce", name, option, place]) == 2
        assert f"cannot write to {place}; give {option} a folder" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == [tmp_path / "file"]


def test_a_table_of_seconds_that_is_none_is_named(tmp_path, capsys):
    shutil.copy(KEPT / "fig4a" / "convolutions-best.pack", tmp_path)
    for damage in ("{", '{"kind": "cohort"}', "[1]", '{"kind": "job", "job": 1}'):
        (tmp_path / "seconds.jsonl").write_text(f"{damage}\n")
        words = ["--collect", str(tmp_path / "convolutions-best.pack"), "--results", str(tmp_path / "kept")]
        assert main(["reproduce", "fig4a", *words]) == 2
        assert "seconds.jsonl is no table of seconds" in capsys.readouterr().err
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("name", ["task-flip", "table-params"])
def test_what_is_read_in_one_way_takes_no_preset(name, tmp_path, capsys):
    assert main(["figure", name, str(tmp_path), "--preset", "paper"]) == 2
    assert "leave --preset out" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]
