"""kill -9 at random moments, of one run and of a sweep, which both watch their training: the bytes of undisturbed ones.

Moments are drawn evenly over the time that an undisturbed call takes, from a seed that is fixed; where they fall in the
work is up to the machine. A call that comes to its end before its kill starts over in a new folder, so that every kill
that counts hit a process at work.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
MOMENTS = int(os.environ.get("MIXERSCOPE_KILLS", "20"))
SPEC = {
    "task": {"name": "ar", "num_pairs": 3, "num_keys": 6, "num_values": 6},
    "model": {"architecture": "based", "width": 16},
    "train": {"steps": 600, "documents": 2000, "eval_every": 25},
    "stages": {"patch": {"documents": 32}, "judge": {}, "emergence": {"looks": 6, "documents": 16}},
}


def tree(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file() and path.name not in ("timing.json", "sweep.jsonl"))
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


@pytest.mark.parametrize("verb", ["run", "sweep"])
def test_killed_again_and_again_it_ends_with_the_same_bytes(tmp_path: Path, verb: str):
    vary = {"model.architecture": ["attention", "based"], "seed": [0, 1]}
    (tmp_path / "it.json").write_text(json.dumps(SPEC if verb == "run" else {"base": SPEC, "vary": vary}))
    command = [
        sys.executable,
        "-m",
        "mixerscope",
        verb,
        str(tmp_path / "it.json"),
        "--checkpoint-every",
        "0.2",
        "--out",
    ]
    started = time.monotonic()
    subprocess.run([*command, str(tmp_path / "calm")], check=True, capture_output=True)
    seconds = time.monotonic() - started
    expected, root, killed, tries = tree(tmp_path / "calm"), tmp_path / "killed", 0, 0
    moments = random.Random(18)
    while killed < MOMENTS:
        process = subprocess.Popen([*command, str(root)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(seconds * moments.random())
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            killed += 1
        process.wait()
        tries += 1
        assert tries <= 5 * MOMENTS, "the run is too short for this test to mean anything"
        if process.returncode == 0:
            assert tree(root) == expected
            root = tmp_path / f"killed-{tries}"
    subprocess.run([*command, str(root)], check=True, capture_output=True)
    assert tree(root) == expected
