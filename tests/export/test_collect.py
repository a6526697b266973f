"""One frame for everything: what is in it, whose it is, and that nothing is missing without a word."""

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import mixerscope as ms
from mixerscope.artifacts import tables_of
from mixerscope.artifacts.effects import COLUMNS
from mixerscope.cli import main
from mixerscope.errors import CorruptFile, UnknownName, UserError
from mixerscope.export.frame import RENAMED, RUN, TABLES, declared, kind_of
from mixerscope.export.tables import READERS
from mixerscope.packs import write_pack
from mixerscope.registry import OURS, STAGES
from mixerscope.results import load_runs
from mixerscope.runs import redo
from mixerscope.stages.judge import Judge


def artifacts(root: Path):
    """Every table of every stage, as whoever loads a run has it."""
    from mixerscope.artifacts.effects import EffectTable
    from mixerscope.artifacts.proof import Proof

    own = {EffectTable.file: EffectTable, Proof.file: Proof}
    for result in load_runs(root):
        yield result, "train", "curve", list(result.curve.rows())
        for stage in result.stages.values():
            for file in stage.seal.files:
                if file in READERS:
                    artifact = stage.folder.read(own.get(file, READERS[file]))
                    for name, rows in tables_of(artifact).items():
                        yield result, stage.name, name, list(rows)


def test_every_table_is_in_it_row_by_row(made: Path):
    frame = ms.collect(made)
    seen = {"run", "stage", "effects"}
    for result, stage, table, rows in artifacts(made):
        seen.add(table)
        if table == "effects":
            continue
        found = frame.filter(run_id=result.run_id, stage=stage, table=table)
        named = [{RENAMED.get((table, k), k): v for k, v in row.items()} for row in rows]
        # Lists are JSON there.
        columns = [name for name, value in (named[0] if named else {}).items() if not isinstance(value, tuple)]
        assert found.select(columns).to_dicts() == [{name: row[name] for name in columns} for row in named], table
    assert seen == set(TABLES), "a table that no run here has is not tested"
    assert frame.filter(table="run").height == 3


def test_effects_are_those_of_the_table_with_a_row_for_each_cell(made: Path):
    [result] = [run for run in load_runs(made) if "emergence" in run.stages]
    frame = ms.collect(made, ["effects"]).filter(run_id=result.run_id)
    table = result.effects
    assert frame.height == len(table.cells) > 100
    keys = ["site", "layer", "component", "slot", "role", "read", "head", "direction", "edit", "n", "status"]
    found = {}
    for row in frame.to_dicts():
        for metric in COLUMNS:
            ends = (row[metric], row[f"{metric}_low"], row[f"{metric}_high"])
            found[(*(row[key] for key in keys), metric)] = (*ends, row["reason"] if metric == "share" else None)
    compared = 0
    for row in table.rows():
        *ends, reason = found[(*(row[key] for key in keys), row["metric"])]
        assert ends == [row["value"], row["low"], row["high"]]
        if row["metric"] == "share":
            assert reason == row["reason"]
            compared += 1
    assert compared == frame.height


def test_columns_and_their_types_are_those_that_are_declared(made: Path):
    frame = ms.collect(made)
    names = {"text": pl.String, "integer": pl.Int64, "number": pl.Float64, "boolean": pl.Boolean}
    for name, (kind, _) in RUN.items():
        assert frame.schema[name] == names[kind]
    for name, kind in declared().items():
        assert frame.schema[name] == names[kind]
    for _, _, table, rows in artifacts(made):
        if table == "effects":
            continue
        for row in rows:
            called = {RENAMED.get((table, name), name): value for name, value in row.items()}
            assert set(called) == set(TABLES[table][1]), table
            for name, value in called.items():
                kind = TABLES[table][1][name]
                assert kind_of([value]) in {None, kind, "integer" if kind == "number" else kind}, (table, name, value)


def test_the_tables_of_every_stage_of_ours_are_declared():
    for entry in STAGES.entries():
        for artifact in STAGES.load(entry.name).artifacts if entry.origin == OURS else ():
            if callable(getattr(artifact, "rows", None)):
                assert artifact.file.partition(".")[0] in TABLES, artifact
                assert artifact.file in READERS, artifact


def test_one_name_has_one_type_in_all_tables():
    for table, (about, columns) in TABLES.items():
        assert about
        assert not set(columns) & set(RUN), table
        for name, kind in columns.items():
            assert declared()[name] == kind, (table, name)


def test_every_row_says_whose_it_is(made: Path):
    frame = ms.collect(made)
    always = frame.select("run_id", "folder", "model", "architecture", "task", "stage", "table")
    assert always.null_count().sum_horizontal().item() == 0
    diverged = frame.filter(table="run", outcome="diverged").row(0, named=True)
    assert (diverged["architecture"], diverged["train.lr"]) == ("attention", 1e30)
    assert ms.load_run(made / diverged["folder"]).run_id == diverged["run_id"]
    whole = {run.run_id: run.training for run in load_runs(made)}
    for row in frame.filter(table="run").iter_rows(named=True):
        assert json.loads(row["settings"]) == whole[row["run_id"]]
        assert row["model.width"] == whole[row["run_id"]]["model"]["width"]


def test_the_file_holds_the_frame_and_is_written_anew(made: Path):
    found = ms.write_collected(made)
    assert found.path == made / "collected.parquet"
    assert pl.read_parquet(found.path).equals(ms.collect(made))
    assert sum(found.rows.values()) == ms.collect(made).height
    first = found.path.read_bytes()
    assert ms.write_collected(made).path.read_bytes() == first
    assert [path.name for path in made.iterdir() if path.name.startswith(".")] == []


