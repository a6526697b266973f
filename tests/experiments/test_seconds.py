"""Seconds of runs, from a sweep's table."""

import pytest

from mixerscope.experiments.paper.collect import seconds_of_runs


def cohort(runs: list[str], wall: float, ending: str = "finished") -> dict[str, object]:
    return {"kind": "cohort", "runs": runs, "members": len(runs), "wall_s": wall, "ending": ending}


def test_cohorts_in_flight_together_share_the_seconds_of_their_job():
    rows = [cohort(["a", "b"], 60.0), cohort(["c"], 30.0), cohort(["d"], 10.0, "out of time"), job(50.0)]
    found = seconds_of_runs([*rows, cohort(["d"], 20.0), job(25.0)])
    assert found == pytest.approx({"a": 15.0, "b": 15.0, "c": 15.0, "d": 25.0})


def test_a_cohort_whose_job_has_not_ended_has_no_seconds_yet():
    assert seconds_of_runs([cohort(["a"], 60.0)]) == {}


def job(wall: float) -> dict[str, object]:
    return {"kind": "job", "wall_s": wall}
