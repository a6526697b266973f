"""What the state study took on a GPU, where several cohorts ran at once."""

import json
import statistics
from pathlib import Path

ROOT = Path(__file__).parents[2]


def shared(rows, row):
    """How many ran while this one did, on average."""
    start, end = row["at"] - row["wall_s"], row["at"]
    beside = (min(end, one["at"]) - max(start, one["at"] - one["wall_s"]) for one in rows)
    return sum(max(0.0, seconds) for seconds in beside) / (end - start)


def test_probes_and_erasure_take_less_than_half_of_training():
    lines = (ROOT / "reproduction" / "task-flip" / "seconds.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if row["kind"] == "cohort" and "at" in row and row["device"] != "cpu"]
    asked = {"probes", "erase"}
    stages = [
        sum(row["by_stage"][name] for name in asked) / shared(rows, row)
        for row in rows
        if not row["train_s"] and asked <= row.get("by_stage", {}).keys()
    ]
    training = [row["train_s"] / shared(rows, row) for row in rows if row["train_s"] and row["stages_s"] < 6]
    assert max(stages) <= 0.5 * min(training)
    said = " ".join((ROOT / "docs" / "state-study.md").read_text().split())
    first, second = ((min(one), max(one), statistics.median(one)) for one in (stages, training))
    told = "probes and erasure took {:.0f} to {:.0f} s of a cohort (median {:.0f}, of 17), training {:.0f} to {:.0f} s"
    assert told.format(*first, *second[:2]) in said
    assert f"s ({second[2]:.0f}), by" in said
    assert len(stages) == 17
