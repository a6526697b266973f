"""Kept results that are damaged, or were made in another way, are refused in a sentence, before anything is done."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest

from mixerscope.cli import main
from mixerscope.errors import UserError
from mixerscope.experiments.paper import records
from mixerscope.experiments.paper.data import kept_ids
from mixerscope.experiments.paper.records import (
    ABOUT,
    ASKED,
    note_packs,
    packs_in,
    read_about,
    read_tables,
    write_tables,
)
from mixerscope.experiments.paper.render import load_results, refuse_to_keep
from mixerscope.experiments.paper.sweeps import Choice
from mixerscope.experiments.task_flip import render
from mixerscope.experiments.task_flip.tables import load, stored, whole_ids

KEPT = Path(__file__).parents[2] / "reproduction"


@pytest.fixture
def kept(tmp_path) -> Path:
    """What is kept of Figure 4a, where it may be damaged."""
    shutil.copytree(KEPT / "fig4a", tmp_path / "kept" / "fig4a", ignore=shutil.ignore_patterns("*.pack", "figure.*"))
    return tmp_path / "kept"


def rewritten(folder: Path, **more: object) -> None:
    said = {**json.loads((folder / ABOUT).read_text()), **more}
    (folder / ABOUT).write_text(json.dumps({name: value for name, value in said.items() if value is not None}))


def garbage(folder: Path) -> str:
    (folder / "runs.parquet").write_bytes(b"PAR1 and so on")
    return "is not the file whose hash about.json has"


def garbage_without_a_hash(folder: Path) -> str:
    (folder / "cells.parquet").write_bytes(b"PAR1 and so on PAR1")
    rewritten(folder, files=None)
    return "cells.parquet cannot be read as Parquet"


def cut(folder: Path) -> str:
    whole = (folder / "tests.parquet").read_bytes()
    (folder / "tests.parquet").write_bytes(whole[: len(whole) // 2])
    rewritten(folder, files=None)
    return "tests.parquet cannot be read as Parquet"


def one_bit(folder: Path) -> str:
    """Which would end the process that reads it, or give other numbers."""
    whole = bytearray((folder / "tests.parquet").read_bytes())
    whole[len(whole) // 3] ^= 1
    (folder / "tests.parquet").write_bytes(bytes(whole))
    return "tests.parquet is not the file whose hash about.json has"


def no_table(folder: Path) -> str:
    (folder / "cells.parquet").unlink()
    return "there is no "


def no_runs(folder: Path) -> str:
    (folder / "runs.parquet").unlink()
    return "there is no "


def no_column(folder: Path) -> str:
    pl.read_parquet(folder / "runs.parquet").drop("accuracy", "moves").write_parquet(folder / "runs.parquet")
    rewritten(folder, files=None)
    return "runs.parquet lacks accuracy, moves, or has another type there"


def another_type(folder: Path) -> str:
    runs = pl.read_parquet(folder / "runs.parquet").with_columns(pl.col("width").cast(pl.String))
    runs.write_parquet(folder / "runs.parquet")
    rewritten(folder, files=None)
    return "runs.parquet lacks width, or has another type there"


def no_preset(folder: Path) -> str:
    rewritten(folder, preset=None)
    return "about.json does not say preset as it should"


def wrong_keys(folder: Path) -> str:
    rewritten(folder, seeds="0 to 4", packs=3)
    return "about.json does not say seeds, packs as it should"


def unknown_preset(folder: Path) -> str:
    rewritten(folder, preset="cleen")
    return "no preset named 'cleen'; did you mean 'clean'?"


def no_object(folder: Path) -> str:
    (folder / ABOUT).write_text("[]")
    return "about.json should be a JSON object"


def no_json(folder: Path) -> str:
    (folder / ABOUT).write_text("{")
    return "about.json is not JSON"


RUNS = json.loads((KEPT / "fig4a" / "about.json").read_text())["runs"]
"""That are kept of Figure 4a; more are put beside them from time to time."""
DAMAGES = [garbage, garbage_without_a_hash, cut, one_bit, no_table, no_runs, no_column, another_type]
DAMAGES += [no_preset, wrong_keys, unknown_preset, no_object, no_json]
COMMANDS = [
    ["figure", "fig4a", "{kept}"],
    ["figure", "all", "{kept}"],
    ["reproduce", "claims", "--results", "{kept}"],
    ["reproduce", "page", "--results", "{kept}"],
    ["reproduce", "fig3", "--results", "{kept}", "--out", "{kept}/../runs"],
    ["reproduce", "fig4a", "--results", "{kept}", "--collect", str(KEPT / "fig4a" / "convolutions-best.pack")],
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2] + words[4:5]))
def test_damage_is_said_in_a_sentence_and_nothing_is_written(words, damage, kept, capsys):
    said = damage(kept / "fig4a")
    before = {path: path.read_bytes() for path in kept.parent.rglob("*") if path.is_file()}
    assert main([word.format(kept=kept) for word in words]) == 2
    complaint = capsys.readouterr().err
    assert said in complaint
    assert complaint.count("\n") == 1
    assert {path: path.read_bytes() for path in kept.parent.rglob("*") if path.is_file()} == before


def test_what_is_not_damaged_is_read(kept):
    assert read_tables(kept / "fig4a")["runs"].height == len(load_results(kept).runs) == RUNS
    refuse_to_keep(kept, Choice())


def no_erasures(folder: Path) -> str:
    (folder / "erasures.parquet").write_bytes(b"PAR1")
    return "erasures.parquet is not the file whose hash"


def lost_interchanges(folder: Path) -> str:
    """Without which every model would be without a verdict."""
    (folder / "interchanges.parquet").unlink()
    return "interchanges.parquet, which belongs to what lies beside it"


def lost_models(folder: Path) -> str:
    (folder / "models.parquet").unlink()
    return "models.parquet, which belongs to what lies beside it"


def words_for_numbers(folder: Path) -> str:
    path = folder / "lengths.parquet"
    pl.read_parquet(path).with_columns(pl.col("times").cast(pl.String)).write_parquet(path)
    rewritten(folder, files=None)
    return "lengths.parquet lacks times, or has another type there"


@pytest.fixture
def study(tmp_path) -> Path:
    """What is kept of the study, where it may be damaged."""
    folder = tmp_path / "kept" / "task-flip"
    shutil.copytree(KEPT / "task-flip", folder, ignore=shutil.ignore_patterns("*.pack", "figure.*"))
    return folder


@pytest.mark.parametrize("damage", [no_erasures, lost_interchanges, lost_models, words_for_numbers])
def test_a_damaged_study_is_said_in_a_sentence(damage, study, tmp_path, capsys):
    said = damage(study)
    before = {path: path.read_bytes() for path in study.iterdir()}
    own = ["--out", str(tmp_path / "runs")]
    for words in (["figure"], ["reproduce", *own, "--results"], ["reproduce", *own, "--missing", "--results"]):
        assert main([words[0], "task-flip", *words[1:], str(study.parent)]) == 2
        complaint = capsys.readouterr().err
        assert said in complaint
        assert complaint.count("\n") == 1
    assert not (tmp_path / "runs").exists()
    assert {path: path.read_bytes() for path in study.iterdir()} == before


def left_by_a_kill(folder: Path) -> None:
    """As whoever is killed before the first file is in its place leaves what is kept for the first time."""
    (folder / records.MADE).mkdir()
    for path in [*folder.glob("*.parquet"), folder / ABOUT]:
        path.rename(folder / records.MADE / path.name)


@pytest.mark.parametrize("read", [stored, load])
def test_a_study_whose_first_tables_were_never_put_into_their_place_is_read(read, study):
    before = read(study)
    left_by_a_kill(study)
    after = read(study)
    assert all(after[name].equals(frame) for name, frame in before.items())


def test_several_may_read_at_once_what_a_kill_left(kept):
    folder = kept / "fig4a"
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    for _ in range(40):
        left_by_a_kill(folder)
        with ThreadPoolExecutor(4) as readers:
            said = [readers.submit(read_about, folder) for _ in range(4)]
        assert [one.result()["runs"] for one in said] == [RUNS] * 4
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole


@pytest.mark.parametrize("torn", [False, True], ids=["whole", "torn"])
@pytest.mark.parametrize("read", [read_tables, stored], ids=["figure", "study"])
def test_tables_that_are_replaced_while_they_are_read_are_read_again(read, torn, study, kept, monkeypatch):
    """Of two that take runs in at once the first one draws while the other one writes: it read some tables of before
    and some of after, or was told that one of them is damaged."""
    folder = study if read is stored else kept / "fig4a"
    before, plain = read(folder), records._read_parquet
    left = next(iter(before.values()))["run_id"].to_list()[:5]
    fewer = {name: table.filter(pl.col("run_id").is_in(left)) for name, table in before.items()}
    tables_read: list[Path] = []

    def replaced_after_the_first(path: Path) -> pl.DataFrame:
        found = plain(path)
        tables_read.append(path)
        if len(tables_read) == 1:
            write_tables(folder, fewer, read_about(folder, ASKED))
            if torn:
                raise UserError("half of it is of before")
        return found

    monkeypatch.setattr(records, "_read_parquet", replaced_after_the_first)
    assert all(table.equals(fewer[name]) for name, table in read(folder).items())


def test_what_is_added_while_others_judge_again_is_not_lost(study, monkeypatch):
    whole, said = stored(study), read_about(study, ASKED)
    left = whole["models"]["run_id"].to_list()[:5]
    fewer = {name: table.filter(pl.col("run_id").is_in(left)) for name, table in whole.items()}
    write_tables(study, fewer, {**said, "judged_by_revision": 0})

    def added_after_reading(folder: Path) -> dict[str, pl.DataFrame]:
        found = load(folder)
        write_tables(folder, whole, said)
        return {**found, "models": found["models"].with_columns(verdict=pl.lit("by other rules"))}

    monkeypatch.setattr(render, "load", added_after_reading)
    render.judge_again(study)
    assert stored(study)["models"].equals(whole["models"])


@pytest.mark.parametrize("read", [kept_ids, lambda root: whole_ids(root / "task-flip")], ids=["all", "study"])
def test_runs_whose_first_tables_were_never_put_into_their_place_are_not_missing(read, study, kept):
    before = read(kept)
    assert before
    for folder in (study, kept / "fig4a"):
        left_by_a_kill(folder)
    assert read(kept) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["fig3", "--set", "train.precision=float32"],
            'keeps runs as usual, not runs with train.precision="float32"; give',
        ),
        (["fig3", "--toy"], "keeps runs as usual, not a toy; give another folder with --results"),
        (["fig3", "--toy", "--set", "train.steps=2"], "keeps runs as usual, not a toy with train.steps=2; give"),
        (["all", "--preset", "paper"], "keeps what was asked for with preset clean, not paper; give another folder"),
        (["fig3", "--preset", "paper", "--collect", "{kept}/fig4a/x.pack"], "with preset clean, not paper"),
        (["fig3", "--set", "train.stepz=3"], "not runs with train.stepz=3"),
    ],
)
def test_what_was_asked_for_in_another_way_is_refused_before_anything_is_trained(words, said, kept, capsys):
    before = (kept / "fig4a" / ABOUT).read_bytes()
    words = [word.format(kept=kept) for word in words]
    if "--collect" not in words:
        words += ["--out", str(kept.parent / "runs")]
    assert main(["reproduce", *words, "--results", str(kept)]) == 2
    complaint = capsys.readouterr().err
    assert said in complaint
    assert complaint.count("\n") == 1
    assert not (kept.parent / "runs").exists()
    assert (kept / "fig4a" / ABOUT).read_bytes() == before


def test_where_nothing_is_missing_what_is_kept_is_drawn(kept, tmp_path, capsys):
    words = ["fig4a", "--widths", "64", "--only", "none,conv-1", "--missing", "--out", str(tmp_path / "runs")]
    before = (kept / "fig4a" / ABOUT).read_bytes()
    assert main(["reproduce", *words, "--results", str(kept)]) == 0
    assert "fig4a is in" in capsys.readouterr().out
    assert (kept / "fig4a" / "figure.svg").is_file()
    assert json.loads((kept / "fig4a" / ABOUT).read_text()) == {**json.loads(before), "packs": {}}


def test_two_toys_are_told_apart_in_words(kept):
    rewritten(kept / "fig4a", toy=True)
    with pytest.raises(UserError, match=r"keeps a toy, not a toy with train\.steps=2; give another folder"):
        refuse_to_keep(kept, Choice(toy=True, settings={"train.steps": 2}))


def test_a_study_is_not_mixed_with_its_toy(kept, capsys):
    shutil.copytree(kept / "fig4a", kept / "task-flip")
    words = ["--toy", "--out", str(kept.parent / "runs"), "--results", str(kept)]
    assert main(["reproduce", "task-flip", *words]) == 2
    assert "keeps runs as usual, not a toy" in capsys.readouterr().err


def test_figures_of_two_presets_are_read_by_the_one_that_is_named(kept, capsys):
    shutil.copytree(kept / "fig4a", kept / "questions")
    rewritten(kept / "questions", preset="paper")
    for words in (["figure", "all", str(kept)], ["reproduce", "claims", "--results", str(kept)]):
        assert main(words) == 2
        assert "fig4a of preset clean and questions of preset paper; say with --preset" in capsys.readouterr().err
    for preset in ("paper", "clean"):
        assert load_results(kept, preset).choice.preset == preset
    rewritten(kept / "questions", preset="clean", settings={"train.steps": 3})
    with pytest.raises(UserError, match=r"runs as usual in fig4a and runs with train\.steps=3 in questions"):
        load_results(kept)


def test_claims_can_be_had_as_the_other_preset_reads_them(capsys):
    told = {}
    for preset in ("clean", "paper"):
        assert main(["reproduce", "claims", "--results", str(KEPT), "--preset", preset]) == 0
        said = capsys.readouterr()
        told[preset] = said.out
        assert f"chosen as preset {preset} does" in said.err
    assert told["clean"] != told["paper"]
    assert main(["reproduce", "claims", "--results", str(KEPT)]) == 0
    assert capsys.readouterr().out == told["clean"]


def test_packs_are_noted_when_a_figure_is_drawn_and_another_one_is_refused(kept, capsys):
    folder = kept / "fig4a"
    rewritten(folder, packs=None)
    (folder / "best.pack").write_bytes(b"a pack")
    assert main(["figure", "fig4a", str(kept)]) == 0
    assert read_about(folder)["packs"] == packs_in(folder) == {"best.pack": records.sha256(folder / "best.pack")}


@pytest.mark.parametrize("name", ["fig4a", "task-flip"])
def test_a_pack_that_is_another_one_is_refused_and_not_noted(name, study, kept, tmp_path, capsys):
    folder = kept / name
    (folder / "best.pack").write_bytes(b"a pack")
    rewritten(folder, packs=packs_in(folder))
    (folder / "best.pack").write_bytes(b"another")
    before = (folder / ABOUT).read_bytes()
    taken = str(KEPT / "fig4a" / "convolutions-best.pack")
    for words in (
        ["figure", name, str(kept)],
        ["reproduce", name, "--results", str(kept), "--out", str(tmp_path / "runs")],
        ["reproduce", name, "--results", str(kept), "--collect", taken],
    ):
        assert main(words) == 2
        assert "best.pack is not the pack whose hash about.json has" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
    with pytest.raises(UserError, match=r"best\.pack is not the pack"):
        write_tables(folder, {}, {})
    assert (folder / ABOUT).read_bytes() == before


@pytest.mark.parametrize("folder", sorted(path.parent for path in KEPT.glob(f"*/{ABOUT}")), ids=lambda path: path.name)
def test_the_packs_that_are_kept_are_those_on_record(folder):
    assert packs_in(folder), "nothing to judge again from"
    assert read_about(folder, ASKED)["packs"] == packs_in(folder), "`mixerscope figure` notes new ones"
    before = (folder / ABOUT).read_bytes()
    note_packs(folder)
    assert (folder / ABOUT).read_bytes() == before
