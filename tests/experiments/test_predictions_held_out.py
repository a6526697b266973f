"""Models that nobody had seen when the rules of verdicts were settled: what was foreseen of them, and what came."""

from dataclasses import replace

import pytest

from mixerscope.experiments.task_flip.predictions import foreseen
from mixerscope.experiments.task_flip.render import Study
from mixerscope.experiments.task_flip.study import Asked, settings, sweeps
from mixerscope.experiments.task_flip.tables import empty
from tests.experiments.made_up_states import ALL, LATE, model

WIDTH = settings()["held_out"]["width"]
TASKS = ("parity", "S3", "Z6")


def cohorts(verdict, last, *, accuracy=lambda seed: 1.0):
    """Four seeds of every architecture on three tasks; `verdict` and `last` of a seed."""
    return [
        replace(model(task, name, LATE, seed, verdict(seed), last(seed), accuracy=accuracy(seed)), width=WIDTH)
        for task in TASKS
        for name in ALL
        for seed in range(4)
    ]


def told(models):
    return {one.id: one.true for one in foreseen(models)}


def half(seed):
    return "carried" if seed % 2 else "recomputed"


def test_what_was_foreseen_is_held_against_what_came():
    right = cohorts(half, lambda seed: 1.0 if seed % 2 else 0.5)
    assert told(right) == {"H1": True, "H2": True, "H3": True, "H4": True}
    wrong = cohorts(half, lambda seed: 0.5 if seed % 2 else 1.0)
    assert told(wrong) == {"H1": False, "H2": False, "H3": False, "H4": False}
    assert {one.id: one.came for one in foreseen(wrong)}["H4"] == "0 of 30 carried, 30 of 30 recomputed"
    nearly = cohorts(lambda seed: half(seed) if seed else "carried", lambda seed: 1.0 if seed % 2 else 0.5)
    assert told(nearly) == {"H1": False, "H2": True, "H3": True, "H4": False}, "a third of the carried do not hold"


def test_what_accuracy_tells_as_well_is_no_merit_of_the_verdict():
    models = cohorts(half, lambda seed: 1.0 if seed % 2 else 0.5, accuracy=lambda seed: 1.0 if seed % 2 else 0.995)
    assert told(models) == {"H1": True, "H2": False, "H3": True, "H4": True}


@pytest.mark.parametrize("last", [1.0, 0.5])
def test_where_all_models_end_alike_there_is_nothing_to_foretell(last):
    found = told(cohorts(lambda seed: "undetermined", lambda seed: last))
    assert found == dict.fromkeys(found)
    assert told([]) == found


def test_only_what_is_held_out_is_of_the_width_that_says_so():
    def widths(**how):
        return {run.model.width for sweep in sweeps(Asked(seeds=1, **how)) for run in sweep.runs()}

    part = settings()["held_out"]["part"]
    assert widths(only=(part,)) == {WIDTH}
    assert WIDTH not in widths(only=tuple(one for one in settings()["parts"] if one != part)) | widths(toy=True)


def test_nothing_held_out_counts_where_the_study_is_decided(monkeypatch):
    seen = [replace(one, width=None) for one in cohorts(half, lambda seed: 1.0)]
    unseen = [
        replace(one, run_id=f"small {one.run_id}", cell=(*one.cell[:2], 2)) for one in cohorts(half, lambda seed: 0.5)
    ]
    monkeypatch.setattr("mixerscope.experiments.task_flip.render.models_of", lambda tables: [*seen, *unseen])
    study, alone = Study.of(empty()), [*seen]
    assert [one.run_id for one in study.models] == [one.run_id for one in alone]
    assert {row["hold"] for row in study.as_json()["cells"]} == {4}
    assert {(row["blocks"], row["hold"]) for row in study.as_json()["held_out"]["cells"]} == {(2, 0)}
    assert "## Held out" in study.text()
    monkeypatch.setattr("mixerscope.experiments.task_flip.render.models_of", lambda tables: seen)
    without = Study.of(empty())
    assert "## Held out" not in without.text()
    assert without.as_json()["predictions"] == study.as_json()["predictions"]
    assert without.as_json()["claims"] == study.as_json()["claims"]
