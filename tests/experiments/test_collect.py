"""What is taken in: a proof is not lost, nor the seconds of a run, whatever comes in which order."""

import contextlib
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import polars as pl
import pytest

from mixerscope import runs
from mixerscope.experiments.paper import records
from mixerscope.experiments.paper.collect import collect, commands_of_runs
from mixerscope.experiments.paper.data import Results
from mixerscope.experiments.paper.render import read_about, take_in
from mixerscope.experiments.paper.sweeps import Choice, load_figure, runs_of
from mixerscope.stages.judge import Judge
from mixerscope.sweep.table import typed_command

CHOICE = Choice(toy=True, settings={"train.steps": 2, "train.documents": 32})


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A run of Figure 3 without a proof, and the same with one and a table of seconds beside it."""
    root = tmp_path_factory.mktemp("runs")
    spec = runs_of(load_figure("fig3"), CHOICE)[0]
    stages = {name: stage for name, stage in spec.stages.items() if name != "prove"}
    runs.run(spec.changed(stages=stages), root / "bare", progress=False)
    runs.run(spec, root / "proven", progress=False)
    cohort = {"kind": "cohort", "job": 1, "runs": [spec.run_id], "members": 1, "wall_s": 1.0, "ending": "finished"}
    rows = [cohort, {"kind": "job", "job": 1, "cohorts": 1, "wall_s": 7.0, "command": "a worker"}]
    (root / "proven" / "sweep.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return root / "bare", root / "proven"


def test_of_one_run_in_two_places_the_one_with_a_proof_counts(places):
    tables = [collect(sources) for sources in (places, places[::-1], places[1:])]
    for found in tables:
        assert found.runs.select("proof", "seconds").rows() == [(True, 7.0)]
        assert found.cells.equals(tables[-1].cells)
        assert found.tests.equals(tables[-1].tests)


def test_what_is_kept_with_a_proof_and_seconds_does_not_lose_them(places, tmp_path):
    bare, proven = places
    shutil.copytree(proven, tmp_path / "again", ignore=shutil.ignore_patterns("sweep.jsonl"))
    kept = tmp_path / "kept"
    for source, expected in (
        (bare, (False, None)),
        (proven, (True, 7.0)),
        (tmp_path / "again", (True, 7.0)),
        (bare, (True, 7.0)),
    ):
        take_in(kept, [load_figure("fig3")], [source], CHOICE, "a command")
        found = pl.read_parquet(kept / "fig3" / "runs.parquet")
        assert found.select("proof", "seconds").rows() == [expected]
        tests = pl.read_parquet(kept / "fig3" / "tests.parquet")
        assert tests.is_empty() or set(tests["run_id"]) == set(found["run_id"])
    about = read_about(kept / "fig3")
    assert about["runs"] == 1
    assert (about["commands"], about["trained_by"]) == (["a command"], ["a worker"])


def test_what_was_watched_is_read_where_another_figure_has_the_same_run_unwatched(places, tmp_path):
    watched = runs_of(load_figure("beyond"), replace(CHOICE, only=("emergence",)))[0]
    assert watched.run_id == runs_of(load_figure("fig3"), CHOICE)[0].run_id
    runs.run(watched, tmp_path / "watched", progress=False)
    take_in(tmp_path / "kept", [load_figure("beyond")], [tmp_path / "watched"], CHOICE, "a command")
    alone = Results.load(tmp_path / "kept", CHOICE)
    take_in(tmp_path / "kept", [load_figure("fig3")], [places[1]], CHOICE, "a command")
    both = Results.load(tmp_path / "kept", CHOICE)
    assert both.emergence.equals(alone.emergence)
    assert len(both.emergence) > 0
    assert [len(table) for table in (both.runs, both.cells)] == [len(table) for table in (alone.runs, alone.cells)]


def test_the_command_of_a_job_is_that_of_its_finished_cohorts():
    rows = [
        {"kind": "cohort", "job": 1, "runs": ["a"], "ending": "finished"},
        {"kind": "cohort", "job": 1, "runs": ["b"], "ending": "out of time"},
        {"kind": "job", "job": 1, "cohorts": 2, "command": "one"},
        {"kind": "cohort", "job": 1, "runs": ["b"], "ending": "finished"},
        {"kind": "job", "job": 1, "cohorts": 1, "command": "two"},
        {"kind": "cohort", "job": 1, "runs": ["c"], "ending": "finished"},
        {"kind": "job", "job": 1, "cohorts": 1},
    ]
    assert commands_of_runs(rows) == {"a": "one", "b": "two"}


def test_a_command_is_kept_as_it_was_but_for_where_files_lay(monkeypatch):
    typed = ["reproduce", "fig3", "--set", 'task={"name": "ar"}', "--set", "a.b=c/d", "--results", "kept/a"]
    files = ["--collect", "/me/1.pack", "--collect=/me/own/2.pack", "--slurm", "chdir=/me/own", "--slurm=chdir=/me/own"]
    monkeypatch.setattr("sys.orig_argv", ["/usr/bin/python", "/some/bin/mixerscope", *typed, *files])
    expected = '--set \'task={"name": "ar"}\' --set a.b=c/d --results kept/a'
    expected = f"{expected} --collect 1.pack --collect=2.pack --slurm chdir=own --slurm=chdir=own"
    assert typed_command() == f"mixerscope reproduce fig3 {expected}"


def test_rules_by_which_earlier_runs_were_judged_are_not_forgotten(places, tmp_path):
    bare, proven = places
    about = tmp_path / "fig3" / "about.json"
    take_in(tmp_path, [load_figure("fig3")], [bare], CHOICE, "a command")
    said = read_about(about.parent)
    assert said["judged_by_revisions"] == [Judge.revision]
    about.write_text(json.dumps({**said, "judged_by_revisions": [3, 4]}))
    take_in(tmp_path, [load_figure("fig3")], [proven], CHOICE, "another")
    assert read_about(about.parent)["judged_by_revisions"] == [3, 4, Judge.revision]


@pytest.mark.parametrize("moved", range(5))
def test_killed_while_tables_are_written_leaves_those_of_before_or_all_of_the_new_ones(
    places, tmp_path, monkeypatch, moved
):
    """Files are put into their place one by one; whoever is killed between two of them leaves the rest to the next."""
    bare, proven = places
    for root in (tmp_path / "whole", tmp_path / "killed"):
        take_in(root, [load_figure("fig3")], [bare], CHOICE, "a command")
    take_in(tmp_path / "whole", [load_figure("fig3")], [proven], CHOICE, "another")

    class Killed(BaseException):
        pass

    left = [moved]

    def replace(one, other):
        if not left[0]:
            raise Killed
        left[0] -= 1
        one.replace(other)

    with monkeypatch.context() as patched:
        patched.setattr(records, "_put", replace)
        with contextlib.suppress(Killed):
            take_in(tmp_path / "killed", [load_figure("fig3")], [proven], CHOICE, "another")
    assert Results.load(tmp_path / "killed").runs.select("proof", "seconds").rows() == [(True, 7.0)]
    assert _files(tmp_path / "killed") == _files(tmp_path / "whole")


def test_killed_before_tables_are_whole_leaves_those_of_before(places, tmp_path, monkeypatch):
    bare, proven = places
    take_in(tmp_path, [load_figure("fig3")], [bare], CHOICE, "a command")
    before = _files(tmp_path)

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(records, "write_about", killed)
        with pytest.raises(KeyboardInterrupt):
            take_in(tmp_path, [load_figure("fig3")], [proven], CHOICE, "another")
    assert Results.load(tmp_path).runs["proof"].to_list() == [False]
    assert {name: data for name, data in _files(tmp_path).items() if records.MAKING not in name} == before
    take_in(tmp_path, [load_figure("fig3")], [proven], CHOICE, "another")
    assert not (tmp_path / "fig3" / records.MAKING).exists()
    assert Results.load(tmp_path).runs["proof"].to_list() == [True]


def test_two_that_take_in_at_once_take_turns_and_neither_is_lost(places, tmp_path):
    """Each has read what is kept before it adds to it: without turns one of both was lost, or tables of both lay beside
    each other."""
    bare, proven = places
    for turn in range(4):
        root = tmp_path / str(turn)
        with ThreadPoolExecutor(2) as both:
            asked = [
                both.submit(take_in, root, [load_figure("fig3")], [source], CHOICE, source.name)
                for source in (bare, proven)
            ]
        assert [one.result() for one in asked] == [1, 1]
        assert Results.load(root).runs["proof"].to_list() == [True]
        assert sorted(read_about(root / "fig3")["commands"]) == ["bare", "proven"]
        assert [path.name for path in root.iterdir()] == ["fig3"], "nothing is left of taking turns"


def _files(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
