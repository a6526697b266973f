"""Whether a training that is killed and goes on from its checkpoint ends with the weights of an undisturbed one.

Each case is a sweep of one small cohort, made three times, always in a process of its own: twice undisturbed, which
says whether this machine gives the same bits again at all, and once killed by SIGKILL at random moments after its first
checkpoint, and called again until it is done. Weights and learning curves are compared bit by bit.

    python -m benchmarks.checkpoints --device cuda

Writes benchmarks/results/checkpoints_DEVICE.json; exits with 1 where a case is repeatable and the weights differ.
"""

import argparse
import json
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mixerscope.artifacts import Curve, Weights
from mixerscope.results import load_runs
from mixerscope.store import CheckpointFolder

RESULTS = Path(__file__).parent / "results"
EVERY = 0.5
"""Seconds between two checkpoints."""
WAITS = 1200.0
STEPS = {"cpu": 400, "cuda": 20_000}
"""Of training: some ten seconds of it."""


@dataclass(frozen=True)
class Case:
    """One cohort on one machine."""

    architecture: str
    precision: str = "float32"
    compile: bool = False
    task: str = "ar"
    """`atr`: batches of several lengths, each with graphs of its own."""

    @property
    def name(self) -> str:
        return " ".join([self.task, self.architecture, self.precision, *(["compiled"] if self.compile else [])])

    def sweep(self, steps: int) -> dict[str, Any]:
        tasks = {
            "ar": {"name": "ar", "num_pairs": 4, "num_keys": 16, "num_values": 16},
            "atr": {"name": "atr", "max_symbols": 60},
        }
        train = {
            "steps": steps,
            "batch_size": 16,
            "documents": 1600,
            "eval_every": steps // 4 + 3,  # not where a graph of several steps would end
            "eval_documents": 64,
            "precision": self.precision,
        }
        model = {"architecture": self.architecture, "width": 32, "max_length": 128}
        base = {"task": tasks[self.task], "model": model, "train": train, "stages": {}}
        return {"base": base, "vary": {"train.lr": [1e-3, 3e-3], "seed": [0, 1]}}


def cases(device: str) -> list[Case]:
    if device == "cpu":
        return [Case("attention"), Case("mamba"), Case("attention", task="atr")]
    plain = [Case(name) for name in ("attention", "mamba", "deltanet", "lstm")]
    quick = [Case(name, "tf32", True) for name in ("attention", "mamba", "deltanet")]
    return [*plain, *quick, Case("attention", "bfloat16", True), Case("attention", "tf32", True, "atr")]


def command(case: Case, source: Path, out: Path, device: str) -> list[str]:
    words = [sys.executable, "-m", "mixerscope.sweep.worker", str(source), "--out", str(out), "--device", device]
    words += ["--keep-weights", "--checkpoint-every", str(EVERY)]
    return [*words, *(["--compile"] if case.compile else [])]


def made(words: list[str], log: Path) -> float:
    """Seconds of a call that must come to its end."""
    started = time.monotonic()
    with log.open("ab") as file:
        done = subprocess.run(words, stdout=file, stderr=file, timeout=WAITS, check=False)
    if done.returncode:
        raise RuntimeError(f"ended with {done.returncode}: {log.read_text(errors='replace')[-2000:]}")
    return time.monotonic() - started


def killed(words: list[str], root: Path, log: Path, rng: random.Random, after: int) -> int | None:
    """Kills a call some time after it has kept a step beyond `after`; gives the step that it kept, or None if it came
    to its end before."""
    until = time.monotonic() + WAITS
    with log.open("ab") as file:
        process = subprocess.Popen(words, stdout=file, stderr=file)
        try:
            while process.poll() is None and kept_step(root) <= after:
                if time.monotonic() > until:
                    raise RuntimeError("no checkpoint was written in time")
                time.sleep(0.02)
            time.sleep(rng.uniform(0.0, 2 * EVERY))
            alive = process.poll() is None
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    if alive:
        return kept_step(root)
    if process.returncode:
        raise RuntimeError(f"ended with {process.returncode}: {log.read_text(errors='replace')[-2000:]}")
    return None


