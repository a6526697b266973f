"""Sweeps that last some seconds, called as people call them, and what they leave."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

BASE = {
    "task": {"name": "ar", "num_pairs": 2, "num_keys": 4, "num_values": 4},
    "model": {"architecture": "attention", "width": 8},
    "train": {"steps": 40, "batch_size": 4, "documents": 400, "eval_every": 20, "eval_documents": 8},
    "stages": {"patch": {"documents": 8}, "judge": {}},
}
SHORT, LONG = 40, 1500
"""Steps: a second or less, and some ten."""
WAITS = 240.0


def write_sweep(path: Path, steps: int, architectures: "tuple[str, ...]" = ("attention", "based")) -> Path:
    """Two seeds of each architecture: a cohort each."""
    train = {**BASE["train"], "steps": steps, "documents": 4 * steps}
    vary = {"model.architecture": list(architectures), "seed": [0, 1]}
    path.write_text(json.dumps({"base": {**BASE, "train": train}, "vary": vary}))
    return path


def write_broken(path: Path) -> None:
    """A mixer `Broken` that passes every check beforehand and fails in training, by the size of its batches."""
    path.write_text(
        "from mixerscope.mixers.attention import Attention\n\n\n"
        'class Broken(Attention):\n    """Fails."""\n\n'
        "    def forward(self, x):\n"
        f"        if x.shape[0] == {BASE['train']['batch_size']}:\n"
        "            raise RuntimeError('its own reason')\n"
        "        return super().forward(x)\n"
    )


def command(source: Path, root: Path, *options: str) -> list[str]:
    """Checkpoints are so frequent that a second of work is the most that any loss costs."""
    words = [sys.executable, "-m", "mixerscope", "sweep", str(source), "--out", str(root)]
    return [*words, "--checkpoint-every", "0.5", *options]


def start(words: list[str], environment: Mapping[str, str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        words,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Where the tests run in the background, an interrupt is ignored, and what is ignored stays so.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def call(words: list[str], environment: Mapping[str, str] = os.environ) -> tuple[int, str]:
    """Exit code and all that was said."""
    process = start(words, environment)
    return ended(process)


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    said, _ = process.communicate(timeout=WAITS)
    return process.returncode, said


def wait_for(condition: Callable[[], object], what: str, process: "subprocess.Popen[str] | None" = None) -> None:
    until = time.monotonic() + WAITS
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"waited in vain for {what}")
        if process is not None and process.poll() is not None:
            raise AssertionError(f"ended while waited for {what}: {process.communicate()[0]}")
        time.sleep(0.1)


def checkpoints(root: Path) -> int:
    return len(list((root / ".mixerscope/checkpoints").glob("*.safetensors")))


def tree(root: Path) -> dict[str, bytes]:
    """Every file of the runs below a root, but for times and what is being made."""
    files = (path for path in root.rglob("*") if path.is_file() and path.name not in ("timing.json", "sweep.jsonl"))
    return {str(path.relative_to(root)): path.read_bytes() for path in files if ".mixerscope" not in path.parts}


def rows(root: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (root / "sweep.jsonl").read_text().splitlines()]
