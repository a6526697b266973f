"""The study of tracked states, tiny: run, kept, taken in again and again, and drawn."""

import json
import shutil

import polars as pl
import pytest

from mixerscope.analysis.tracking import judge_tracking
from mixerscope.artifacts import Erasures, Interchanges
from mixerscope.artifacts.alignments import Alignments
from mixerscope.cli import main
from mixerscope.experiments.paper.records import ABOUT, write_tables
from mixerscope.experiments.task_flip import verdicts
from mixerscope.experiments.task_flip.claims import load_claims
from mixerscope.experiments.task_flip.models import models_of
from mixerscope.experiments.task_flip.render import FOUND, TABLE
from mixerscope.experiments.task_flip.study import MAIN, Asked, architecture_name, settings, sweeps, task_name
from mixerscope.experiments.task_flip.tables import SCHEMAS, WRITTEN, collect, joined, lacking, load, merged, whole_ids
from mixerscope.results import load_runs
from tests.sweep.test_shipped import SMALL

# The first of the study's sweeps is narrowed to parity alone.
NARROWED = [*SMALL, 'task={"name": "parity", "length": 6}', "stages.probes.logistic=false"]
ASKED = ["reproduce", "task-flip", "--toy", "--seeds", "1", *(word for one in NARROWED for word in ("--set", one))]


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    """One cohort of the study, tiny, kept and drawn."""
    place = tmp_path_factory.mktemp("study")
    assert main([*ASKED, "--out", str(place / "runs"), "--results", str(place / "kept")]) == 0
    return place


def test_where_nothing_is_missing_what_is_kept_is_drawn(studied, tmp_path):
    kept = tmp_path / "kept"
    shutil.copytree(studied / "kept", kept, ignore=shutil.ignore_patterns(TABLE))
    assert main([*ASKED, "--missing", "--out", str(tmp_path / "runs"), "--results", str(kept)]) == 0
    assert (kept / "task-flip" / TABLE).read_text() == (studied / "kept" / "task-flip" / TABLE).read_text()
    assert not (tmp_path / "runs").exists()


def test_runs_are_kept_and_drawn_and_say_what_was_not_run(studied):
    folder = studied / "kept" / "task-flip"
    said = json.loads((folder / FOUND).read_text())
    assert {row["task"] for row in said["cells"]} == {"parity"}
    assert {row["architecture"] for row in said["cells"]} == set(MAIN)
    assert "z6: everything" in said["not_run"]
    assert (folder / "figure.svg").read_text().startswith("<svg")
    text = (folder / TABLE).read_text()
    assert text.count("untestable") == len(load_claims())
    models = models_of(load(folder))
    assert len(models) == 5
    assert all(one.last.keys() == {1, 2, 4, 8} and one.erasures for one in models)
    assert set(load(folder)["probes"]["boundary"].drop_nulls()) == {0, 1, 2}


def test_what_is_kept_is_drawn_again_without_the_runs(studied, capsys):
    folder = studied / "kept" / "task-flip"
    before = (folder / FOUND).read_bytes()
    (folder / FOUND).unlink()
    assert main(["figure", "task-flip", str(studied / "kept")]) == 0
    assert (folder / FOUND).read_bytes() == before


def test_tables_without_a_record_are_drawn_and_no_record_is_made_up(studied, tmp_path):
    """It would not say what they were asked for, and nobody could read them any more."""
    folder = tmp_path / "task-flip"
    shutil.copytree(studied / "kept" / "task-flip", folder)
    (folder / ABOUT).unlink()
    for _ in range(2):
        assert main(["figure", "task-flip", str(tmp_path)]) == 0
        assert not (folder / ABOUT).exists()


def test_verdicts_are_judged_from_tables_as_they_are_from_runs(studied):
    models = load(studied / "kept" / "task-flip")["models"]
    told = dict(models.select("run_id", pl.struct("verdict", "verdict_reason")).iter_rows())
    runs = load_runs(studied / "runs")
    assert len(runs) == len(told) == 5
    for run in runs:
        assert told[run.run_id] == {"verdict": run.state_verdict.name, "verdict_reason": run.state_verdict.reason}


def test_tables_have_of_each_run_what_its_verdict_rests_on(studied, monkeypatch):
    """Whatever these models are called: none of them has learned anything, so that no rule looks at most of it."""
    judged: list[tuple[Interchanges, Erasures, Alignments]] = []

    def noted(lengths, found, erasures, aligned):
        judged.append((found, erasures, aligned))
        return judge_tracking(lengths, found, erasures=erasures, aligned=aligned)

    monkeypatch.setattr(verdicts, "judge_tracking", noted)
    models = load(studied / "kept" / "task-flip")["models"]
    assert models["unwritten"].null_count() == 0, "all were asked"
    kept = dict(zip(models["run_id"], judged, strict=True))
    for run in load_runs(studied / "runs"):
        found, erased, aligned = (run.find(kind) for kind in (Interchanges, Erasures, Alignments))
        again, erased_again, aligned_again = kept[run.run_id]
        assert again.unwritten == found.unwritten is not None
        pairs = [(one, again.cell(one.place, one.how)) for one in found.cells if one.place in WRITTEN]
        pairs = [(one, other) for one, other in pairs if one.how in ("shift", "swap")]
        pairs += [*zip(aligned.learned(), aligned_again.learned(), strict=True)]
        assert all(one.told and one.told == other.told for one, other in pairs)
        assert all(list(one.by_distance) == pytest.approx(list(other.by_distance)) for one, other in pairs)
        assert [one.earlier and one.earlier.value for one in aligned.learned()] == pytest.approx(
            [one.earlier and one.earlier.value for one in aligned_again.learned()]
        )
        left = [{(one.site, one.method): one.unseen for one in each.erased} for each in (erased, erased_again)]
        assert left[0] == pytest.approx(left[1])
        assert any(left[0].values())


