"""From a description to runs, and from runs to cohorts."""

import json

import pytest

import mixerscope as ms
from mixerscope.errors import UserError
from mixerscope.spec import RunSpec
from mixerscope.sweep.cohorts import group
from mixerscope.sweep.expand import expand
from mixerscope.sweep.source import load_runs, shipped_sweeps
from mixerscope.training.trainer import check_stackable
from tests.sweep.conftest import BASE


def test_every_combination_in_order():
    runs = ms.Sweep(base=BASE, vary={"model.width": [8, 16], "train.lr": [1e-3, 1e-2], "seed": [0, 1]}).runs()
    assert [(run.model.width, run.train.lr, run.seed) for run in runs] == [
        (8, 1e-3, 0),
        (8, 1e-3, 1),
        (8, 1e-2, 0),
        (8, 1e-2, 1),
        (16, 1e-3, 0),
        (16, 1e-3, 1),
        (16, 1e-2, 0),
        (16, 1e-2, 1),
    ]


def test_a_new_architecture_starts_from_its_own_defaults():
    base = RunSpec.model_validate({**BASE, "model": {"architecture": "attention", "options": {"heads": 2}, "width": 8}})
    attention, mamba = ms.Sweep(base=base, vary={"model.architecture": ["attention", "mamba"]}).runs()
    assert attention == base
    assert "heads" not in mamba.model.options
    assert mamba.model.positions == "none"


def test_nothing_varied_is_one_run():
    assert ms.Sweep(base=BASE).runs() == [RunSpec.model_validate(BASE)]


def test_each_run_once_within_a_sweep_and_across_several():
    sweep = ms.Sweep(base=BASE, vary={"seed": [0, 1, 1]})
    assert [run.seed for run in sweep.runs()] == [0, 1]
    assert [run.seed for run in expand([sweep, RunSpec.model_validate(BASE), ms.Sweep(base=BASE)])] == [0, 1]


def test_settings_go_over_everything():
    sweep = ms.Sweep(base=BASE, vary={"train.lr": [1e-3, 1e-2], "seed": [0, 1]})
    runs = expand([sweep, RunSpec.model_validate({**BASE, "seed": 9})], {"train.lr": 0.5})
    assert [(run.train.lr, run.seed) for run in runs] == [(0.5, 0), (0.5, 1), (0.5, 9)]


@pytest.mark.parametrize(
    ("vary", "parts"),
    [
        ({"train.lrr": [1]}, ["'train.lrr'", "did you mean 'train.lr'"]),
        ({"train.lr": [1e-3, -1]}, ["train.lr", "greater than 0", "-1", "at train.lr = -1"]),
        ({"model.architecture": ["mambo"]}, ["'mambo'", "did you mean 'mamba'"]),
        ({"train.lr": []}, ["train.lr has no values"]),
        ({"train.lr": 0.1}, ["vary.train.lr", "0.1"]),
        ({"train.lr": "0.1"}, ["vary.train.lr", "'0.1'"]),
        ({"seed": [0.5]}, ["seed", "integer", "0.5"]),
    ],
)
def test_a_mistake_names_the_path_and_the_value(vary, parts, sweep_file):
    with pytest.raises(UserError) as caught:
        load_runs(str(sweep_file(vary)))
    for part in parts:
        assert part in str(caught.value)


def test_a_file_may_hold_several_sweeps(tmp_path):
    path = tmp_path / "two.json"
    path.write_text(json.dumps([{"base": BASE, "vary": {"seed": [0, 1]}}, {"base": BASE, "vary": {"seed": [1, 2]}}]))
    assert [run.seed for run in load_runs(str(path))] == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{", "is not JSON"),
        ("[]", "describes no runs"),
        ("[3]", "'base' and 'vary'"),
        ('{"vary": {}}', "base: this field is required"),
        ('{"base": {}, "vari": {}}', "did you mean 'vary'"),
        ('{"base": {}, "base": {}}', "stands twice"),
    ],
)
def test_a_file_that_is_no_sweep(tmp_path, text, part):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"bad\.json") as caught:
        load_runs(str(path))
    assert part in str(caught.value)


