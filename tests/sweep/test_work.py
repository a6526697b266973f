"""One seam: a sweep as a JSON item that any process can make, alone or with others, whole or in shards."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mixerscope import runs, work
from mixerscope.errors import UserError
from mixerscope.machine import CPU, Machine
from mixerscope.store import Locks, holders
from mixerscope.sweep.call import Call, carry_out
from mixerscope.sweep.execute import execute
from mixerscope.sweep.executors import executor_of
from mixerscope.sweep.executors.local import Processes, gpu_of, processes_of
from mixerscope.sweep.items import Item, read_item
from mixerscope.sweep.listening import Listener
from mixerscope.sweep.plan import make_plan
from mixerscope.sweep.source import load_runs
from mixerscope.sweep.table import CohortRow, JobRow, read_rows, row_of


def tree(root: Path) -> dict[str, bytes]:
    """Every file of the runs below a root, but for the times."""
    files = (path for path in root.rglob("*") if path.is_file() and path.name not in ("timing.json", "sweep.jsonl"))
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


@pytest.fixture
def specs(sweep_file):
    return load_runs(str(sweep_file()))


@pytest.fixture
def calm(specs, tmp_path) -> dict[str, bytes]:
    execute(make_plan(specs, tmp_path / "calm", CPU), tmp_path / "calm", CPU)
    return tree(tmp_path / "calm")


def test_an_item_says_all_and_is_made_to_the_same_bytes(specs, calm, tmp_path, capsys):
    item = Item.of(specs, tmp_path / "runs", CPU)
    path = item.write()
    assert read_item(path) == item
    assert item.specs() == specs
    assert work.main([str(path)]) == 0
    path.unlink()
    assert tree(tmp_path / "runs") == calm
    assert {row["call"] for row in read_rows(tmp_path / "runs")} == {item.call}
    assert [type(row_of(row)) for row in read_rows(tmp_path / "runs")] == [CohortRow, CohortRow, JobRow]
    capsys.readouterr()


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"format": 2}, "items of format 1, got 2"),
        ({"machine": {"device": "cpu", "cores": 3}}, "machine makes no sense"),
        ({"runs": [{"task": "arr"}]}, "no task named 'arr'"),
        ({"shard": [3, 2]}, "a shard is i/n"),
        ({"colour": "red"}, "no field 'colour'"),
        ({"runs": 3}, "runs"),
    ],
)
def test_an_item_that_makes_no_sense_is_refused_in_a_sentence(specs, tmp_path, capsys, change, part):
    data = Item.of(specs, tmp_path / "runs", CPU).model_dump(mode="json")
    (tmp_path / "item.json").write_text(json.dumps({**data, **change}))
    assert work.main([str(tmp_path / "item.json")]) == 2
    said = capsys.readouterr().err
    assert part in said
    assert said.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_shards_are_the_sweep_and_stack_it_alike(specs, calm, tmp_path):
    seen: list[str] = []
    for number in (2, 1):
        plan = make_plan(specs, tmp_path / "runs", CPU, shard=(number, 2))
        seen += [run.run_id for run in plan.runs]
        execute(plan, tmp_path / "runs", CPU)
    assert sorted(seen) == sorted(run.run_id for run in specs)
    assert tree(tmp_path / "runs") == calm


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", "-1/2", "1/0", "/"])
def test_a_shard_out_of_range_is_refused(sweep_file, tmp_path, shard: str):
    with pytest.raises(UserError, match="--shard takes i/n"):
        carry_out(str(sweep_file()), Call(shard=shard, out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("on", ["mars", "local:0", "local:x", "local:1000", "localhost", "slurmy", ""])
def test_an_executor_that_nobody_knows_is_refused(sweep_file, tmp_path, on: str):
    with pytest.raises(UserError, match="--on is 'local'"):
        carry_out(str(sweep_file()), Call(on=on, out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    assert processes_of("local", CPU) == 1
    assert processes_of("local:3", CPU) == 3


def test_what_failed_in_one_process_of_a_call_is_not_tried_by_the_others(specs, tmp_path, monkeypatch):
    tried: list[str] = []

    def failing(cohort, *arguments):
        tried.append(cohort[0].model.architecture)
        raise RuntimeError("its own reason")

    monkeypatch.setattr(runs, "run_cohort", failing)
    for _ in range(2):
        execute(make_plan(specs, tmp_path, CPU), tmp_path, CPU, call="one")
    assert sorted(tried) == ["attention", "based"]
    execute(make_plan(specs, tmp_path, CPU), tmp_path, CPU, call="another")
    assert len(tried) == 4, "the next call tries again"


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_processes_share_a_sweep_and_outlive_one_of_them(sweep_file, tmp_path, capfd, killed: bool):
    vary = {"model.architecture": ["attention", "based", "mamba", "h3"], "seed": [0, 1], "train.steps": [400]}
    specs = load_runs(str(sweep_file(vary)))
    execute(make_plan(specs, tmp_path / "calm", CPU), tmp_path / "calm", CPU)
    root = tmp_path / "runs"
    plan = make_plan(specs, root, CPU)
    item = Item.of(specs, root, CPU)
    if killed:
        process = subprocess.Popen([sys.executable, "-m", "mixerscope.work", str(item.write())], stderr=subprocess.PIPE)
        until = time.monotonic() + 120
        while not list((root / ".mixerscope/locks").glob("*.lock")) and time.monotonic() < until:
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    outcome = Processes(2).execute(plan, item, Listener())
    assert not outcome.failed
    assert not outcome.left
    assert sorted(row.architecture for row in outcome.cohorts) == ["attention", "based", "h3", "mamba"]
    assert tree(root) == tree(tmp_path / "calm")
    assert not (root / ".mixerscope").exists()
    capfd.readouterr()


@pytest.mark.parametrize(
    ("count", "visible", "given"),
    [
        (0, None, [None, None, None]),
        (1, "3", [None, None, None]),
        (2, None, ["0", "1", "0"]),
        (3, "", ["0", "1", "2"]),
        (2, "5, 7", ["5", "7", "5"]),
        (2, "5,7,-1,3", ["5", "7", "5"]),
        (3, "GPU-0a,GPU-1b,GPU-2c", ["GPU-0a", "GPU-1b", "GPU-2c"]),
    ],
)
def test_each_process_is_shown_one_gpu_of_those_that_are_there(monkeypatch, count, visible, given):
    monkeypatch.setattr("torch.cuda.device_count", lambda: count)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [gpu_of(number).get("CUDA_VISIBLE_DEVICES") for number in range(3)] == given


def test_as_many_processes_as_gpus_unless_otherwise_said(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    gpu = Machine("cuda")
    assert [processes_of(on, gpu) for on in ("local", "local:2", "local:6")] == [4, 2, 6]
    assert processes_of("local", CPU) == 1
    assert executor_of("local", gpu) == Processes(4)


@pytest.mark.slow
def test_each_of_several_gpus_has_a_process_and_the_loss_of_one_is_made_up_for(
    sweep_file, tmp_path, monkeypatch, capfd
):
    """Real processes, which the machine says it has a GPU each for; they compute on the CPU, as there are none here."""
    vary = {"model.architecture": ["attention", "based", "h3"], "seed": [0, 1], "train.steps": [3000]}
    specs = load_runs(str(sweep_file(vary)))
    execute(make_plan(specs, tmp_path / "calm", CPU), tmp_path / "calm", CPU)
    machine, root = replace(CPU, checkpoint_seconds=0.2), tmp_path / "runs"
    stale = [Locks(root, [f"h3-{spec.run_id}"]) for spec in specs if spec.model.architecture == "h3"]
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    for lock in stale:
        lock.holder = replace(lock.holder, pid=int(ended.stdout))
        lock.take()
        lock.over.set()
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-0a,GPU-1b,GPU-2c")
    item, plan, outcomes = Item.of(specs, root, machine), make_plan(specs, root, machine), []
    making = threading.Thread(target=lambda: outcomes.append(Processes(3).execute(plan, item, Listener())))
    making.start()
    shown: dict[int, str] = {}
    until = time.monotonic() + 240
    while len(shown) < 3 and making.is_alive() and time.monotonic() < until:
        shown |= {holder.pid: _gpu_shown(holder.pid) for holder in holders(root).values() if holder.pid not in shown}
        time.sleep(0.02)
    assert sorted(shown.values()) == ["GPU-0a", "GPU-1b", "GPU-2c"], "one each, and no two the same"
    while not list((root / ".mixerscope/checkpoints").glob("*")) and making.is_alive():
        time.sleep(0.02)
    killed = next(holder.pid for holder in holders(root).values() if holder.pid in shown)
    os.kill(killed, signal.SIGKILL)
    making.join(600)
    [outcome] = outcomes
    assert not outcome.failed
    assert not outcome.left
    assert tree(root) == tree(tmp_path / "calm")
    assert not (root / ".mixerscope").exists()
    assert f"process {killed} was killed by signal 9; what it was making is taken up again" in capfd.readouterr().err


def _gpu_shown(pid: int) -> str:
    """What a process that works on a sweep was started with."""
    words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(word.partition(b"=")[2].decode() for word in words if word.startswith(b"CUDA_VISIBLE_DEVICES="))