def test_packs_are_taken_in_again_and_again(studied, tmp_path):
    """Nothing is doubled, and what was packed before a stage was there takes nothing away."""
    tables = collect([studied / "runs"])
    twice = joined(tables, joined(tables, tables))
    assert all(twice[name].sort("run_id").equals(tables[name].sort("run_id")) for name in SCHEMAS)
    assert lacking(tables) == {}
    old = {**tables, "alignments": tables["alignments"].clear(), "recoveries": tables["recoveries"].clear()}
    for one, other in ((tables, old), (old, tables)):
        assert lacking(joined(one, other)) == {}
    ids = sorted(tables["models"]["run_id"])
    assert {stage: sorted(own) for stage, own in lacking(old).items()} == {"align": ids, "recover": ids}
    write_tables(tmp_path, merged(tmp_path, old), {})
    assert whole_ids(tmp_path) == set()
    write_tables(tmp_path, merged(tmp_path, tables), {})
    assert whole_ids(tmp_path) == {*ids}
    assert whole_ids(tmp_path / "none") == set()


def test_what_was_kept_before_a_column_was_there_is_loaded(studied, tmp_path):
    tables = collect([studied / "runs"])
    assert not tables["lengths"]["guessing_all"].has_nulls()
    write_tables(tmp_path, merged(tmp_path, tables), {})
    (tmp_path / ABOUT).unlink()
    path = tmp_path / "lengths.parquet"
    pl.read_parquet(path).drop("guessing_all").write_parquet(path)
    assert load(tmp_path)["lengths"]["guessing_all"].null_count() == len(tables["lengths"])


def test_a_run_that_newer_code_made_again_is_in_place_of_the_old_one(studied):
    tables = collect([studied / "runs"])
    other = pl.col("run_id") + "-before"
    old = {name: frame.with_columns(other.alias("run_id")) for name, frame in tables.items()}
    assert sorted(joined(old, tables)["models"]["run_id"]) == sorted(tables["models"]["run_id"])
    elsewhere = {**old, "models": old["models"].with_columns(seed=pl.lit(7, pl.Int32))}
    assert len(joined(elsewhere, tables)["models"]) == 2 * len(tables["models"])


def test_models_that_diverged_are_counted(tmp_path):
    over = [word for setting in SMALL for word in ("--set", setting)]
    task = ["--set", 'task={"name": "parity", "length": 6}', "--set", "train.lr=1e30", "--set", "train.steps=4"]
    words = ["reproduce", "task-flip", "--toy", "--seeds", "1", *over, *task]
    assert main([*words, "--out", str(tmp_path / "runs"), "--results", str(tmp_path / "kept")]) == 0
    folder = tmp_path / "kept" / "task-flip"
    said = json.loads((folder / FOUND).read_text())
    assert {(row["models"], row["passed"]) for row in said["cells"]} == {(1, 0)}
    assert json.loads((folder / "about.json").read_text())["diverged"] == 5
    assert len(whole_ids(folder)) == 5, "there is nothing to be made again"


def test_wrong_words_are_one_sentence(tmp_path, capsys):
    for words, part in (
        (["--only", "z7"], "no part of task-flip named 'z7'"),
        (["--preset", "paper"], "has one preset, which is clean"),
        (["--only", ","], "--only takes names with commas between them"),
        (["--widths", "32"], "leave --widths out"),
        (["--collect", str(tmp_path / "none.pack")], "give a pack, or a folder of runs"),
    ):
        assert main(["reproduce", "task-flip", *words, "--results", str(tmp_path / "kept")]) == 2
        assert part in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.slow
def test_the_whole_toy(tmp_path):
    words = ["reproduce", "task-flip", "--toy", "--out", str(tmp_path / "runs"), "--results", str(tmp_path / "kept")]
    assert main(words) == 0
    cells = json.loads((tmp_path / "kept" / "task-flip" / FOUND).read_text())["cells"]
    assert len(cells) == 15
    assert all(row["models"] == 2 for row in cells)


@pytest.mark.slow
@pytest.mark.parametrize("part", [name for name in settings()["parts"] if name not in ("main", "eight")])
def test_every_part_has_a_toy(part, tmp_path):
    """Of `eight` it is that of `main`."""
    over = [word for setting in SMALL for word in ("--set", setting)]
    # Of the sixty states of A5 some must be met often.
    over += ["--set", "stages.interchange.documents=2048", "--set", "stages.align.documents=1024"]
    words = ["reproduce", "task-flip", "--toy", "--only", part, "--seeds", "1", *over]
    assert main([*words, "--out", str(tmp_path / "runs"), "--results", str(tmp_path / "kept")]) == 0
    found = json.loads((tmp_path / "kept" / "task-flip" / FOUND).read_text())
    asked = {(task_name(run.training()["task"]), architecture_name(run.training()["model"])) for run in runs_of(part)}
    assert {(row["task"], row["architecture"]) for row in found["cells"]} == asked


def runs_of(part):
    return [run for sweep in sweeps(Asked(only=(part,), seeds=1)) for run in sweep.runs()]
