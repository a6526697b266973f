"""What a sweep found: the run at the best learning rate."""

import json
from pathlib import Path

from mixerscope import runs
from mixerscope.machine import CPU
from mixerscope.sweep import execute, load_runs, make_plan
from mixerscope.sweep.best import best_lines, best_runs, finished_runs


def test_the_best_rate_is_chosen_on_dev_documents_per_seed(sweep_file, tmp_path):
    specs = load_runs(str(sweep_file({"train.lr": [1e-3, 1e-2], "seed": [0, 1]})))
    root: Path = tmp_path / "out"
    assert best_runs(finished_runs(specs, root)) == []
    assert best_lines([]) == []
    execute(make_plan(specs, root, CPU), root, CPU)
    found = best_runs(finished_runs(specs, root))
    assert [result.spec.seed for result in found] == [0, 1]
    for result in found:
        rivals = [runs.load_run(runs.run_folder(spec, root).path) for spec in specs if spec.seed == result.spec.seed]
        last = {rival.spec.train.lr: rival.curve()[-1] for rival in rivals}
        highest = max(point["accuracy"] for point in last.values())
        assert last[result.spec.train.lr]["accuracy"] == highest
    header, first, _ = best_lines(found)
    assert header.split() == ["architecture", "d", "seed", "best", "lr", "accuracy", "likelihood", "mechanism", "route"]
    score = found[0].json("evaluation")["estimates"]["original.accuracy"]["value"]
    assert f"{score:.1%}" in first
    assert found[0].json("verdicts")["key"]["mechanism"] in first


def test_a_run_that_diverged_is_never_the_best(sweep_file, tmp_path):
    specs = load_runs(str(sweep_file({"train.lr": [1e-3, 1e30]})))
    root: Path = tmp_path / "out"
    execute(make_plan(specs, root, CPU), root, CPU)
    outcomes = {s.train.lr: json.loads((runs.run_folder(s, root).path / "status.json").read_text()) for s in specs}
    assert outcomes[1e30]["outcome"] == "diverged"
    assert [result.spec.train.lr for result in best_runs(finished_runs(specs, root))] == [1e-3]
