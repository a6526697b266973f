"""Judging stored runs again against measuring them again: seconds for 245 runs, and the bytes a run takes.

One two-layer Mamba is trained on small associative recall and patched on 320 documents, every site, role and direction,
with key and value corrupted. Its results are then written under the ids of 245 seeds, as a sweep would leave them, and
judged by `mixerscope judge` in a process of its own, by other rules than the stored ones and again by the same.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from mixerscope.artifacts import Curve, Provenance, Record, Status, Timing, Verdicts
from mixerscope.results import RunResult, run_folder
from mixerscope.runs import TRAINING, begin_stage, close_stage, run
from mixerscope.spec import RunSpec, preset
from mixerscope.stages import Done

RESULTS = Path(__file__).parent / "results"
RUNS = 245


def spec_of(steps: int) -> RunSpec:
    data = preset("small", "ar", "mamba")
    data["train"]["steps"] = steps
    data["stages"] = {"patch": {"slots": ["key", "value"]}, "judge": {}}
    return RunSpec.model_validate(data)


def copy_to(result: RunResult, spec: RunSpec, root: Path) -> None:
    """The results of one run under the id of another."""
    folder = run_folder(spec, root)
    folder.begin([artifact.file for artifact in (*TRAINING, Timing)])
    folder.write(Record(spec.identity, spec.training()), *(result.folder.read(a) for a in (Status, Curve, Provenance)))
    folder.close(spec.identity, [artifact.file for artifact in TRAINING])
    for name, stage in spec.stages.items():
        held = [artifact for artifact in stage.artifacts if result.stages[name].folder.holds(artifact)]
        found = Done(tuple(result.stages[name].folder.read(artifact) for artifact in held))
        place, identity = folder.stage(name, spec.stage_id(name)), spec.stage_identity(name)
        begin_stage(place, identity, stage, found)
        close_stage(place, identity, stage)


def judged(root: Path, *words: str) -> float:
    started = time.perf_counter()
    command = [sys.executable, "-m", "mixerscope", "judge", str(root), *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    spec = spec_of(options.steps)
    with tempfile.TemporaryDirectory() as place:
        trained = run(spec, Path(place) / "one")
        times = json.loads((trained.stages["patch"].folder.path / Timing.file).read_text())
        root = Path(place) / "many"
        for seed in range(RUNS):
            copy_to(trained, spec.changed(seed=seed), root)
        other = judged(root, "--set", "rules.carries=0.7")
        files = [path for path in trained.folder.path.rglob("*") if path.is_file()]
        before = [(root / path.name / "x").parent for path in root.iterdir()]
        bytes_before = [[p.read_bytes() for p in sorted(path.rglob(Verdicts.file))] for path in before]
        again = judged(root, "--fresh")
        same = bytes_before == [[p.read_bytes() for p in sorted(path.rglob(Verdicts.file))] for path in before]
        result: dict[str, Any] = {
            "runs": RUNS,
            "judge_other_rules_s": other,
            "judge_again_s": again,
            "again_byte_identical": same,
            "patch_one_run_s": times["seconds"],
            "cells": len(trained.effects.cells),
            "documents": trained.effects.facts.documents,
            "run_bytes": sum(path.stat().st_size for path in files),
            "run_bytes_without_weights": sum(p.stat().st_size for p in files if p.name != "weights.safetensors"),
            "effects_bytes": len(trained.effects.to_bytes()),
            "ratio": RUNS * times["seconds"] / other,
        }
    (options.out / "judging.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    print(f"ratio: {result['ratio']:.0f}")


if __name__ == "__main__":
    main()
