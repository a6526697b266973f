"""Fills the compiler's cache for a sweep: every cohort is compiled once, several at a time in processes of their own.

A cohort whose step is in the cache starts within seconds. Without this a sweep compiles as it goes, one cohort at a
time, while others train: nothing is gained in the end but the first minutes, which matter where a GPU is lent for ten.
"""

import argparse
import os
import subprocess
import sys
import time

from mixerscope.machine import Machine, matmuls
from mixerscope.spec import RunSpec, parse_settings
from mixerscope.sweep.cohorts import group
from mixerscope.sweep.source import load_runs


def build(runs: list[RunSpec]) -> float:
    """Seconds until the first step of a cohort could be made."""
    from benchmarks.training import make_stack

    started = time.perf_counter()
    spec = runs[0].changed(train=runs[0].train.changed(documents=32 * runs[0].train.batch_size))
    with matmuls(spec.train.precision):
        make_stack(spec, len(runs), Machine("cuda", compile=True)).build()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sweep")
    parser.add_argument("--set", action="append")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--part", type=int, help="of the processes; all of them if left out")
    options = parser.parse_args()
    started = time.perf_counter()
    if options.part is None:
        words = [sys.executable, "-m", "benchmarks.warm", *sys.argv[1:], "--part"]
        # Each process has a compiler of its own, with threads of its own.
        settings = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "2", "OMP_NUM_THREADS": "1"}
        parts = [subprocess.Popen([*words, str(part)], env=settings) for part in range(options.processes)]
        failed = sum(part.wait() != 0 for part in parts)
        print(f"{time.perf_counter() - started:.0f} s in {options.processes} processes, {failed} failed")
        sys.exit(failed)
    cohorts = group(load_runs(options.sweep, parse_settings(options.set)))
    for cohort in cohorts[options.part :: options.processes]:
        print(f"{cohort}: {build(list(cohort.runs)):.1f} s", flush=True)


if __name__ == "__main__":
    main()
