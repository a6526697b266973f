"""Seconds of runs, from a sweep's table."""

import pytest

from mixerscope.experiments.paper.collect import seconds_of_runs


def cohort(runs: list[str], wall: float, ending: str = "finished", job: int = 1) -> dict[str, object]:
    return {"kind": "cohort", "job": job, "runs": runs, "members": len(runs), "wall_s": wall, "ending": ending}


def test_cohorts_in_flight_together_share_the_seconds_of_their_job():
    rows = [cohort(["a", "b"], 60.0), cohort(["c"], 30.0), cohort(["d"], 10.0, "out of time"), ended(50.0, 3)]
    found = seconds_of_runs([*rows, cohort(["d"], 20.0), ended(25.0, 1)])
    assert found == pytest.approx({"a": 15.0, "b": 15.0, "c": 15.0, "d": 25.0})


def test_a_cohort_whose_job_has_not_ended_has_no_seconds_yet():
    assert seconds_of_runs([cohort(["a"], 60.0)]) == {}


def test_a_killed_call_leaves_cohorts_whose_seconds_nobody_knows():
    assert seconds_of_runs([cohort(["a"], 60.0), cohort(["b"], 2.0), ended(3.0, 1)]) == {"b": 3.0}


def test_jobs_that_overlap_have_their_own_cohorts():
    rows = [cohort(["a"], 60.0), cohort(["b"], 20.0, job=2), ended(50.0, 1), cohort(["c"], 20.0, job=2)]
    assert seconds_of_runs([*rows, ended(30.0, 2, job=2)]) == {"a": 50.0, "b": 15.0, "c": 15.0}


def ended(wall: float, cohorts: int, job: int = 1) -> dict[str, object]:
    return {"kind": "job", "job": job, "cohorts": cohorts, "wall_s": wall}
