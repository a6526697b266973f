"""The sweeps of the figures: their sizes are the published ones, and the options narrow them."""

import json
from math import prod

import polars as pl
import pytest

import mixerscope as ms
from mixerscope.cli import main
from mixerscope.errors import UserError
from mixerscope.experiments.paper.collect import NO_PROOF
from mixerscope.experiments.paper.data import MEMBERS, kept_ids, kinds_of
from mixerscope.experiments.paper.sweeps import (
    Choice,
    as_file,
    figure_names,
    load_figure,
    runs_of,
    share_of_each,
    sweeps_of,
    without,
)
from mixerscope.sweep.source import load_runs

# Models of one seed that each figure shows, counted by hand from the paper: architectures x widths x rates.
PUBLISHED_SIZES = {
    "fig1": 3 * 5 * 7 + 3 * 5 * 5 + 5 * 7,
    "fig3": 245,
    "fig4a": 175,
    "fig4b": 4 * 25 + 35,
    "fig5": 35,
    "fig7": 175,
    "fig8": 140 + 25,
    "fig9": 300 + 300 + 150 + 125 + 3 * 50,
    "fig10": 150,
    "fig11": 175 + 210 + 125 + 150,
    "fig12": 175 + 210 + 210,
    "fig13": 125 + 150 + 150,
}


@pytest.mark.parametrize("name", PUBLISHED_SIZES)
def test_a_figure_has_the_models_of_the_paper(name):
    sizes = [
        len(sweep.runs()) if name in ("fig3", "fig5") else _count(sweep)
        for sweep in sweeps_of(load_figure(name), Choice(seeds=1))
    ]
    assert sum(sizes) == PUBLISHED_SIZES[name]


def _count(sweep: ms.Sweep) -> int:
    count = 1
    for values in sweep.vary.values():
        count *= len(values)
    return count


def test_every_figure_of_the_paper_is_there():
    assert {*PUBLISHED_SIZES, "table-params", "beyond", "questions"} == {*figure_names()}


def ids(name: str, **choice: object) -> set[str]:
    return {run.run_id for run in runs_of(load_figure(name), Choice(**choice))}  # pyright: ignore[reportArgumentType]


def test_figures_share_their_runs():
    fig3 = ids("fig3", seeds=1, widths=(64,))
    assert ids("fig5", seeds=1, widths=(64,)) < fig3
    assert ids("fig4a", seeds=1, widths=(64,), only=("conv-4",)) == ids("fig5", seeds=1, widths=(64,))
    assert ids("fig4b", seeds=1, widths=(64,), only=("kernel-3",)) < fig3
    assert ids("fig12", seeds=1, widths=(64,), only=("layers-2",)) < fig3
    assert ids("fig11", seeds=1, widths=(64,), only=("recall-1",)) == ids(
        "fig12", seeds=1, widths=(64,), only=("layers-1",)
    )
    assert not ids("fig4a", seeds=1, widths=(64,), only=("conv-3",)) & fig3


def test_the_runs_that_are_kept_are_runs_of_figure_3(root):
    kept = {run.run_id for run in load_runs(str(root / "reproduction" / "fig3" / "sweep.json"))}
    assert kept < ids("fig3", seeds=5)


def test_presets_train_the_same_models_and_judge_them_in_their_own_way():
    assert ids("fig3", preset="paper", widths=(16,), seeds=1) == ids("fig3", preset="clean", widths=(16,), seeds=1)
    paper, clean = (
        runs_of(load_figure("fig3"), Choice(preset=p, widths=(16,), seeds=1))[0] for p in ("paper", "clean")
    )
    assert paper.stages["judge"].rules.reading == "published"
    assert "prove" not in paper.stages
    assert list(clean.stages) == ["patch", "prove", "judge"]
    assert clean.stage_id("patch") == paper.stage_id("patch")


def test_what_the_figures_vary_arrives_in_the_models():
    def models(name: str, part: str) -> list[ms.RunSpec]:
        return runs_of(load_figure(name), Choice(seeds=1, widths=(16,), only=(part,)))

    assert {run.model.options["d_conv"] for run in models("fig4a", "none")} == {0}
    assert {run.model.layer_specs()[0].options["kernel"] for run in models("fig4b", "long")} == {"long"}
    assert {run.model.positions for run in models("fig9", "longer-learned")} == {"learned"}
    assert {run.model.positions for run in models("fig9", "longer-none")} == {"none"}
    assert {(run.model.options["relative"], run.model.positions) for run in models("fig9", "relative-recall")} == {
        ("rope", "none"),
        ("alibi", "none"),
    }
    assert {(run.train.schedule, run.task.held_out) for run in models("fig10", "split")} == {("linear", 0.2)}
    assert {(run.model.layers, run.task.relations) for run in models("fig13", "layers-3")} == {(3, ("sibling",))}
    assert {run.model.positions for run in models("fig3", "attention")} == {"learned"}
    assert "patch_dev" in models("fig10", "split")[0].stages


