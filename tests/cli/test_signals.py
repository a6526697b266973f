"""Signals that ask a process to end: one line, the usual exit code, and the next call goes on."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mixerscope import signals
from mixerscope.errors import Interrupted
from mixerscope.progress import told
from tests.cli.conftest import TINY

LONG = {**TINY, "train": {**TINY["train"], "steps": 60_000, "eval_every": 60_000}, "stages": {}}


def started(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    """A command in a process of its own that is in the midst of training."""
    (tmp_path / "long.json").write_text(json.dumps(LONG))
    command = [sys.executable, "-m", "mixerscope", *words, "--out", str(tmp_path / "runs"), "--checkpoint-every", "0.1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    until = time.monotonic() + 120
    while not checkpoints(tmp_path) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    return process


def checkpoints(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "runs/.mixerscope/checkpoints").glob("*.safetensors"))


@pytest.mark.parametrize(
    ("verb", "number"),
    [
        ("run", signal.SIGTERM),
        pytest.param("run", signal.SIGHUP, marks=pytest.mark.slow),
        pytest.param("run", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("sweep", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("sweep", signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_a_training_with_one_line_and_a_checkpoint(tmp_path, verb: str, number: signal.Signals):
    if verb == "sweep":
        (tmp_path / "sweep.json").write_text(json.dumps({"base": LONG, "vary": {"seed": [0, 1]}}))
    process = started(tmp_path, verb, "long.json" if verb == "run" else "sweep.json")
    [file] = checkpoints(tmp_path)
    before = file.stat().st_mtime_ns
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    wanted = f"mixerscope: interrupted by {number.name}; finished runs are kept, and the next call goes on from here"
    assert err.splitlines()[-1] == wanted
    assert "Traceback" not in err
    assert file.stat().st_mtime_ns > before, "it was written once more"


def test_those_who_tell_of_progress_learn_of_a_signal_and_afterwards_all_is_as_before():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with signals.heeded(), told(False, "x") as tell:
        tell("train", 1, 2, "")
        os.kill(os.getpid(), signal.SIGTERM)
        while signals.received() is None:
            time.sleep(0.001)
        with pytest.raises(Interrupted, match="SIGTERM"):
            tell("train", 2, 2, "")
    assert signals.received() is None
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert not [thread for thread in threading.enumerate() if thread.name == "signals"]


@pytest.mark.parametrize("how", ["grace", "twice"])
def test_what_does_not_listen_is_ended_where_it_stands(how: str):
    """Also in the midst of an operation that takes for ever and never comes back to Python."""
    code = (
        "import sys, time; from mixerscope import signals\n"
        f"signals.GRACE = {0.2 if how == 'grace' else 60}\n"
        "with signals.heeded(lambda: print('last', flush=True)):\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    if how == "twice":
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err.count("\n")) == (143, 1)
    assert out == ("last\n" if how == "grace" else ""), "somebody who is in a hurry waits for nothing"


def test_a_signal_that_was_ignored_stays_ignored():
    """As `nohup` has it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.heeded():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.05)
            assert signals.received() is None
    finally:
        signal.signal(signal.SIGHUP, before)