def test_a_function_that_was_named_is_called(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import mixerscope as ms\n"
        f"BASE = {BASE!r}\n"
        "def seeds(): return ms.Sweep(base=BASE, vary={'seed': [3, 4]})\n"
        "def both(): return [seeds(), ms.RunSpec.model_validate(BASE)]\n"
        "def wrong(): return 3\n"
        "def broken(): raise KeyError('x')\n"
    )
    assert [run.seed for run in load_runs(f"{path}:seeds")] == [3, 4]
    assert [run.seed for run in load_runs(f"{path}:both")] == [3, 4, 0]
    for name, part in (("wrong", "got 3"), ("broken", "KeyError"), ("sedes", "did you mean 'seeds'")):
        with pytest.raises(UserError, match=part):
            load_runs(f"{path}:{name}")


def test_a_source_that_is_nothing():
    with pytest.raises(UserError, match="figure3"):
        load_runs("figure")
    with pytest.raises(UserError, match="there is no sweep file"):
        load_runs("nowhere.json")
    with pytest.raises(UserError, match="cannot import module"):
        load_runs("no_such_module:function")


def test_cohorts_hold_what_can_be_stacked():
    vary = {"train.lr": [1e-3, 1e-2], "model.width": [8, 16], "seed": [0, 1], "train.precision": ["float32", "tf32"]}
    runs = ms.Sweep(base=BASE, vary={**vary, "train.weight_decay": [0.0, 0.1]}).runs()
    cohorts = group(runs)
    assert [len(cohort) for cohort in cohorts] == [8, 8, 8, 8]
    for cohort in cohorts:
        assert len({(run.model.width, run.train.precision) for run in cohort.runs}) == 1
        assert len({(run.train.lr, run.seed, run.train.weight_decay) for run in cohort.runs}) == 8
        check_stackable(list(cohort.runs))
    assert sorted(run.run_id for cohort in cohorts for run in cohort.runs) == sorted(run.run_id for run in runs)


def test_one_training_with_different_stages_is_refused_and_others_are_not_stacked():
    sweep = ms.Sweep(base=BASE, vary={"stages.patch.documents": [8, 16]})
    with pytest.raises(UserError, match=r"one training \(attention-\w{12}\) with different stages"):
        sweep.runs()
    other = {**BASE, "seed": 1, "stages": {"patch": {"documents": 16}, "judge": {}}}
    cohorts = group(expand([ms.Sweep(base=BASE, vary={"seed": [0, 2]}), ms.Sweep(base=other)]))
    assert [[run.seed for run in cohort.runs] for cohort in cohorts] == [[0, 2], [1]]
    assert len({str(cohort) for cohort in cohorts}) == 2


def test_a_sweep_says_which_stages_it_wants():
    [run] = ms.Sweep(base={**BASE, "stages": {"patch": {"documents": 5}, "emergence": {"looks": 2}}}).runs()
    assert list(run.stages) == ["patch", "emergence"]
    assert (run.stages["patch"].documents, run.stages["emergence"].looks) == (5, 2)


def test_large_cohorts_are_cut_into_equal_parts():
    runs = ms.Sweep(base=BASE, vary={"seed": list(range(10))}).runs()
    assert [len(cohort) for cohort in group(runs, largest=4)] == [3, 3, 4]
    assert [run.seed for cohort in group(runs, largest=4) for run in cohort.runs] == list(range(10))
    assert [str(cohort) for cohort in group(runs, largest=4)] == [
        "attention d=8 part=1/3 x3",
        "attention d=8 part=2/3 x3",
        "attention d=8 part=3/3 x4",
    ]
    with pytest.raises(UserError, match="at least 1"):
        group(runs, largest=0)


def test_figure_3_is_what_was_published():
    assert "figure3" in shipped_sweeps()
    runs = load_runs("figure3")
    assert len(runs) == 7 * 5 * 7
    assert len(group(runs)) == 35
    for run in runs:
        assert run.train == RunSpec.model_validate({"task": "ar", "model": {"architecture": "mamba"}}).train.changed(
            lr=run.train.lr
        )
        assert (run.task.num_pairs, run.task.vocab_size) == (16, 8196)
        assert (run.model.layers, run.model.options == {}) == (2, False)
        assert (run.model.positions == "learned") == (run.model.architecture == "attention")
        assert run.stages["patch"].slots == ("key", "value")
    assert {run.train.precision for run in load_runs("figure3", {"train.precision": "tf32"})} == {"tf32"}
