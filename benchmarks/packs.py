"""How large a run is in a pack: two layers, every site, both slots, 320 documents, numbers that differ in all of them.

Models are trained for a while only: those that have learned all or nothing give likelihoods near 0 and 1, which deflate
to less. Bytes of the run's folder without weights and times, of the same deflated, packed exactly, packed rounded. At
the end how long all of them take in one pack, one after the other in packs of their own, and in one pack when other
processes have got them ready before, as a sweep does on a GPU.

    python -m benchmarks.packs
"""

import json
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from mixerscope.packs import PackSize, write_pack
from mixerscope.packs.ahead import PartsAhead
from mixerscope.results import RunResult, load_run
from mixerscope.runs import run
from mixerscope.spec import RunSpec

WIDTH = 32
ARCHITECTURES = ("attention", "based", "base_conv", "deltanet", "hyena", "mamba", "mamba2", "gated_deltanet", "rwkv7")
MODELS = [*((name, WIDTH) for name in ARCHITECTURES), ("h3", WIDTH), ("h3", 16)]
"""H3 of width 16 has eight heads, which are patched one by one."""
STEPS, BATCH = 100, 32
MOST = 150_000
"""Bytes that a run may take."""
RESULT = Path(__file__).parent / "results" / "packs.json"


def spec(architecture: str, width: int) -> RunSpec:
    return RunSpec.model_validate(
        {
            "task": {"name": "ar", "num_pairs": 3, "num_keys": 4, "num_values": 4},
            "model": {"architecture": architecture, "width": width, "init": "small_model"},
            "train": {"steps": STEPS, "batch_size": BATCH, "documents": STEPS * BATCH, "lr": 1e-2, "eval_every": STEPS},
            "stages": {"patch": {"slots": ["key", "value"], "also_at": ["value+2"]}, "judge": {}},
        }
    )


def packed(*results: RunResult) -> tuple[PackSize, float]:
    started = time.perf_counter()
    size = write_pack(results[0].folder.path.parent / "run.pack", results)
    return size, time.perf_counter() - started


def ready_seconds(results: Sequence[RunResult]) -> float:
    """Seconds of the pack alone, once other processes have made its parts."""
    with closing(PartsAhead()) as ahead:
        for result in results:
            ahead.part(result.folder)
        started = time.perf_counter()
        write_pack(results[0].folder.path.parent / "run.pack", results, ahead.part)
        return time.perf_counter() - started


def row_of(result: RunResult) -> dict[str, Any]:
    accuracy, effects = result.scores.accuracy.value, result.effects
    left = ("weights.safetensors", "timing.json")
    files = [path for path in result.folder.path.rglob("*.*") if path.name not in left]
    folder_bytes = sum(path.stat().st_size for path in files)
    deflated = sum(len(zlib.compress(path.read_bytes(), 9)) for path in files)
    size, seconds = packed(result)
    shutil.rmtree(result.stages["judge"].folder.path)  # without verdicts to compare with, nothing is rounded
    exact, _ = packed(load_run(result.folder.path))
    return {
        "architecture": result.training["model"]["architecture"],
        "accuracy": round(accuracy, 3),
        "width": result.training["model"]["width"],
        "cells": len(effects.cells),
        "runs_over_documents": len(effects.documents.likelihood),
        "folder_bytes": folder_bytes,
        "deflated_bytes": deflated,
        "packed_exactly_bytes": exact.packed,
        "packed_bytes": size.packed,
        "rounded": not size.exact,
        "seconds": round(seconds, 2),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        results = [run(spec(architecture, width), folder, progress=False) for architecture, width in MODELS]
        packed(results[0])  # which imports what packing needs
        together, ready = packed(*results)[1], ready_seconds(results)
        rows = [row_of(result) for result in results]
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    largest = max(row["packed_bytes"] for row in rows)
    alone = sum(row["seconds"] for row in rows)
    threads = {
        "cores": os.cpu_count(),
        "together_s": round(together, 2),
        "alone_s": round(alone, 2),
        "ready_s": round(ready, 3),
        "ratio": round(alone / together, 2),
    }
    print(f"largest: {largest:,} bytes, of {MOST:,} that a run may take; {threads}")
    found = {"most_bytes": MOST, "largest_bytes": largest, "threads": threads, "rows": rows}
    RESULT.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
