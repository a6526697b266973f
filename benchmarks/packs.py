"""How large a run is in a pack: two layers, every site, both slots, 320 documents, numbers that differ in all of them.

Models are trained for a while only: those that have learned all or nothing give likelihoods near 0 and 1, which deflate
to less. Bytes of the run's folder without weights and times, of the same deflated, packed exactly, packed rounded.

    python -m benchmarks.packs
"""

import json
import shutil
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

from mixerscope.packs import PackSize, write_pack
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


def packed(result: RunResult) -> tuple[PackSize, float]:
    started = time.perf_counter()
    size = write_pack(result.folder.path.parent / "run.pack", [result])
    return size, time.perf_counter() - started


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
    rows: list[dict[str, Any]] = []
    for architecture, width in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(row_of(run(spec(architecture, width), folder, progress=False)))
        print("  ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    largest = max(row["packed_bytes"] for row in rows)
    print(f"largest: {largest:,} bytes, of {MOST:,} that a run may take")
    RESULT.write_text(json.dumps({"most_bytes": MOST, "largest_bytes": largest, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
