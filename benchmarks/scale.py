"""What bookkeeping over many runs costs: `status`, `ls runs`, a sweep that finds everything made, and `collect`.

The runs are made by a script: one tiny model of each architecture is trained and taken through its stages, and what it
left is sealed again under every other seed and learning rate of a sweep, so that 10,000 folders are there in a minute
and each is whole. Commands are whole processes, start included, with files in the machine's cache. Their seconds are
of the CPU, so that waiting for a busy machine is not counted, as none of them waits for anything else; the median of
three counts. Of `ls runs` the first call is timed by itself: where neither a sweep nor a listing has seen the runs it
reads every one; later ones read what has changed. `collect` is given a million cells, in runs of 1,400 each: both
slots, three edits; its seconds are those of all threads together. What it takes where every run has 300, and so five
times as many files are read, stands beside it. Writes benchmarks/results/scale.json, and exits with 1 where a bar is
missed.

    python -m benchmarks.scale
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import polars as pl

from mixerscope.artifacts import Record, Weights
from mixerscope.export import collect
from mixerscope.results import run_folder
from mixerscope.runs import run
from mixerscope.spec import RunSpec
from mixerscope.store import RunFolder, Seal, sha256_of
from mixerscope.sweep.expand import Sweep

RESULTS = Path(__file__).parent / "results" / "scale.json"
TIMES = 3
RUNS = 10_000
RATES = [1e-4, 3e-4, 1e-3, 3e-3, 1e-2]
CELLS = 10**6
BARS = {
    "status_seconds": 2.0,
    "ls_seconds": 2.0,
    "ls_first_seconds": 2.0,
    "sweep_ms_per_run": 5.0,
    "collect_seconds": 5.0,
    "collect_mib": 500,
}
BASE = {
    "task": {"name": "ar", "num_pairs": 2, "num_keys": 4, "num_values": 4},
    "model": {"architecture": "attention", "width": 8},
    "train": {"steps": 2, "batch_size": 4, "documents": 8, "eval_every": 1, "eval_documents": 8},
    "stages": {"patch": {"documents": 8}, "judge": {}},
}


LARGER: dict[str, Any] = {
    "patch": {"documents": 8, "slots": ["key", "value"], "edits": ["swap", "zero", "mean"]},
    "judge": {},
}


def sweep_of(count: int, stages: dict[str, Any] | None = None) -> dict[str, Any]:
    """A sweep of about so many runs, in cohorts of the usual size."""
    base = {**BASE, "stages": stages or BASE["stages"]}
    seeds = list(range(max(1, count // (2 * len(RATES)))))
    return {"base": base, "vary": {"model.architecture": ["attention", "based"], "train.lr": RATES, "seed": seeds}}


def make_runs(sweep: dict[str, Any], root: Path) -> int:
    """Fills a folder with all runs of a sweep; gives how many."""
    specs = Sweep.model_validate(sweep).runs()
    measured: dict[str, _Left] = {}
    for spec in specs:
        name = spec.model.architecture
        if name not in measured:
            measured[name] = _Left(run(spec, root.with_name(f"{root.name}-measured"), progress=False).folder)
        measured[name].copy(spec, run_folder(spec, root))
    return len(specs)


class _Left:
    """What a run left, to be sealed again under other seeds and rates. Weights stay behind, as in a sweep.

    Written without waiting for the disk, which a benchmark's runs may be lost on.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.files = {name: (folder.path / name).read_bytes() for name in folder.seal().files if name != Weights.file}
        self.stages = {stage.path.name: (stage.seal(), _bytes(stage.path)) for stage in folder.stages()}

    def copy(self, spec: RunSpec, folder: RunFolder) -> None:
        files = {**self.files, Record.file: Record(spec.identity, spec.training()).to_bytes()}
        seal = Seal("training", spec.run_id, {name: sha256_of(data) for name, data in files.items()})
        _write(folder.path, {**files, Seal.file: seal.to_bytes()})
        for name, (sealed, found) in self.stages.items():
            _write(folder.path / name, {**found, Seal.file: replace(sealed, run=spec.run_id).to_bytes()})


def _bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


WATCH = """
import os, subprocess, sys, time
began = time.monotonic()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, code, used = os.wait4(process.pid, 0)
print(code, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, time.monotonic() - began)
"""
"""What starts a command and says what it took: a small process, as a child's peak is at least what its parent has."""


class Took(NamedTuple):
    """What a command took: the median of some calls, but for memory, of which it is the most."""

    seconds: float
    """Of the CPU, all threads together."""
    mib: float
    wall: float
    """Seconds that went by, which says something where nothing else runs."""


def timed(words: Sequence[str], times: int = TIMES) -> Took:
    """What a command took that must succeed."""
    taken: list[Took] = []
    for _ in range(times):
        command = [sys.executable, "-c", WATCH, sys.executable, "-m", "mixerscope", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        code, *took = map(float, done.stdout.split())
        if code:
            raise SystemExit(f"`mixerscope {' '.join(words)}` ended with {code:.0f}: {done.stderr}")
        taken.append(Took(*took))
    return Took(median(t.seconds for t in taken), max(t.mib for t in taken), median(t.wall for t in taken))


def measure(root: Path, sweep: Path, runs: int) -> dict[str, Any]:
    status = timed(["status", str(root)]).seconds
    first = timed(["ls", "runs", "--out", str(root)], times=1).seconds
    listed = timed(["ls", "runs", "--out", str(root)]).seconds
    skipped, size, _ = timed(["sweep", str(sweep), "--out", str(root)])
    return {
        "runs": runs,
        "status_seconds": round(status, 2),
        "ls_seconds": round(listed, 2),
        "ls_first_seconds": round(first, 1),
        "sweep_seconds": round(skipped, 1),
        "sweep_ms_per_run": round(1000 * skipped / runs, 2),
        "sweep_mib": round(size),
    }


def measure_collect(root: Path, cells: int, stages: dict[str, Any] | None = None) -> dict[str, Any]:
    """One Parquet file of about so many cells."""
    out = root.with_suffix(".parquet")
    make_runs(sweep_of(10, stages), root)
    each = len(collect(root, ["effects"])) // 10
    shutil.rmtree(root)
    made = make_runs(sweep_of(cells // each + 10, stages), root)
    took = timed(["collect", str(root), "--out", str(out)])
    count = pl.scan_parquet(out).filter(pl.col("table") == "effects").select(pl.len()).collect().item()
    shutil.rmtree(root)
    return {
        "cells": count,
        "cells_in_runs": made,
        "collect_seconds": round(took.seconds, 2),
        "collect_wall_seconds": round(took.wall, 2),
        "collect_mib": round(took.mib),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--keep", type=Path, help="make the runs in this folder, and leave them there")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        sweep, root = sweep_of(asked.runs), folder / "runs"
        (folder / "sweep.json").write_text(json.dumps(sweep))
        made = len(list(root.iterdir())) if root.is_dir() else make_runs(sweep, root)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")  # nobody has listed these runs before
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")  # kept, as where somebody installed it
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        shutil.rmtree(folder / "cache", ignore_errors=True)
        found = measure(root, folder / "sweep.json", made)
        cells = CELLS * asked.runs // RUNS
        found |= measure_collect(folder / "large", cells, LARGER)
        found["small_runs"] = measure_collect(folder / "small", cells)
    found |= {"bars": BARS, "cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    print(json.dumps(found, indent=2))
    if made >= RUNS:
        RESULTS.write_text(json.dumps(found, indent=2) + "\n")
    return 1 if any(found[name] > bar for name, bar in BARS.items()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
