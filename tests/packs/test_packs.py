"""Packs: what comes home in one small file can be judged, tabulated and drawn as what was left behind."""

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from mixerscope.analysis import Rules, judge
from mixerscope.artifacts import Curve, Scores, SelfTest, StageOutcome, StageRecord, Status, Verdicts, Weights
from mixerscope.artifacts.effects import EffectTable, against
from mixerscope.cli import main
from mixerscope.errors import CorruptFile, SelfTestFailed, UserError
from mixerscope.packs import claim_pack, finished_ids, unpack, write_pack, write_packs
from mixerscope.packs.parts import EFFECTS
from mixerscope.results import RunResult, load_run, load_runs
from mixerscope.runs import redo, run
from mixerscope.spec import RunSpec
from mixerscope.spec.identity import id_of
from mixerscope.stages import patch as patch_stage
from mixerscope.stages.judge import Judge
from tests.conftest import tiny_spec, with_stage

MOST = 150_000
"""Bytes of a run in a pack."""


def learned_spec() -> RunSpec:
    """A two-layer Mamba, half-way: the numbers of its documents are all different, which is as large as they get."""
    steps, batch = 150, 32
    return RunSpec.model_validate(
        {
            "task": {"name": "ar", "num_pairs": 2, "num_keys": 3, "num_values": 3},
            "model": {"architecture": "mamba", "width": 16, "init": "small_model", "options": {"d_state": 4}},
            "train": {"steps": steps, "batch_size": batch, "documents": steps * batch, "lr": 2e-2, "eval_every": 50},
            "stages": {"patch": {"slots": ["key", "value", "query"], "also_at": ["value+2"]}, "judge": {}},
        }
    )


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return run(learned_spec(), tmp_path_factory.mktemp("learned"), progress=False)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    spec = with_stage(tiny_spec("attention"), "emergence", looks=2, documents=8)
    return run(spec, tmp_path_factory.mktemp("tiny"), progress=False)