def test_a_written_sweep_gives_the_same_runs(tmp_path):
    choice = Choice(seeds=2, widths=(64,), only=("none", "conv-1"))
    file = tmp_path / "part.json"
    code = main(
        ["reproduce", "fig4a", "--seeds", "2", "--widths", "64", "--only", "none,conv-1", "--write-sweep", str(file)]
    )
    assert code == 0
    assert [run.run_id for run in load_runs(str(file))] == [run.run_id for run in runs_of(load_figure("fig4a"), choice)]
    assert len(load_runs(str(file))) == 2 * 2 * 7


def test_a_setting_goes_over_every_run():
    runs = runs_of(load_figure("fig5"), Choice(seeds=1, settings={"train.precision": "float32"}))
    assert {run.train.precision for run in runs} == {"float32"}


def test_a_file_of_sweeps_is_json_of_sweeps():
    data = json.loads(as_file(sweeps_of(load_figure("fig5"))))
    assert [ms.Sweep.model_validate(part) for part in data] == sweeps_of(load_figure("fig5"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fig99"], "no figure named 'fig99'"),
        (["pages"], "did you mean 'page'?"),
        (["fig3", "--preset", "papier"], "no preset named 'papier'; did you mean 'paper'?"),
        (["fig3", "--widths", "48"], "fig3 has the widths 16, 32, 64, 128, 256, not 48"),
        (["fig3", "--widths", "wide"], "--widths takes numbers"),
        (["fig3", "--only", "mambo"], "no part or architecture of fig3 named 'mambo'"),
        (["fig3", "--seeds", "0"], "at least 1, got 0"),
        (["fig3", "--on", "cluster"], "--on is 'local'"),
        (["fig3", "--slurm", "partition=gpu"], "which is for --on slurm"),
        (["fig3", "--widths", ""], "--widths takes numbers"),
        (["fig3", "--only", ""], "--only takes names"),
        (["fig3", "--on", "mars", "--dry-run"], "--on is 'local'"),
        (["fig3", "--on", "local:0", "--dry-run"], "a number of processes from 1"),
        (["fig3", "--on", "slurm:x", "--dry-run"], "a number of jobs from 1"),
        (["fig3", "--slurm", "partition=gpu", "--dry-run"], "which is for --on slurm"),
        (["fig3", "--on", "slurm", "--slurm", "array=3", "--dry-run"], "is set by mixerscope"),
        (["fig3", "--stop-after", "-5", "--dry-run"], "a positive number of seconds"),
        (["fig3", "--largest", "0", "--dry-run"], "at least 1 model"),
        (["task-flip", "--on", "mars", "--dry-run"], "--on is 'local'"),
        (["fig3", "--set", "foo=1"], "no setting named 'foo'; known ones begin with data_seed, model,"),
        (["fig3", "--set", "stepz=1"], "did you mean 'stages.align.steps' or 'train.steps'?"),
        (["all", "--only", "mambo", "--dry-run"], "architecture of any figure named 'mambo'; did you mean 'mamba'?"),
        (["all", "--widths", "48", "--dry-run"], "the figures have the widths 16, 32, 64, 128, 256, not 48"),
        (["all", "--only", "attention", "--widths", "8", "--dry-run"], "the figures have the widths"),
        (["table-params", "--write-sweep", "x.json"], "trains nothing"),
        (["fig5", "--write-sweep", "/nowhere/x.json"], "cannot write the sweep"),
    ],
)
def test_wrong_words_are_answered_in_a_sentence(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *words]) == 2
    complaint = capsys.readouterr().err
    assert said in complaint
    assert complaint.count("\n") == 1
    assert len(complaint) < 300
    assert not [*tmp_path.iterdir()]


