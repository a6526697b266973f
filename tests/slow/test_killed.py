"""kill -9 at random moments, of one run and of a sweep that watches its training: the bytes of an undisturbed one."""

import json
import os
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
    expected, root, killed = tree(tmp_path / "calm"), tmp_path / "killed", 0
    for moment in range(MOMENTS):
        process = subprocess.Popen([*command, str(root)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(seconds * ((moment * 0.618) % 1.0))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            killed += 1
        elif tree(root) == expected:  # it came to its end between two kills: from the start again
            root = tmp_path / f"killed-{moment}"
        process.wait()
    subprocess.run([*command, str(root)], check=True, capture_output=True)
    assert killed >= MOMENTS // 4, "most kills came after the end: the run is too short for this test to mean anything"
    assert tree(root) == expected
