"""What the study says that verdicts foretell, worked out once more from its tables by plain sums."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from mixerscope.experiments.paper.records import ABOUT, sha256
from mixerscope.experiments.task_flip.claims import decided
from mixerscope.experiments.task_flip.models import FOUR, best_of_seeds, models_of
from mixerscope.experiments.task_flip.predictions import asked, by_verdict, predictions, verdict_score
from mixerscope.experiments.task_flip.render import FOUND, TABLE, Study
from mixerscope.experiments.task_flip.tables import load

KEPT = Path(__file__).parents[2] / "reproduction" / "task-flip"
SCORES = {"carried": 1.0, "undetermined": 0.5}


@pytest.fixture(scope="module")
def rows():
    """A row a model that passed the gate, by the files alone."""
    lengths = {(row["run_id"], row["times"]): row for row in pl.read_parquet(KEPT / "lengths.parquet").to_dicts()}
    probes = pl.read_parquet(KEPT / "probes.parquet").drop_nulls("boundary")
    answers = probes.filter((pl.col("label") == "answer") & (pl.col("positions") == "every"))
    best = dict(answers.group_by("run_id").agg(pl.col("readability").max()).iter_rows())
    found = []
    for row in pl.read_parquet(KEPT / "models.parquet").to_dicts():
        short, long = lengths[row["run_id"], 1], lengths[row["run_id"], 4]
        if short["accuracy"] >= 0.99:
            found.append(
                {
                    "cohort": (row["task"], row["architecture"], row["layers"]),
                    "architecture": row["architecture"],
                    "task": row["task"],
                    "holds": long["last"] - long["guessing"] >= 1 - long["last"],
                    "verdict": SCORES.get(row["verdict"], 0.0),
                    "accuracy at the training length": short["accuracy"],
                    "readability": best[row["run_id"]],
                    "later answers, state written": json.loads(row["tests"])["later, shift"],
                }
            )
    for row in found:
        for name, by in (("architecture", "architecture alone"), ("task", "task alone")):
            others = [one for one in found if one["cohort"] != row["cohort"]]
            alike = [one["holds"] for one in others if one[name] == row[name]] or [one["holds"] for one in others]
            row[by] = np.mean(alike)
    return found


def area(rows, by, share=None, often=None):
    """By how many pairs, one that holds and one that does not, the better one has the higher score."""
    score, holds = (np.array([row[name] for row in rows]) for name in (by, "holds"))
    asked = (holds[:, None] & ~holds).astype(float)
    if share is not None:
        asked *= [[a[share] == b[share] for b in rows] for a in rows]
    if often is not None:
        times = np.array([often[row["cohort"]] for row in rows])
        own = np.array([[a["cohort"] == b["cohort"] for b in rows] for a in rows])
        asked *= np.where(own, times, times[:, None] * times)  # a cohort that is drawn twice is two
    won = asked * ((score[:, None] > score) + 0.5 * (score[:, None] == score))
    return won.sum() / asked.sum() if asked.any() else None


def test_the_areas_are_those_of_the_tables(rows):
    said = {one["by"]: one for one in json.loads((KEPT / FOUND).read_text())["predictions"]}
    for by in ("verdict", "accuracy at the training length", "readability", "later answers, state written"):
        assert said[by]["models"] == len(rows) >= 100
    for by in said.keys() & rows[0].keys():
        for name, share in (("overall", None), ("within", "architecture"), ("inside", "cohort")):
            assert said[by][name]["value"] == pytest.approx(area(rows, by, share)), (by, name)


def test_the_intervals_are_those_of_other_draws_of_cohorts(rows):
    [said] = [one for one in json.loads((KEPT / FOUND).read_text())["predictions"] if one["by"] == "verdict"]
    cohorts, rng = sorted({row["cohort"] for row in rows}), np.random.default_rng(7)
    for name, share in (("overall", None), ("within", "architecture")):
        drawn = [rng.multinomial(len(cohorts), [1 / len(cohorts)] * len(cohorts)) for _ in range(60)]
        values = [area(rows, "verdict", share, dict(zip(cohorts, times, strict=True))) for times in drawn]
        ends = np.quantile([value for value in values if value is not None], [0.025, 0.975])
        assert [said[name]["low"], said[name]["high"]] == pytest.approx(ends, abs=0.06)


def test_what_is_kept_of_the_study_is_that_of_its_data():
    tables = load(KEPT)
    stored = pl.read_parquet(KEPT / "models.parquet")
    assert stored.equals(tables["models"].select(stored.columns)), "verdicts of other rules: make reproduction"
    study = Study.of(tables)
    assert (KEPT / TABLE).read_text() == study.text()
    said = json.loads((KEPT / FOUND).read_text())
    assert [(one["id"], one["outcome"]) for one in said["claims"]] == [(c.id, f.outcome) for c, f in study.claims]
    assert said["cells"] == json.loads(json.dumps(study.as_json()["cells"]))
    again = decided(best_of_seeds(study.models, highest=True))
    assert {id: one["outcome"] for id, one in said["with_highest_rates"].items()} == {c.id: f.outcome for c, f in again}
    recorded = json.loads((KEPT / ABOUT).read_text())["files"]
    assert recorded == {name: sha256(KEPT / name) for name in recorded}


def _told(models, share):
    """What verdicts foretell of last answers that are at least so much of the way from guessing to right."""
    rows = [{"score": verdict_score(m), "holds": m.beyond_guessing(FOUR) >= share} for m in models]
    return area(rows, "score")


def test_what_the_document_says_of_misses_is_that_of_the_data():
    """In words, so that nobody forgets them when more cohorts are kept."""
    said = " ".join((KEPT.parents[1] / "docs" / "state-study.md").read_text().split())
    models = asked(models_of(load(KEPT)))
    areas = {one.by: one.overall.value for one in predictions(models) if one.overall is not None}
    told = (areas[by] for by in ("architecture and task", "accuracy at the training length", "readability"))
    both, accuracy, readability = told
    assert f"together give {both:.2f}, accuracy {accuracy:.2f}, readability {readability:.2f}" in said
    [inside] = [one.inside for one in predictions(models) if one.by == "verdict"]
    assert f"may: {inside.value:.2f} ({inside.low:.2f} to {inside.high:.2f})" in said
    easy = [m for m in models if m.cell[0].startswith("Dyck") or m.cell[1] == "Transformer"]
    assert not any(m.holds(FOUR) for m in easy if m.cell[1] == "Transformer")
    rest = [m for m in models if m not in easy]
    assert f"without both it is {_told(rest, 0.5):.2f}, over {len(rest)} models" in said
    assert _told(models, 0.5) == pytest.approx(areas["verdict"])
    shares = _told(models, 0.75), _told(models, 0.9)
    assert "at three quarters of it the area is {:.2f}, at nine tenths {:.2f}".format(*shares) in said
    assert f"a state that is written, gives {areas['later answers, state written']:.2f}" in said
    named = by_verdict(models)
    (count, held), (others, wrong), (open_, good) = (named[name] for name in ("carried", "recomputed", "undetermined"))
    assert f"{held} of {count} that are called carried hold, and {wrong} of {others} that are called recomputed" in said
    assert f"{open_} of {len(models)} models are undetermined, of which {good} hold" in said
    short = " ".join((KEPT.parents[1] / "docs" / "states.md").read_text().split())
    assert f"In {len(models)} trained models {held} of {count} that are called carried hold" in short
    assert f"no rule looks at, and {wrong} of {others} that are called recomputed" in short
    reasons = dict(load(KEPT)["models"].select("run_id", "verdict_reason").iter_rows())
    waiting = sum("stage align would tell" in reasons[m.run_id] for m in models)
    assert f"{waiting} of these wait for a stage" in said
    assert f"of the {sum(m.whole for m in models)} models with every stage" in said
    resets = [m for m in models if m.cell[0] == "S3 with resets"]
    without = predictions([m for m in models if m not in resets])[0]
    assert f"Without these five cohorts the area is {without.overall.value:.2f}" in said
    recurrent = [m for m in resets if m.cell[1] != "Transformer"]
    assert all(m.holds(FOUR) for m in recurrent)
    counts = len(recurrent), [m.verdict for m in recurrent].count("carried")
    assert "all {} recurrent models do, of which {} are called carried".format(*counts) in said
    broken = [m for m in models if m.verdict == "carried" and not m.holds(FOUR)]
    assert all(m.beyond_guessing(2) > 0.5 for m in broken), "still right in most documents"
    most = [f"{n} {cell[1]} on {cell[0]}" for cell, n in Counter(m.cell for m in broken).most_common(2)]
    named = ", ".join(most).replace("Mamba, signed", "Mamba with signed transitions")
    assert f"Of the {len(broken)} carried ones that do not hold, {named.replace(' ', ' are ', 1)}." in said
    grounds = ("state that is written", "no one code")
    carried = [[m for m in models if m.verdict == "carried" and part in reasons[m.run_id]] for part in grounds]
    assert sum(map(len, carried)) == count
    written, none = ((len(own), sum(bool(m.holds(FOUR)) for m in own)) for own in carried)
    assert "Of {} that follow what is written {} hold, of {} in no one code {}.".format(*written, *none) in said