def kept_step(root: Path) -> int:
    """How far the checkpoint below a root is; 0 without one. One of a training that has ended is of no use here."""
    points = [header["training"]["point"] for _, header in CheckpointFolder(root).headers()]
    return max((int(point["done"]) for point in points if point is not None), default=0)


def left(root: Path) -> dict[str, tuple[dict[str, torch.Tensor], bytes]]:
    """By run: its weights, and its learning curve as bytes."""
    return {
        run.run_id: (dict(run.folder.read(Weights).tensors), run.folder.read(Curve).to_bytes())
        for run in load_runs(root)
    }


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Bit by bit, whatever the numbers are."""
    if one.keys() != other.keys():
        return False
    for run, (weights, curve) in one.items():
        others, its = other[run]
        if curve != its or weights.keys() != others.keys():
            return False
        for name, tensor in weights.items():
            if not torch.equal(tensor.contiguous().view(torch.uint8), others[name].contiguous().view(torch.uint8)):
                return False
    return True


def apart(one: dict[str, Any], other: dict[str, Any]) -> float:
    """The largest difference of a weight."""
    return max(
        (tensor.double() - other[run][0][name].double()).abs().max().item()
        for run, (weights, _) in one.items()
        for name, tensor in weights.items()
    )


def measure(case: Case, device: str, steps: int, kills: int, seed: int) -> dict[str, Any]:
    rng = random.Random(f"{seed} {case.name}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        source, log = folder / "sweep.json", folder / "log"
        source.write_text(json.dumps(case.sweep(steps)))
        seconds = made(command(case, source, folder / "calm", device), log)
        made(command(case, source, folder / "again", device), log)
        at: list[int] = []
        words, root = command(case, source, folder / "killed", device), folder / "killed"
        for moment in sorted(rng.randrange(int(0.8 * steps)) for _ in range(kills)):
            step = killed(words, root, log, rng, moment)
            if step is None:
                break
            at.append(step)
        made(words, log)
        calm, again, resumed = left(folder / "calm"), left(folder / "again"), left(root)
        if not at:
            raise RuntimeError(f"{case.name}: it ended before it could be killed; give more --steps")
        refused = log.read_text(errors="replace").count("is not used:")
        return {
            "case": case.name,
            "runs": len(calm),
            "steps": steps,
            "seconds": round(seconds, 1),
            "killed_after_steps": at,
            "checkpoints_refused": refused,
            "repeatable": same(calm, again),
            "same_bits": same(calm, resumed) and not refused,
            "largest_difference": apart(calm, resumed),
            "largest_difference_undisturbed": apart(calm, again),
        }


def keep(device: str, row: dict[str, Any]) -> None:
    """Writes one case at once, beside those of other calls on such a machine: a call cut short loses one case."""
    path = RESULTS / f"checkpoints_{device}.json"
    name = platform.processor() or platform.machine()
    found = {
        "device": torch.cuda.get_device_name() if device == "cuda" else name,
        "torch": torch.__version__,
        "checkpoint_every_seconds": EVERY,
    }
    before = json.loads(path.read_text()) if path.exists() else {}
    rows = before.pop("rows", [])
    rows = rows if before == found else []  # of another machine: not beside these
    ours = {other["case"]: other for other in [*rows, row]}
    order = [case.name for case in cases(device)]
    found["rows"] = sorted(ours.values(), key=lambda other: order.index(other["case"]))
    path.write_text(json.dumps(found, indent=2) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--steps", type=int, help="of training")
    parser.add_argument("--kills", type=int, default=3, help="of each case")
    parser.add_argument("--only", help="cases whose name contains this")
    parser.add_argument("--seed", type=int, default=18, help="of the moments")
    asked = parser.parse_args()
    steps = asked.steps or STEPS[asked.device]
    rows: list[dict[str, Any]] = []
    for case in cases(asked.device):
        if asked.only and asked.only not in case.name:
            continue
        try:
            rows.append(measure(case, asked.device, steps, asked.kills, asked.seed))
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:  # the others are still worth a try
            rows.append({"case": case.name, "error": str(error)[-2000:]})
        print(json.dumps(rows[-1]), flush=True)
        keep(asked.device, rows[-1])
    wrong = [row for row in rows if "error" in row or (row["repeatable"] and not row["same_bits"])]
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