def test_torch_is_not_imported(made: Path):
    code = f"import sys, mixerscope as ms; ms.write_collected({str(made)!r}); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_damaged_run_has_no_row_and_is_named(made: Path, capsys: pytest.CaptureFixture[str]):
    table = next(made.glob("mamba-*/patch-*/effects.safetensors"))
    table.write_bytes(table.read_bytes()[:-1] + b"x")
    frame = ms.collect(made)
    assert frame.filter(table="run").height == 2
    assert not frame.filter(folder=table.parents[1].name).height
    assert "left out" in (said := capsys.readouterr().err)
    assert str(table) in said
    with pytest.raises(CorruptFile, match="effects"):
        ms.collect(made, strict=True)
    with pytest.raises(CorruptFile, match="effects"):
        ms.write_collected(made, strict=True)
    assert not (made / "collected.parquet").exists()
    assert main(["collect", str(made)]) == 1
    assert pl.read_parquet(made / "collected.parquet").equals(frame)


def test_runs_that_are_all_damaged_are_an_error(made: Path):
    for path in made.glob("*/curve.json"):
        path.write_text("{}")
    with pytest.raises(CorruptFile, match=r"curve\.json"):
        ms.write_collected(made)
    assert not (made / "collected.parquet").exists()


def test_tables_of_stages_from_elsewhere(foreign: Path):
    rows = ms.collect(foreign, ["norms"])
    assert rows.select("site", "norm", "n", "norms.seed", "norms.reason", "odd").rows() == [
        ("embed", 1.0, 3, "of the probe", 1, '[1, {"a": null}]'),
        ("blocks.0.resid_post", 2.5, 3, "of the probe", 1, '[1, {"a": null}]'),
    ]
    assert rows.schema["seed"] == pl.Int64
    assert rows.schema["norms.reason"] == pl.Int64


def test_a_stage_whose_code_is_not_at_hand_is_named(foreign: Path, capsys: pytest.CaptureFixture[str]):
    code = f"import mixerscope as ms; f = ms.collect({str(foreign)!r}); print(f.filter(table='run').height)"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout == "4\n"
    assert ran.stderr.count("tables of the stage norms-elsewhere") == 1
    assert "--use" in ran.stderr


def test_rows_that_cannot_be_had_leave_the_run_out(foreign: Path, monkeypatch: pytest.MonkeyPatch):
    from tests.export.conftest import Norms

    monkeypatch.setattr(Norms, "rows", lambda self: [1 / 0])
    with pytest.raises(CorruptFile, match=r"norms\.json gives no rows: ZeroDivisionError"):
        ms.collect(foreign, strict=True)
    assert ms.collect(foreign).filter(table="run").height == 3


def test_of_several_analyses_one_or_every_one(made: Path):
    [result] = [run for run in load_runs(made) if "judge" in run.stages and run.status.outcome != "diverged"]
    redo(result, "judge", Judge.model_validate({"rules": {"carries": 0.7}}))
    usual = ms.collect(made, ["verdicts"])
    every = ms.collect(made, ["verdicts"], every=True)
    assert usual["stage_settings"].unique().to_list() == ["{}"]
    assert every.height == 2 * usual.height
    assert every["stage_id"].n_unique() == 2
    assert set(every["stage_settings"]) == {"{}", '{"rules":{"carries":0.7}}'}


def test_settings_in_which_runs_differ_are_columns(made: Path):
    frame = ms.collect(made)
    assert "task.num_pairs" in frame.columns
    assert "version" not in frame.columns
    assert frame.filter(task="ar", architecture="mamba")["task.num_pairs"].unique().to_list() == [3]
    assert frame.filter(task="parity")["task.num_pairs"].unique().to_list() == [None]


def test_a_pack_is_as_good_as_its_folder(made: Path, tmp_path: Path):
    pack = tmp_path / "some.pack"
    write_pack(pack, load_runs(made))
    assert ms.collect(pack, ["effects", "verdicts"]).equals(ms.collect(made, ["effects", "verdicts"]))
    assert ms.write_collected(pack).path == tmp_path / "collected.parquet"


def test_bad_input_is_one_sentence_and_nothing_is_written(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.parquet").write_text("mine")
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "other.parquet")
    (tmp_path / "link.parquet").symlink_to(tmp_path / "other.parquet")
    before = {path: path.read_bytes() for path in tmp_path.glob("*.parquet")}
    for words in (
        [tmp_path / "empty"],
        [tmp_path / "nothing"],
        [tmp_path / "notes.parquet"],
        [made, "--out", tmp_path / "notes.parquet"],
        [made, "--out", tmp_path / "other.parquet"],
        [made, "--out", tmp_path / "link.parquet"],
        [made, "--out", tmp_path],
        [made, "--out", tmp_path / "nowhere" / "x.parquet"],
        [made, "--table", "verdict"],
    ):
        assert main(["collect", *map(str, words)]) == 2, words
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1), said
    assert {path: path.read_bytes() for path in tmp_path.glob("*.parquet")} == before
    assert not list(made.glob("*.parquet"))
    with pytest.raises(UnknownName, match="did you mean 'verdicts'"):
        ms.collect(made, ["verdict"])
    with pytest.raises(UserError, match="holds no finished runs"):
        ms.collect(tmp_path / "empty")