def test_of_all_figures_those_that_have_what_is_named_are_asked_for():
    figures = [load_figure(name) for name in figure_names() if not load_figure(name).apart]

    def shares(**choice: object) -> dict[str, Choice]:
        asked = Choice(**choice)  # pyright: ignore[reportArgumentType]
        return {figure.name: own for figure, own in share_of_each(figures, asked)}

    assert list(shares()) == [figure.name for figure in figures]
    without_attention = {"fig4a", "fig4b", "fig5", "fig8"}
    assert set(shares(only=("attention",))) == {figure.name for figure in figures} - without_attention
    assert set(shares(only=("conv-1",))) == {"fig4a", "fig8", "table-params"}
    assert set(shares(widths=(256,))) == {figure.name for figure in figures}
    more = [*figures, load_figure("beyond")]
    with_16 = [figure.name for figure, _ in share_of_each(more, Choice(widths=(16,)))]
    assert with_16 == [figure.name for figure in figures], "beyond has none of width 16"
    own = shares(only=("attention", "conv-1"))
    assert (own["fig3"].only, own["fig4a"].only) == (("attention",), ("conv-1",))
    for name, choice in own.items():
        assert runs_of(load_figure(name), choice) or name == "table-params"
    with pytest.raises(UserError, match="no figure has runs with all of this: emergence, width 128"):
        share_of_each([load_figure("beyond"), load_figure("table-params")], Choice(only=("emergence",), widths=(128,)))


def test_nothing_left_is_an_error():
    with pytest.raises(UserError, match="has no runs with all of this"):
        runs_of(load_figure("beyond"), Choice(widths=(128,), only=("emergence",)))


@pytest.mark.parametrize("name", [name for name in PUBLISHED_SIZES if name != "fig9"])
def test_no_two_parts_of_a_figure_have_the_same_kind_of_training(name):
    combinations = [
        prod(len(values) for path, values in part.vary.items() if path not in MEMBERS)
        for part in load_figure(name).parts
    ]
    assert len(kinds_of(name, Choice())) == sum(combinations)


def test_of_what_is_kept_only_cohorts_with_a_run_missing_are_left():
    sweeps = sweeps_of(load_figure("fig4a"), Choice(seeds=2, widths=(32, 64), only=("none", "conv-1")))
    runs = [run for sweep in sweeps for run in sweep.runs()]
    assert without(sweeps, ()) == sweeps
    assert without(sweeps, {run.run_id for run in runs}) == []
    for lacking in (runs[0], runs[-1], runs[17]):
        [left] = without(sweeps, {run.run_id for run in runs} - {lacking.run_id})
        found = left.runs()
        assert lacking in found
        assert len(found) == 14  # two seeds of seven rates, all to be stacked again
        assert {run.model.width for run in found} == {lacking.model.width}
    narrow = {run.run_id for run in runs if run.model.width == 32}
    assert [run for sweep in without(sweeps, narrow) for run in sweep.runs()] == [
        run for run in runs if run.model.width == 64
    ]


def test_runs_that_another_figure_has_without_a_stage_are_missing(tmp_path, capsys):
    (tmp_path / "fig3").mkdir()
    asked = runs_of(load_figure("beyond"), Choice(only=("emergence",)))
    table = {"run_id": [run.run_id for run in asked], "mechanism": ["induction"] * len(asked)}
    pl.DataFrame(table).write_parquet(tmp_path / "fig3" / "runs.parquet")
    words = ["beyond", "--only", "emergence", "--missing", "--results", str(tmp_path)]
    assert main(["reproduce", *words, "--write-sweep", str(tmp_path / "part.json")]) == 0
    assert {run.run_id for run in load_runs(str(tmp_path / "part.json"))} == {*table["run_id"]}
    (tmp_path / "fig3").rename(tmp_path / "beyond")
    assert main(["reproduce", *words, "--write-sweep", str(tmp_path / "none.json")]) == 2
    assert "all of this is kept" in capsys.readouterr().err


def test_runs_without_a_name_for_want_of_a_proof_can_be_asked_for(tmp_path):
    (tmp_path / "fig3").mkdir()
    (tmp_path / "study").mkdir()
    names = {"a": NO_PROOF, "b": "induction", "c": None, "d": "not above guessing"}
    pl.DataFrame({"run_id": [*names], "mechanism": [*names.values()]}).write_parquet(tmp_path / "fig3" / "runs.parquet")
    pl.DataFrame({"run_id": ["e"]}).write_parquet(tmp_path / "study" / "models.parquet")
    assert kept_ids(tmp_path) == {*"abcde"}
    assert kept_ids(tmp_path, proven=True) == {*"bcde"}
    bare = ["--results", str(tmp_path), "--seeds", "1", "--widths", "16", "--unproven"]
    assert main(["reproduce", "fig3", *bare, "--write-sweep", str(tmp_path / "part.json")]) == 0
    assert len(load_runs(str(tmp_path / "part.json"))) == 49
    assert main(["reproduce", "task-flip", "--unproven", "--dry-run"]) == 2