@pytest.fixture(scope="module")
def diverged(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    spec = tiny_spec("attention", lr=1e30, schedule="constant", warmup=0.0)
    return run(spec, tmp_path_factory.mktemp("diverged"), progress=False)


def there_and_back(results: Iterable[RunResult], folder: Path) -> list[RunResult]:
    write_pack(folder / "runs.pack", list(results))
    return [load_run(found.path) for found in unpack(folder / "runs.pack", folder / "home")]


def files(result: RunResult) -> dict[str, bytes]:
    found = (path for path in result.folder.path.rglob("*") if path.is_file())
    return {str(path.relative_to(result.folder.path)): path.read_bytes() for path in found}


def copied(result: RunResult, root: Path) -> RunResult:
    shutil.copytree(result.folder.path, root / result.folder.path.name)
    return load_run(root / result.folder.path.name)


def raw(result: RunResult) -> bytes:
    return (result.stages["patch"].folder.path / EFFECTS).read_bytes()


def named(verdicts: Verdicts) -> list[Any]:
    moves = [[(m.block, m.component, m.source, m.target) for m in verdict.moves] for verdict in verdicts]
    return [(v.slot, v.mechanism, v.route, move) for v, move in zip(verdicts, moves, strict=True)]


# --- There and back.


def test_all_but_weights_times_and_the_digits_of_single_documents_comes_home(learned, tmp_path):
    assert any(verdict.route for verdict in learned.verdicts), "else there is little to lose"
    [home] = there_and_back([learned], tmp_path)
    home.folder.verify()
    left = {name for name in files(learned) if name.endswith("timing.json")} | {Weights.file}
    assert set(files(home)) == set(files(learned)) - left
    changed = {name for name in files(home) if files(home)[name] != files(learned)[name]}
    patch, judged = (home.stages[name].folder.path.name for name in ("patch", "judge"))
    written_anew = {f"{patch}/{EFFECTS}", f"{patch}/outcome.json", f"{judged}/verdicts.json"}
    assert changed == {*written_anew, f"{patch}/seal.json", f"{judged}/seal.json", "seal.json"}
    assert not home.folder.holds(Weights)
    assert home.spec == learned.spec
    assert list(home.effects.rows()) == list(learned.effects.rows()), "means and intervals are exact"
    assert named(home.verdicts) == named(learned.verdicts)
    assert home.stages["patch"].outcome.notes == ("effects rounded to 1/256 of the gap for travel",)


def test_what_one_file_cannot_carry_is_in_several(learned, tiny, diverged, tmp_path):
    found = [learned, tiny, diverged]
    whole = tmp_path / "whole.pack"
    size = write_pack(whole, found)
    assert write_packs(tmp_path / "part.pack", found, size.packed + 9999) == {tmp_path / "part.pack": size}
    assert (tmp_path / "part.pack").read_bytes() == whole.read_bytes()
    most = size.packed - 1
    packs = write_packs(tmp_path / "part.pack", found, most)
    assert [path.name for path in packs] == ["part.pack", "part-2.pack"]
    for path, part in packs.items():
        assert path.stat().st_size == part.packed <= most
        unpack(path, tmp_path / "home")
    unpack(whole, tmp_path / "together")
    homes = [{run.run_id: files(run) for run in load_runs(tmp_path / name)} for name in ("home", "together")]
    assert homes[0] == homes[1]
    assert [part.runs for part in write_packs(tmp_path / "one.pack", found, 1).values()] == [1, 1, 1]


def test_numbers_of_documents_are_off_by_half_a_step_at_most(learned, tmp_path):
    [home] = there_and_back([learned], tmp_path)
    before, after = learned.effects, home.effects
    assert torch.equal(after.documents.correct, before.documents.correct)
    for name in ("likelihood", "logit_difference"):
        old, new = (getattr(table.documents, name).double() for table in (before, after))
        assert not torch.equal(old, new)
        for slot in before.slots:
            clean, other = before.unedited[against(slot)], before.unedited[f"corrupted {slot}"]
            gaps = old[clean] - old[other]
            step = (gaps.mean().abs() if name == "likelihood" else gaps.abs().mean()) / 256
            rows = [int(row) for cell, row in zip(before.cells, before.kept, strict=True) if cell.slot == slot]
            at = torch.tensor([clean, other, *(row for row in rows if row >= 0)])
            assert bool(((new[at] - old[at]).abs() <= step / 2).all())


def test_judging_again_after_unpacking_gives_the_same_bytes(learned, tmp_path):
    [home] = there_and_back([learned], tmp_path)
    before = files(home)
    again = redo(home, "judge", Judge(), fresh=True)
    after = {name: data for name, data in files(again).items() if not name.endswith("timing.json")}
    assert after == before
    again.folder.verify()
    stricter = redo(home, "judge", Judge(rules=Rules(carries=0.99)))
    assert stricter.stages["judge"].id != home.stages["judge"].id


def test_verdicts_by_several_rules_travel_together(learned, tmp_path):
    both = copied(learned, tmp_path)
    redo(both, "judge", Judge(rules=Rules(carries=0.9)))
    [home] = there_and_back([both], tmp_path)
    rules = [Rules(**stage.read(StageRecord).settings["rules"]) for stage in home.folder.stages() if _judges(stage)]
    assert sorted(rule.carries for rule in rules) == [0.5, 0.9]
    for stage in filter(_judges, home.folder.stages()):
        rule = Rules(**stage.read(StageRecord).settings["rules"])
        assert stage.read(Verdicts) == judge(home.effects, rule)


def _judges(stage: Any) -> bool:
    return stage.name == "judge"


def test_what_was_measured_while_training_comes_home_as_it_is(tiny, tmp_path):
    [home] = there_and_back([tiny], tmp_path)
    assert home.emergence == tiny.emergence
    for artifact in (SelfTest, Scores, Verdicts):
        assert home.read(artifact) == tiny.read(artifact)
    for artifact in (Status, Curve):
        assert home.folder.read(artifact) == tiny.folder.read(artifact)


def test_runs_that_cannot_be_measured_come_home_with_the_reason(diverged, tmp_path, monkeypatch):
    def failing(models: list[Any], *_: object, **__: object) -> list[SelfTestFailed]:
        return [SelfTestFailed("site 'embed' leaks") for _ in models]

    monkeypatch.setattr(patch_stage, "grids_or_failures", failing)
    unpatched = run(tiny_spec("mamba"), tmp_path / "away", progress=False)
    home = {result.run_id: result for result in there_and_back([diverged, unpatched], tmp_path)}
    assert home[diverged.run_id].status.outcome == "diverged"
    assert home[diverged.run_id].reason == diverged.reason != ""
    assert home[unpatched.run_id].reason == "the model cannot be patched: site 'embed' leaks"
    assert home[unpatched.run_id].scores == unpatched.scores


def test_a_stage_from_outside_travels_as_it_is_whatever_it_calls_its_files(tiny, tmp_path):
    result = copied(tiny, tmp_path)
    identity = {"stage": "mine", "settings": {}}
    folder = result.folder.stage("mine", id_of(identity))
    names = [StageRecord.file, StageOutcome.file, EFFECTS, "notes.bin"]
    folder.begin(names)
    folder.write(StageRecord(identity, {}), StageOutcome("done"))
    for name in names[2:]:
        (folder.path / name).write_bytes(b"whatever\0it is")
    folder.close(identity, names)
    [home] = there_and_back([result], tmp_path)
    inside = folder.path.name
    for name in (*names, "seal.json"):
        assert files(home)[f"{inside}/{name}"] == files(result)[f"{inside}/{name}"]


# --- Size.


def test_a_run_is_small_enough(learned, tmp_path):
    size = write_pack(tmp_path / "runs.pack", [learned])
    assert learned.effects.facts.documents == 320
    assert learned.effects.slots == ("key", "value", "query") == learned.task.slots
    assert sum(map(len, files(learned).values())) <= 1_000_000, "all in, the weights too"
    print(f"{sum(map(len, files(learned).values())):,} bytes, {size.unpacked:,} of them travel, as {size.packed:,}")
    assert size.packed == (tmp_path / "runs.pack").stat().st_size <= MOST
    assert size.unpacked == sum(map(len, files(there_and_back([learned], tmp_path)[0]).values()))


def test_a_run_is_small_enough_even_if_nothing_is_rounded(learned, tmp_path):
    result = copied(learned, tmp_path)
    shutil.rmtree(result.stages["judge"].folder.path)
    size = write_pack(tmp_path / "runs.pack", [load_run(result.folder.path)])
    assert size.exact == 1
    assert size.packed <= 1.1 * MOST
    [home] = unpack(tmp_path / "runs.pack", tmp_path / "home")
    assert raw(load_run(home.path)) == raw(learned), "with no verdict to compare with, effects stay exact"
    assert load_run(home.path).stages["patch"].outcome.notes == ()


def test_the_same_runs_give_the_same_bytes_in_any_order_and_after_a_journey(learned, tiny, diverged, tmp_path):
    write_pack(tmp_path / "one.pack", [learned, tiny, diverged])
    write_pack(tmp_path / "two.pack", [diverged, learned, tiny, learned])
    there = unpack(tmp_path / "one.pack", tmp_path / "home")
    write_pack(tmp_path / "three.pack", [load_run(folder.path) for folder in there])
    one, two, three = ((tmp_path / f"{name}.pack").read_bytes() for name in ("one", "two", "three"))
    assert one == two == three


def test_a_pack_is_what_everybody_else_would_write(learned, tiny, tmp_path):
    """Members are deflated before and elsewhere, and put in beside what the library does itself."""
    write_pack(tmp_path / "ours.pack", [learned, tiny])
    with zipfile.ZipFile(tmp_path / "ours.pack") as ours, zipfile.ZipFile(tmp_path / "theirs.pack", "w") as theirs:
        for member in ours.infolist():
            again = zipfile.ZipInfo(member.filename, member.date_time)
            again.create_system, again.external_attr = member.create_system, member.external_attr
            theirs.writestr(again, ours.read(member), member.compress_type, 9)
    assert (tmp_path / "ours.pack").read_bytes() == (tmp_path / "theirs.pack").read_bytes()


# --- Which runs are finished, and what is in the way.


def test_a_pack_or_a_list_says_which_runs_are_finished(tiny, diverged, tmp_path):
    write_pack(tmp_path / "runs.pack", [tiny, diverged])
    assert sorted(finished_ids(tmp_path / "runs.pack")) == sorted([tiny.run_id, diverged.run_id])
    (tmp_path / "ids.json").write_text(json.dumps([tiny.run_id]))
    assert finished_ids(tmp_path / "ids.json") == [tiny.run_id]
    write_pack(tmp_path / "none.pack", [])
    assert finished_ids(tmp_path / "none.pack") == []
    assert unpack(tmp_path / "none.pack", tmp_path / "home") == []


def test_only_a_pack_is_written_over(tiny, diverged, tmp_path):
    path = tmp_path / "runs.pack"
    write_pack(path, [tiny])
    write_pack(path, [diverged])
    assert finished_ids(path) == [diverged.run_id]
    path.write_text("a letter")
    for attempt in (lambda: write_pack(path, [tiny]), lambda: claim_pack(path)):
        with pytest.raises(UserError, match="was not written by mixerscope"):
            attempt()
    assert path.read_text() == "a letter"
    with pytest.raises(UserError, match="cannot write to"):
        write_pack(path / "below" / "runs.pack", [tiny])


def test_a_damaged_run_is_not_packed(tiny, tmp_path):
    result = copied(tiny, tmp_path)
    (result.stages["patch"].folder.path / EFFECTS).write_bytes(b"")
    with pytest.raises(CorruptFile, match=EFFECTS):
        write_pack(tmp_path / "runs.pack", [result])
    assert not (tmp_path / "runs.pack").exists()


def test_runs_that_are_there_are_left_alone(tiny, diverged, tmp_path):
    write_pack(tmp_path / "runs.pack", [tiny, diverged])
    here = copied(tiny, tmp_path / "home")
    before = files(here)
    [new] = unpack(tmp_path / "runs.pack", tmp_path / "home")
    assert new.seal().id == diverged.run_id
    assert files(here) == before, "with its weights, and its effects as they were"
    assert unpack(tmp_path / "runs.pack", tmp_path / "home") == []
    assert {result.run_id for result in load_runs(tmp_path / "home")} == {tiny.run_id, diverged.run_id}


def test_the_command_says_what_became_of_the_runs(tiny, diverged, tmp_path, capsys):
    write_pack(tmp_path / "one.pack", [tiny])
    write_pack(tmp_path / "both.pack", [tiny, diverged])
    words = [("one", "1 run unpacked"), ("both", "1 run unpacked"), ("both", "0 runs unpacked")]
    tails = ["", "; 1 was there already", "; 2 were there already"]
    for (name, said), tail in zip(words, tails, strict=True):
        assert main(["unpack", str(tmp_path / f"{name}.pack"), "--out", str(tmp_path / "home")]) == 0
        assert capsys.readouterr().out == f"{said} into {tmp_path / 'home'}{tail}\n"
    assert {result.run_id for result in load_runs(tmp_path / "home")} == {tiny.run_id, diverged.run_id}


def test_packing_needs_nothing_that_a_borrowed_machine_lacks_and_unpacking_no_torch(tiny, tmp_path):
    write_pack(tmp_path / "runs.pack", [tiny])
    heavy = ["polars", "altair", "vl_convert", "jinja2", "rich", "cyclopts"]
    block = f"import sys\nfor name in {heavy}: sys.modules[name] = None\n"
    code = (
        f"{block}from pathlib import Path\nfrom mixerscope.packs import unpack, write_pack\n"
        f"found = unpack(Path({str(tmp_path / 'runs.pack')!r}), Path({str(tmp_path / 'home')!r}))\n"
        "assert len(found) == 1 and 'torch' not in sys.modules\n"
        "from mixerscope.results import load_run\n"
        f"write_pack(Path({str(tmp_path / 'again.pack')!r}), [load_run(found[0].path)])\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / "again.pack").read_bytes() == (tmp_path / "runs.pack").read_bytes()
    assert EffectTable.file == EFFECTS, "which is said twice, for want of torch"
