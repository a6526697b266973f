"""What a sweep found: the run at the best learning rate."""

from pathlib import Path

import pytest

from mixerscope import results, runs
from mixerscope.artifacts import Curve
from mixerscope.machine import CPU
from mixerscope.registry import MIXERS
from mixerscope.sweep.best import best_lines, best_runs, finished_runs
from mixerscope.sweep.execute import execute
from mixerscope.sweep.plan import make_plan
from mixerscope.sweep.source import load_runs
from tests.sweep.conftest import BASE


def made(specs, root: Path):
    execute(make_plan(specs, root, CPU), root, CPU)
    return finished_runs(specs, root)


def last_accuracy(monkeypatch, by_rate):
    """Sets what each run reached on dev documents, by its learning rate."""

    def curve(self):
        last = self.folder.read(Curve).points[-1]
        return Curve((type(last)(last.step, last.loss, by_rate[self.training["train"]["lr"]], 0.5),))

    monkeypatch.setattr(results.RunResult, "curve", property(curve))


def test_the_best_rate_is_chosen_on_dev_documents_per_seed(sweep_file, tmp_path):
    specs = load_runs(str(sweep_file({"train.lr": [1e-3, 1e-2], "seed": [0, 1]})))
    root: Path = tmp_path / "out"
    assert best_runs(finished_runs(specs, root)) == []
    assert best_lines([]) == []
    found = best_runs(made(specs, root))
    assert [result.spec.seed for result in found] == [0, 1]
    for result in found:
        same = [runs.load_run(runs.run_folder(spec, root).path) for spec in specs if spec.seed == result.spec.seed]
        last = {other.spec.train.lr: other.curve.points[-1].accuracy for other in same}
        assert last[result.spec.train.lr] == max(last.values())
    header, first, _ = best_lines(found)
    assert header.split() == ["architecture", "d", "seed", "best", "lr", "accuracy", "likelihood", "mechanism", "route"]
    assert f"{found[0].scores.accuracy.value:.1%}" in first
    assert found[0].verdicts["key"].mechanism in first


@pytest.mark.parametrize(("accuracies", "best"), [({1e-3: 0.2, 1e-2: 0.7}, 1e-2), ({1e-3: 0.7, 1e-2: 0.7}, 1e-3)])
def test_ties_go_to_the_lower_rate(sweep_file, tmp_path, monkeypatch, accuracies, best):
    found = made(load_runs(str(sweep_file({"train.lr": [1e-3, 1e-2]}))), tmp_path)
    last_accuracy(monkeypatch, accuracies)
    assert [result.spec.train.lr for result in best_runs(found)] == [best]
    assert [result.spec.train.lr for result in best_runs(reversed(found))] == [best]


def test_a_run_that_diverged_is_never_the_best(sweep_file, tmp_path):
    specs = load_runs(str(sweep_file({"train.lr": [1e-3, 1e30]})))
    found = made(specs, tmp_path)
    assert [result.status.outcome for result in found] == ["finished", "diverged"]
    assert [result.spec.train.lr for result in best_runs(found)] == [1e-3]


def test_the_best_may_be_one_that_cannot_be_patched_and_the_table_says_so(
    sweep_file, tmp_path, monkeypatch, unpatchable
):
    unpatchable(1)
    found = made(load_runs(str(sweep_file({"train.lr": [1e-3, 1e-2]}))), tmp_path)
    last_accuracy(monkeypatch, {1e-3: 0.2, 1e-2: 0.7})
    [best] = best_runs(found)
    assert best.spec.train.lr == 1e-2
    header, row, below = best_lines([best])
    assert row[header.index("mechanism") :] == "the model cannot be patched"
    assert f"{best.scores.accuracy.value:.1%}" in row
    assert below == f"attention-{best.run_id}: the model cannot be patched: site 'embed' leaks"


def test_runs_that_nobody_judged_have_a_row(sweep_file, tmp_path):
    source = sweep_file({"seed": [0]}, base={**BASE, "stages": {}})
    [row] = best_lines(best_runs(made(load_runs(str(source)), tmp_path)))[1:]
    assert row.split()[-4:] == ["–", "–", "not", "judged"]


def test_settings_that_vary_are_columns_and_no_two_rows_have_the_same_name(sweep_file, tmp_path):
    vary = {"model.architecture": ["mamba"], "model.options.d_conv": [2, 3, 4], "train.lr": [1e-3, 1e-2]}
    mamba = load_runs(str(sweep_file(vary)))
    decays = load_runs(str(sweep_file({"train.weight_decay": [0.0, 0.1], "train.lr": [1e-3, 1e-2]}, name="b.json")))
    header, *rows = best_lines(best_runs(made([*mamba, *decays], tmp_path)))
    assert header.split()[:6] == ["architecture", "d", "d_conv", "weight_decay", "seed", "best"]
    names = [row[: header.index("best lr")].split() for row in rows]
    assert names[:3] == [["mamba", "8", d_conv, "0", "0"] for d_conv in ("2", "3", "4")]
    assert names[3:] == [["attention", "8", decay, "0"] for decay in ("0", "0.1")], "attention has no d_conv"


def test_stored_results_are_enough(sweep_file, tmp_path, own_mixer):
    """A folder can be read where the mixer that was trained is not at hand."""
    name, root = MIXERS.adopt(own_mixer), tmp_path / "out"
    made(load_runs(str(sweep_file({"model.architecture": [name], "train.lr": [1e-3, 1e-2]}))), root)
    for known in (MIXERS._entries, MIXERS._loaded, MIXERS._adopted):
        del known[name]
    [best] = best_runs(results.load_runs(root))
    assert best_lines([best])[1].startswith("local/Own ")
