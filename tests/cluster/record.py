"""`python -m tests.cluster.record slurm`: the long tests on a real cluster of this machine, written down.

Writes benchmarks/results/cluster_NAME.json: what ran, whether it passed, how many seconds it took, with which versions.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
HERE = Path(__file__).parent


class Record:
    """A plug-in of pytest: of each test, how it ended and what it took, set-up included."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.rpartition("::")[2]
        row = self.rows.setdefault(name, {"test": name, "ending": "passed", "seconds": 0.0})
        row["seconds"] = round(row["seconds"] + report.duration, 1)
        if report.outcome != "passed":
            row["ending"] = report.outcome


def version(name: str) -> str:
    if name == "ray":
        return importlib.metadata.version("ray")
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    program = shutil.which("slurmctld", path=path)
    return "" if program is None else subprocess.run([program, "-V"], capture_output=True, text=True).stdout.split()[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=["slurm", "ray"])
    parser.add_argument("--only", default="", help="tests whose name matches, as for `pytest -k`; nothing is written")
    asked = parser.parse_args()
    record, started = Record(), time.monotonic()
    words = ["-m", asked.name, str(HERE), *(["-k", asked.only] if asked.only else [])]
    code = int(pytest.main(words, plugins=[record]))
    rows = list(record.rows.values())
    found = {
        "what": f"make test-{asked.name}",
        "version": version(asked.name),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "passed": sum(row["ending"] == "passed" for row in rows),
        "of": len(rows),
        "seconds": round(time.monotonic() - started, 1),
        "tests": rows,
    }
    if not asked.only and rows:
        (RESULTS / f"cluster_{asked.name}.json").write_text(json.dumps(found, indent=2) + "\n")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
