"""What is taken in: a proof is not lost, nor the seconds of a run, whatever comes in which order."""

import json
import shutil

import polars as pl
import pytest

from mixerscope import runs
from mixerscope.experiments.paper.collect import collect
from mixerscope.experiments.paper.render import read_about, take_in
from mixerscope.experiments.paper.sweeps import Choice, load_figure, runs_of
from mixerscope.stages.judge import Judge

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
    rows = [cohort, {"kind": "job", "job": 1, "cohorts": 1, "wall_s": 7.0}]
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
    assert read_about(kept / "fig3")["runs"] == 1


def test_rules_by_which_earlier_runs_were_judged_are_not_forgotten(places, tmp_path):
    bare, proven = places
    about = tmp_path / "fig3" / "about.json"
    take_in(tmp_path, [load_figure("fig3")], [bare], CHOICE, "a command")
    said = read_about(about.parent)
    assert said["judged_by_revisions"] == [Judge.revision]
    about.write_text(json.dumps({**said, "judged_by_revisions": [3, 4]}))
    take_in(tmp_path, [load_figure("fig3")], [proven], CHOICE, "another")
    assert read_about(about.parent)["judged_by_revisions"] == [3, 4, Judge.revision]
