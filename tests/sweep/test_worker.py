"""The worker: a sweep with nothing installed but torch, numpy, pydantic and safetensors."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mixerscope.store import find_runs
from mixerscope.sweep.worker import main
from tests.sweep.test_execute import contents
from tests.test_architecture import HEAVY


def test_it_runs_without_what_the_command_line_needs(sweep_file, tmp_path):
    words = [str(sweep_file({"seed": [0, 1]})), "--out", str(tmp_path / "out"), "--set", "train.lr=0.01"]
    code = (
        "import sys\n"
        f"for name in {sorted(HEAVY)}: sys.modules[name] = None\n"
        "from mixerscope.sweep.worker import main\n"
        f"sys.exit(main({words!r}))\n"
    )
    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "attention d=8 x2: started" in ran.stderr
    assert "2 runs, 0 of them finished" in ran.stderr
    assert "job 1: 1 cohorts, float32" in ran.stdout
    assert len(find_runs(tmp_path / "out")) == 2


def test_wrong_input_is_one_sentence_and_writes_nothing(sweep_file, tmp_path, capsys):
    root = tmp_path / "out"
    for words, part in (
        ([sweep_file({"train.lrr": [1]}, name="bad.json")], "did you mean 'train.lr'"),
        ([sweep_file(), "--set", "train.stepz=3"], "did you mean 'train.steps'"),
        ([sweep_file(), "--stop-after", "-1"], "positive"),
        ([sweep_file(), "--threads", "0"], "threads = 0"),
    ):
        assert main([str(word) for word in [*words, "--out", root]]) == 2
        said = capsys.readouterr().err
        assert part in said
        assert said.startswith("mixerscope: ")
        assert said.count("\n") == 1
        assert not root.exists()


def test_a_dry_run_writes_nothing(sweep_file, tmp_path, capsys):
    assert main([str(sweep_file()), "--out", str(tmp_path / "out"), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "4 runs, 0 of them finished; to do: 2 cohorts in 1 jobs" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_killed_at_any_moment_and_run_again_gives_the_same_bytes(sweep_file, tmp_path):
    """kill -9 at moments spread over a sweep; each time the next call ends with the bytes of an undisturbed one."""
    vary = {"model.architecture": ["attention", "based", "deltanet"], "seed": [0, 1], "train.steps": [100]}
    source = str(sweep_file(vary))

    def command(root: Path) -> list[str]:
        return [sys.executable, "-m", "mixerscope.sweep.worker", source, "--out", str(root), "--in-flight", "2"]

    started = time.monotonic()
    subprocess.run(command(tmp_path / "calm"), check=True, capture_output=True)
    seconds = time.monotonic() - started
    expected = contents(tmp_path / "calm")
    assert len(find_runs(tmp_path / "calm")) == 6
    killed = 0
    for moment in range(5):
        root = tmp_path / f"killed-{moment}"
        process = subprocess.Popen(
            command(root), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        time.sleep(seconds * (moment + 2) / 7)
        if process.poll() is None:
            killed += 1
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        subprocess.run(command(root), check=True, capture_output=True)
        assert contents(root) == expected
    assert killed >= 3, "most kills came after the end: the sweep is too short for this test to mean anything"
